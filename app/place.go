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

// Options are what Run and Attach need to know of the machine.
type Options struct {
	// RunDir is where records are kept.
	RunDir string
	// State is the machine, with the lane's devices.
	State *device.State
	// Member names the member of the lane whose control group is joined, where
	// its file gives several.
	Member string
	// Listeners are to be led connections by queue; nil: not.
	Listeners *Listeners
	// CPUs and Mems, if given, are what the application is confined to instead
	// of what the lane has: a part of it, or more, where somebody else places
	// it.
	CPUs, Mems []int
	// BusyPoll is how the application is to poll itself; nil: as it does.
	BusyPoll *BusyPoll
	// Keeper is the command line that becomes the keeper, to which the
	// record's ID is added.
	Keeper []string
}

// group returns the control group that the lane's file gives the member, "" if
// it gives none.
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

// A hierarchy is one that applications are placed in.
type hierarchy struct {
	controller string // of version 1; "" for the unified one
	root       string
}

// hierarchies returns, first the one that tells an application's processes,
// those that have what a lane gives by control group.
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

// of returns a process's group in a hierarchy, "" if it is in none.
func (h hierarchy) of(membership map[string]string) string {
	for controllers, g := range membership {
		if controllers == h.controller || h.controller != "" &&
			slices.Contains(strings.Split(controllers, ","), h.controller) {
			return g
		}
	}
	return ""
}

// given are the groups of a member's that the lanes file names.
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

// own are groups to be made.
func own(hs []hierarchy, name string) []Group {
	var gs []Group
	for _, h := range hs {
		gs = append(gs, Group{Hierarchy: h.controller, Root: h.root, Path: name, Made: true})
	}
	return gs
}

// confine decides which processors and NUMA nodes a lane's applications have:
// its processors if the file names them, else all of its devices' nodes. nil
// is no confinement.
func (l Lane) confine(st *device.State) (cpus, mems []int) {
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
		return nil, nil // a node without processors, or the only one
	}
	return cpus, nodes(st, cpus)
}

// nodes are those of processors, ascending.
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

// A cpuset is how processors are kept to.
type cpuset int

// The ways.
const (
	cpusetNone    cpuset = iota // by each thread's affinity
	cpusetUnified               // the unified hierarchy's controller
	cpusetV1
)

// cpusets says which way the machine has, for groups directly below a root. It
// enables nothing: which controllers the unified hierarchy gives to the groups
// below its root is the service manager's to decide.
func cpusets(c device.Cgroup) (cpuset, error) {
	if c.V1["cpuset"] != "" {
		return cpusetV1, nil
	}
	if c.V2 == "" {
		return cpusetNone, nil
	}
	b, err := os.ReadFile(filepath.Join(c.V2, "cgroup.subtree_control"))
	if errors.Is(err, fs.ErrNotExist) {
		return cpusetNone, nil // a part of the hierarchy without its root
	}
	if err != nil {
		return cpusetNone, err
	}
	if slices.Contains(strings.Fields(string(b)), "cpuset") {
		return cpusetUnified, nil
	}
	return cpusetNone, nil
}

// bind keeps the calling thread's memory to NUMA nodes (set_mempolicy(2)),
// which a program that it executes inherits.
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

// findGroups returns where control groups are.
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
