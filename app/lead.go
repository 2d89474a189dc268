// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"

	"github.com/niclane/niclane/app/reuseport"
	"github.com/niclane/niclane/app/sockiter"
)

// A Leading says how to distribute connections over the instances of an application, one on each
// NUMA node. A connection goes to the instance on the node where its packets arrive. This needs no
// lane.
type Leading struct {
	Ports []uint16
	// Nodes has the processors of each instance's node. A connection that arrives on one of them goes
	// to the instance on that node: the one whose threads may run only there.
	Nodes [][]int
	// Only is the index of the one instance that gets all connections. If Only is -1, each instance
	// gets the connections of its node. If it is not, Others must have all processors that are on no
	// instance's node.
	Only   int
	Others []int
	// Processes returns the PIDs of the application.
	Processes func() ([]int, error)
}

// Lead sets the program and its tables. They last as long as the listeners and need no process.
// Lead returns the groups of listeners. If an instance has no listener that can get connections, it
// returns an error.
func Lead(c Leading) ([]ListenGroup, error) {
	devices, err := notLoopback()
	if err != nil {
		return nil, err
	}
	ld := &leader{
		record: &Record{Lane: Lane{Nodes: c.Nodes}, Listeners: &Listeners{Ports: c.Ports}},
		set:    map[uint64]reuseport.Tables{}, pids: c.Processes,
		arrival: &arrival{Leading: c, devices: devices},
	}
	groups, err := ld.look()
	if err != nil {
		return groups, err
	}
	if len(groups) == 0 {
		return nil, fmt.Errorf("no process of the application listens at port %d", c.Ports)
	}
	for _, g := range groups {
		if err := ld.arrival.check(g); err != nil {
			return groups, err
		}
	}
	return groups, nil
}

// notLoopback returns the interface indexes of all devices except loopback.
func notLoopback() ([]uint32, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var out []uint32
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 {
			out = append(out, uint32(i.Index))
		}
	}
	return out, nil
}

// An arrival makes the tables for Lead, by the processor on which packets arrive.
type arrival struct {
	Leading
	devices []uint32
}

// tables assigns to each processor the listeners of the instance on its node. placed is the number
// of listeners whose node is known.
func (a *arrival) tables(ls []Listening) (s spreading, placed int) {
	s.devices, s.cpus = a.devices, map[int][]int{}
	of := a.byInstance(ls)
	for i, node := range a.Nodes {
		placed += len(of[i])
		to := of[i]
		if a.Only >= 0 {
			to = of[a.Only]
		}
		for _, cpu := range node {
			s.cpus[cpu] = to
		}
	}
	if a.Only >= 0 {
		for _, cpu := range a.Others {
			s.cpus[cpu] = of[a.Only]
		}
	}
	return s, placed
}

// byInstance returns, for each instance, the indexes of its listeners in ls.
func (a *arrival) byInstance(ls []Listening) [][]int {
	out := make([][]int, len(a.Nodes))
	for i, l := range ls {
		if n := HomeOf(l, a.Nodes); n >= 0 {
			out[n] = append(out[n], i)
		}
	}
	return out
}

// check returns an error if an instance has no listener in the group, or if niclane does not lead
// the group's connections.
func (a *arrival) check(g ListenGroup) error {
	lacking := a.lacking(g.Listeners)
	if len(lacking) == 0 && g.Led {
		return nil
	}
	at := g.Listeners[0].Local
	if len(lacking) == 0 {
		return fmt.Errorf("%s: connections are not led: %s", at, g.Why)
	}
	var have []string
	for _, l := range g.Listeners {
		on := "no node"
		if l.Home != "" {
			on = "processors " + l.Home
		}
		have = append(have, fmt.Sprintf("of process %d, which is kept to %s", l.PID, on))
	}
	return fmt.Errorf("%s: instance %s has no listener with SO_REUSEPORT whose threads are all kept to its node; "+
		"found one %s",
		at, strings.Trim(fmt.Sprint(lacking), "[]"), strings.Join(have, ", one "))
}

// lacking returns the instances without a listener.
func (a *arrival) lacking(ls []Listening) (out []int) {
	for i, of := range a.byInstance(ls) {
		if len(of) == 0 {
			out = append(out, i)
		}
	}
	return out
}

// Leads returns how many connections to some ports niclane's programs have given to listeners: by
// queue, by processor, and by the kernel's hash.
func Leads(ports []uint16) (c reuseport.Counts, err error) {
	socks, err := sockiter.List(sockiter.Filter{Ports: ports, Listeners: true})
	if err != nil {
		return c, err
	}
	seen := map[uint64]bool{}
	for _, s := range socks {
		if !s.Picked || seen[s.Group] {
			continue
		}
		seen[s.Group] = true
		p, err := reuseport.Open(s.Program)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another owner's program chooses
		}
		if err != nil {
			return c, err
		}
		n, err := p.Counts()
		if err = errors.Join(err, p.Close()); err != nil {
			return c, err
		}
		c.Queue, c.CPU, c.Hash = c.Queue+n.Queue, c.CPU+n.CPU, c.Hash+n.Hash
	}
	return c, nil
}

// HomeOf returns the index in nodes of the node that serves a listener. If there is none, it
// returns -1.
func HomeOf(l Listening, nodes [][]int) int {
	return slices.IndexFunc(nodes, func(n []int) bool { return l.Home != "" && l.Home == homeName(n) })
}
