// SPDX-License-Identifier: Apache-2.0

// Package result is result.json: everything that was measured in one run of an
// experiment, and what is needed to judge or repeat it. Reports are made from
// it alone.
//
// It keeps every histogram of every window, so that nothing has to be measured
// again to be looked at in another way, and it judges nothing when it is
// written: Summarize does, purely, whenever it is read. It refuses files of
// another version, keys that it does not know, and windows of variants or load
// points that the file does not have. docs/result.schema.json describes the
// file for others.
package result

//go:generate go test . -run SchemaIsCurrent -update
