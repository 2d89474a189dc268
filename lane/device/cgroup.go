// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"strconv"
	"strings"
)

// A CgroupClass gives the sockets of a control group's processes a priority
// that names an HTB class, or is one of mqprio's: TCP when a connection is made or accepted, others
// when they are created, and those that are there already.
type CgroupClass struct {
	// Cgroup is the path below the root of the unified hierarchy.
	Cgroup string `json:"cgroup"`
	// Priority is that of FilterEntry; "" for a class that a kill has left half made.
	Priority string `json:"priority"`
}

// Key implements Object.
func (c CgroupClass) Key() string { return "cgroupclass" + c.Cgroup }

// Brief implements Object.
func (c CgroupClass) Brief() string {
	if c.Priority == "" {
		return "half made"
	}
	return c.Priority
}

func (c CgroupClass) commands(change Change) []string {
	if change.New == nil {
		return one(fmt.Sprintf("bpftool cgroup detach <cgroup v2>%s sock_ops pinned <niclane_sockops>", c.Cgroup))
	}
	return one(fmt.Sprintf("bpftool cgroup attach <cgroup v2>%s sock_ops pinned <niclane_sockops> multi", c.Cgroup))
}

func (c CgroupClass) group() string { return c.Cgroup }

// A CgroupPriority gives the packets of a control group's processes a priority
// on one device, by the net_prio controller of cgroup v1: where their sockets
// have none of their own.
type CgroupPriority struct {
	// Cgroup is the path below the root of the hierarchy that carries
	// net_prio.
	Cgroup string `json:"cgroup"`
	Dev    string `json:"dev"`
	// Priority is that of FilterEntry, not 0.
	Priority string `json:"priority"`
}

// Kind implements Object.
func (CgroupPriority) Kind() string { return "cgroup-priority" }

// Key implements Object.
func (p CgroupPriority) Key() string { return "cgrouppriority/" + p.Dev + p.Cgroup }

// Brief implements Object.
func (p CgroupPriority) Brief() string { return p.Priority }

func (p CgroupPriority) commands(c Change) []string {
	n := p.number()
	if c.New == nil {
		n = 0
	}
	return one(fmt.Sprintf("echo %s %d > <net_prio>%s/net_prio.ifpriomap", p.Dev, n, p.Cgroup))
}

func (p CgroupPriority) group() string { return p.Cgroup }

// number is what is written for a handle: "1:10" is 65552.
func (p CgroupPriority) number() (n uint64) {
	for part := range strings.SplitSeq(p.Priority, ":") {
		v, _ := strconv.ParseUint(part, 16, 16)
		n = n<<16 | v
	}
	return n
}
