// SPDX-License-Identifier: Apache-2.0

// Package device holds the state and the capabilities of a machine as plain
// data: links, queues, NAPIs, RSS tables, rules, qdiscs, processors, and
// capabilities with three answers. It also defines the objects that a plan may
// write. It reads and writes nothing: package observe fills it, package plan
// reads it. Its JSON form (`niclane probe --json`) is the fixture format of the
// planner's tests.
package device
