// SPDX-License-Identifier: Apache-2.0

// Package result reads and writes result.json. The file has everything that one run of an
// experiment measured, and what is needed to judge or repeat the run. Reports need no other source.
//
// The file keeps every histogram of every window, so that other evaluations need no new
// measurement. It contains no verdicts: Summarize, a pure function, derives them each time the file
// is read. Package result refuses files of another version, and files with unknown keys. It also
// refuses a window whose variant or load point the file does not list. docs/result.schema.json
// describes the file for other programs.
package result

//go:generate go test . -run SchemaIsCurrent -update
