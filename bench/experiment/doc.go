// SPDX-License-Identifier: Apache-2.0

// Package experiment is the file that says what "niclane bench run" measures:
// where, which server, which load beside which noise, in which variants, how
// often, and what is to be found out. It is as strict as package config, whose
// reader it shares: every error of a file in one run, with line, path, what was
// found and what is allowed. One table of keys drives the reader, the JSON
// Schema for editors and the reference in docs/experiment.yaml.5.md.
//
// It refuses what cannot be measured as it is written: a percentile that the
// windows do not hold enough requests for, noise without a link to be a share
// of, a time limit below the time that the file needs. It opens no file and
// runs nothing; whether a host, a program or a card is there is for those who
// run the experiment, who find the line for their errors with File.Problem.
package experiment

//go:generate go test . -run Current|Manual -update
