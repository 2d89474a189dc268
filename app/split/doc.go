// SPDX-License-Identifier: Apache-2.0

// Package split divides one lane and its application over the NUMA nodes of a host. It expands
// a lane of a lanes file into lanes whose queues are served by processors of each node. It
// expands the application's command line into one instance per node, with processors, memory
// and storage of that node.
//
// The package plans nothing, starts nothing and reads no machine. Its result is an ordinary
// lanes file and the commands to start in its lanes.
package split
