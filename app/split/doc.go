// SPDX-License-Identifier: Apache-2.0

// Package split divides one lane and its application over the NUMA nodes of a
// host: it expands a lane of a lanes file into lanes whose queues are worked on
// by processors of each node, and the application's command line into an
// instance per node, with processors, memory and storage of that node.
//
// It plans nothing and starts nothing: what it gives is an ordinary lanes file,
// and what to start in its lanes. It reads no machine.
package split
