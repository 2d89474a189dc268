// SPDX-License-Identifier: Apache-2.0

// Package split divides one lane and its application over the NUMA nodes of a host. From a lane of
// a lanes file, it makes lanes whose queues are served by processors of each node. From the
// application's command line, it makes one instance per node, with processors, memory and storage
// of that node.
//
// The package makes no plan, starts no process and does not read the machine. Its result is an
// ordinary lanes file, and the commands to start in its lanes.
package split
