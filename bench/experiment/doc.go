// SPDX-License-Identifier: Apache-2.0

// Package experiment reads the file that says what "niclane bench run" measures: the hosts, the
// server, the load, the noise, the variants, the repeats and the goals. It is as strict as
// package config and shares its reader: it reports every error of a file in one run, with line,
// path, the value found and the values allowed. One table of keys drives the reader, the JSON
// Schema for editors and the reference in docs/experiment.yaml.5.md.
//
// It refuses what cannot be measured as written: a percentile for which the windows have too
// few requests, noise as a share of an unknown link rate, a time limit shorter than the
// windows. It opens no file and runs nothing. It does not check that a host, a program or a
// card exists: the caller that runs the experiment does, and finds the line for its errors with
// File.Problem.
package experiment

//go:generate go test . -run Current|Manual -update
