// SPDX-License-Identifier: Apache-2.0

package numa

// A Node is a NUMA node. Linux shows a sub-NUMA cluster as a node too.
type Node struct {
	ID int `json:"id"`
	// CPUs are the online processors, ascending; none for a node of memory only (CXL).
	CPUs []int `json:"cpus,omitempty"`
	// Offline are the offline processors.
	Offline []int `json:"offline,omitempty"`
	// Memory is in bytes; 0 for a node of processors only.
	Memory uint64 `json:"memory"`
	// Distance is the distance to each node by ID (ACPI SLIT: 10 to itself). It is empty if the
	// machine reports none.
	Distance map[int]int `json:"distance,omitempty"`
}

// A Device is a network device of the device group.
type Device struct {
	Name string `json:"name"`
	Node int    `json:"node"` // -1 if none or unknown
}

// A Storage is a path for an instance's data.
type Storage struct {
	Path string `json:"path"`
	Node int    `json:"node"` // node of the drive; -1 if none, unknown or several
}
