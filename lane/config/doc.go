// SPDX-License-Identifier: Apache-2.0

// Package config reads lanes.yaml into an intent. It is strict: whatever it
// does not know, or that contradicts itself, is an error with file, line, path,
// what was found and what is allowed, and all errors of a file are reported in
// one run. One table of keys drives the reader, the JSON Schema for editors and
// the reference in docs/lanes.yaml.5.md.
//
// It opens no file and knows no device: whether a device has the queues, or a
// processor is online, is for package plan to say; File.Locate finds the line
// that plan's errors belong to.
package config

//go:generate go test . -run Current|Manual -update
