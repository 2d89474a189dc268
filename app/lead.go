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

// A Leading says which instance of an application on several NUMA nodes the
// connections to its ports go to, by the processor that their packets arrive
// on: whatever lanes there are, or none.
type Leading struct {
	Ports []uint16
	// Nodes are the processors of each instance's node: connections that
	// arrive on one go to the instance whose threads are kept to some of them.
	Nodes [][]int
	// Only, if it is not negative, is the index of the instance that all
	// connections go to, wherever they arrive; Others are processors of no
	// instance's node, for that.
	Only   int
	Others []int
	// Processes of the application.
	Processes func() ([]int, error)
}

// Lead leads connections once: what it has set lasts as long as the listeners,
// and needs no process. It returns what became of the listeners, and an error
// if an instance has none that connections can be led to.
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
		return nil, fmt.Errorf("nobody of the application listens at port %d", c.Ports)
	}
	for _, g := range groups {
		if err := ld.arrival.check(g); err != nil {
			return groups, err
		}
	}
	return groups, nil
}

// notLoopback are the indexes of the devices that packets of others arrive at.
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

// An arrival decides for Lead.
type arrival struct {
	Leading
	devices []uint32
}

// tables has a list for each processor: the listeners of the node's instance.
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

// byInstance are the listeners by the instance that they are one of.
func (a *arrival) byInstance(ls []Listening) [][]int {
	out := make([][]int, len(a.Nodes))
	for i, l := range ls {
		if n := HomeOf(l, a.Nodes); n >= 0 {
			out[n] = append(out[n], i)
		}
	}
	return out
}

// check wants a listener of each instance in a group.
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
	return fmt.Errorf("%s: no listener with SO_REUSEPORT of instance %s, all of whose threads are kept to its node; "+
		"there is one %s",
		at, strings.Trim(fmt.Sprint(lacking), "[]"), strings.Join(have, ", one "))
}

// lacking are the instances without a listener.
func (a *arrival) lacking(ls []Listening) (out []int) {
	for i, of := range a.byInstance(ls) {
		if len(of) == 0 {
			out = append(out, i)
		}
	}
	return out
}

// Leads are how connections were given a listener of some ports since they are
// led: by where they arrived, or, without that being known, by the kernel's
// hash.
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
			continue // somebody else's
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

// HomeOf is the node of a listener among nodes, -1 if it is on none.
func HomeOf(l Listening, nodes [][]int) int {
	return slices.IndexFunc(nodes, func(n []int) bool { return l.Home != "" && l.Home == homeName(n) })
}
