// SPDX-License-Identifier: Apache-2.0

// Package config reads lanes.yaml into an intent. It is strict: an unknown key or a contradiction
// is an error with file, line, path, the value found and the values allowed. It reports all
// errors of a file, not only the first. The reader, the JSON Schema for editors and the reference
// in docs/lanes.yaml.5.md all use one table of keys.
//
// It opens no file and knows no device. Package plan checks whether a device has the queues and
// whether a processor is online. File.Locate returns the line for an error of plan.
package config

//go:generate go test . -run Current|Manual -update
