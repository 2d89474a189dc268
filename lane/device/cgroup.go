// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"strconv"
	"strings"
)

// A CgroupClass gives the sockets of a control group's processes the priority of an HTB
// class or of an mqprio class. TCP sockets get it when they connect or accept, other
// sockets when they are created. Existing sockets get it too.
type CgroupClass struct {
	// Cgroup is the path below the root of the unified hierarchy.
	Cgroup string `json:"cgroup"`
	// Priority is a handle, like FilterEntry.Priority. "" means that niclane was killed while it
	// made the object.
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
// on one device, by the net_prio controller of cgroup v1. It does not change
// the packets of sockets with their own priority.
type CgroupPriority struct {
	// Cgroup is the path relative to the root of the hierarchy with net_prio.
	Cgroup string `json:"cgroup"`
	Dev    string `json:"dev"`
	// Priority is a handle, like FilterEntry.Priority, but never 0.
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

// number returns the priority as the number that net_prio takes: 65552 for "1:10".
func (p CgroupPriority) number() (n uint64) {
	for part := range strings.SplitSeq(p.Priority, ":") {
		v, _ := strconv.ParseUint(part, 16, 16)
		n = n<<16 | v
	}
	return n
}
