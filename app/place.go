// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/lane/device"
)

// Options are the inputs of Run and Attach, in addition to the lane.
type Options struct {
	// RunDir is the directory of the records.
	RunDir string
	// State is the machine's state, including the lane's devices.
	State *device.State
	// Member is the name of the lane's member whose control group the application joins. It is needed
	// if the lanes file gives several control groups.
	Member string
	// Listeners says how niclane leads connections to listeners. nil: it does not.
	Listeners *Listeners
	// CPUs and Mems, if set, replace the lane's processors and NUMA nodes: the application may run
	// only there. A caller that places the application itself may give fewer or more than the lane
	// has.
	CPUs, Mems []int
	// BusyPoll is the application's busy polling; nil: unchanged.
	BusyPoll *BusyPoll
	// Keeper is the beginning of the command line that starts the keeper. niclane adds the directory
	// and the ID of the record.
	Keeper []string
}

// group returns the control group that the lanes file gives for the member, "" if it gives none.
func (o Options) group(l Lane) (string, error) {
	groups := l.Groups()
	if o.Member != "" {
		i := slices.IndexFunc(l.Members, func(m Member) bool { return m.Name == o.Member })
		if i < 0 {
			return "", fmt.Errorf("lane %s has no member %q", l.Name, o.Member)
		}
		groups = nil
		if g := l.Members[i].Cgroup; g != "" {
			groups = []string{g}
		}
	}
	switch len(groups) {
	case 0:
		return "", nil
	case 1:
		return groups[0], nil
	}
	return "", fmt.Errorf("lane %s has members in control groups %s: say which member", l.Name,
		strings.Join(groups, " and "))
}

// A hierarchy is one of the control group hierarchies in which an application gets a group.
type hierarchy struct {
	controller string // its controller in version 1; "" for the unified hierarchy
	root       string
}

// hierarchies returns the hierarchies in which an application gets a group. niclane lists the
// application's processes by the first one. The others are those in which the lane has settings by
// control group.
func hierarchies(c device.Cgroup, l Lane) []hierarchy {
	var hs []hierarchy
	if c.V2 != "" {
		hs = append(hs, hierarchy{"", c.V2})
	}
	if root := c.V1["cpuset"]; root != "" {
		hs = append(hs, hierarchy{"cpuset", root})
	}
	if root := c.V1["net_prio"]; root != "" && len(l.NetPrio) > 0 {
		hs = append(hs, hierarchy{"net_prio", root})
	}
	return hs
}

// of returns a process's group in the hierarchy, "" if the process has none there.
func (h hierarchy) of(membership map[string]string) string {
	for controllers, g := range membership {
		if controllers == h.controller || h.controller != "" &&
			slices.Contains(strings.Split(controllers, ","), h.controller) {
			return g
		}
	}
	return ""
}

// given returns the groups for a member whose name is in the lanes file, in those hierarchies where
// they exist.
func given(hs []hierarchy, name string) ([]Group, error) {
	var gs []Group
	for _, h := range hs {
		if g := (Group{Hierarchy: h.controller, Root: h.root, Path: name}); g.exists() {
			gs = append(gs, g)
		}
	}
	if len(gs) == 0 {
		return nil, fmt.Errorf("control group %s, which the lanes file names, is gone: make it, then niclane apply: %w",
			name, unix.ENOENT)
	}
	return gs, nil
}

// own returns the groups that niclane will make, one in each hierarchy.
func own(hs []hierarchy, name string) []Group {
	var gs []Group
	for _, h := range hs {
		gs = append(gs, Group{Hierarchy: h.controller, Root: h.root, Path: name, Made: true})
	}
	return gs
}

// confine returns the processors and NUMA nodes on which a lane's applications may run. If the
// lanes file names processors for the lane's control groups, or else for the lane, these are the
// processors. Otherwise, they are all processors on the nodes of the lane's devices. nil means no
// restriction.
func (l Lane) confine(st *device.State) (cpus, mems []int) {
	cpus, mems = l.place(st)
	if len(l.AppMems) > 0 {
		mems = l.AppMems
	}
	return cpus, mems
}

func (l Lane) place(st *device.State) (cpus, mems []int) {
	if len(l.AppCPUs) > 0 {
		return l.AppCPUs, nodes(st, l.AppCPUs)
	}
	if l.Named {
		return l.CPUs(), nodes(st, l.CPUs())
	}
	var near []int
	for _, f := range l.Fitted {
		d := st.Device(f.Device)
		if d == nil || d.Node < 0 {
			return nil, nil
		}
		near = append(near, d.Node)
	}
	for _, c := range st.CPUs {
		if c.Online && slices.Contains(near, c.Node) {
			cpus = append(cpus, c.ID)
		}
	}
	if len(cpus) == 0 || len(cpus) == len(st.OnlineCPUs()) {
		return nil, nil // the devices' nodes have no processors, or all of the machine's
	}
	return cpus, nodes(st, cpus)
}

// nodes returns the NUMA nodes of processors, ascending.
func nodes(st *device.State, cpus []int) []int {
	var ns []int
	for _, c := range st.CPUs {
		if slices.Contains(cpus, c.ID) {
			ns = append(ns, max(c.Node, 0))
		}
	}
	slices.Sort(ns)
	return slices.Compact(ns)
}

// A cpuset is a way to restrict processes to processors.
type cpuset int

// The ways to restrict processes to processors.
const (
	cpusetNone    cpuset = iota // the affinity of each thread
	cpusetUnified               // the cpuset controller of the unified hierarchy
	cpusetV1
)

// cpusets returns the way that works for groups directly below a hierarchy's root. It does not
// enable a controller, because the service manager decides which controllers these groups have.
func cpusets(c device.Cgroup) (cpuset, error) {
	if c.V1["cpuset"] != "" {
		return cpusetV1, nil
	}
	if c.V2 == "" {
		return cpusetNone, nil
	}
	b, err := os.ReadFile(filepath.Join(c.V2, "cgroup.subtree_control"))
	if errors.Is(err, fs.ErrNotExist) {
		return cpusetNone, nil // the mount shows only a part of the hierarchy, and not its root
	}
	if err != nil {
		return cpusetNone, err
	}
	if slices.Contains(strings.Fields(string(b)), "cpuset") {
		return cpusetUnified, nil
	}
	return cpusetNone, nil
}

// bind restricts the calling thread to memory of some NUMA nodes (set_mempolicy(2)). A program that
// the thread executes inherits this.
func bind(nodes []int) error {
	const mpolBind = 2
	var mask [16]uint64
	for _, n := range nodes {
		if n >= len(mask)*64 {
			return fmt.Errorf("NUMA node %d: %w", n, unix.EINVAL)
		}
		mask[n/64] |= 1 << (n % 64)
	}
	return setMempolicy(mpolBind, mask[:])
}

// findGroups returns the mount points of the control group hierarchies.
func findGroups() (device.Cgroup, error) {
	c, err := cgroup.Find(nil)
	if err != nil {
		return c, fmt.Errorf("control groups: %w", err)
	}
	if c.V2 == "" && c.V1["cpuset"] == "" {
		return c, errors.New("no control groups are mounted: neither the unified hierarchy nor cpuset's")
	}
	return c, nil
}
