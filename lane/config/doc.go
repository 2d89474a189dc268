// SPDX-License-Identifier: Apache-2.0

// Package config reads lanes.yaml into an intent. It is strict: an unknown key
// or a contradiction is an error with file, line, path, the value found and the
// values allowed. One run reports all errors of a file. One table of keys
// drives the reader, the JSON Schema for editors and the reference in
// docs/lanes.yaml.5.md.
//
// It opens no file and knows no device. Package plan checks whether a device
// has the queues and whether a processor is online; File.Locate finds the line
// of plan's errors.
package config

//go:generate go test . -run Current|Manual -update
