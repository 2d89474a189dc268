// SPDX-License-Identifier: Apache-2.0

package numa

// A Node is a NUMA node, or a sub-NUMA cluster, which is one to Linux.
type Node struct {
	ID int `json:"id"`
	// CPUs are the online processors, ascending; none for memory alone (CXL).
	CPUs []int `json:"cpus,omitempty"`
	// Offline are those that are not.
	Offline []int `json:"offline,omitempty"`
	// Memory in bytes; 0 for a node that has processors alone.
	Memory uint64 `json:"memory"`
	// Distance to each node by its ID (ACPI SLIT: 10 to itself), empty if
	// the machine does not say.
	Distance map[int]int `json:"distance,omitempty"`
}

// A Device is a network device of the lanes' group.
type Device struct {
	Name string `json:"name"`
	Node int    `json:"node"` // -1 if it is on none, or does not say
}

// A Storage is a path for an instance's data.
type Storage struct {
	Path string `json:"path"`
	Node int    `json:"node"` // of the drive; -1 if it is on none, or on several
}
