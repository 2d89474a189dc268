// SPDX-License-Identifier: Apache-2.0

// Package device holds the state and the capabilities of a machine as plain data: links, queues,
// NAPIs, RSS tables, rules, qdiscs, processors, and capabilities with three answers. It also
// defines the objects that a plan may write. It does no input or output: package observe makes a
// State, package plan reads it. The planner's tests use a State's JSON form (`niclane probe
// --json`) as input.
package device
