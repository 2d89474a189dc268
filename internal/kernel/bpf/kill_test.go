// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

// TestKilled: a process that is killed between two system calls leaves maps that lead no packet
// to a wrong lane. The next process can still add and remove entries, and no pattern is lost.
func TestKilled(t *testing.T) {
	p, m := loadXDP(t, true)
	addQueue(t, m)
	fillXDP(t, m, 1, func(int) uint32 { return 0 })
	b := frame(0x800, ipv4(6, four2, four, 0, 0, ports(4000, 11211)))
	f, mask, err := flow.Encode(classes["1:10"])
	must.Do(t, err)
	check := func(what string, want uint32) {
		t.Helper()
		if got := runXDP(t, p, b, 0, 0); got != want {
			t.Errorf("%s: returned %d, want %d", what, got, want)
		}
		again := table[ingressTarget]{inUse: m.inUse, patterns: m.patterns, flows: m.flows}
		_, ok, err := again.get(f, mask)
		if ok != (want == xdpRedirect) || err != nil {
			t.Errorf("%s: read %v, %v", what, ok, err)
		}
	}
	// The steps of adding an entry. After each step, the test goes on as a new process.
	key := flow.Key{Flow: f}
	parts := []func() error{
		func() error { return m.setPattern(0, pattern{Mask: mask, Used: 1, Rank: rank(mask)}) },
		func() error { return m.setInUse(0, true) },
		func() error { return m.flows.Update(key, ingressTarget{Lane: 10}, ebpf.UpdateNoExist) },
	}
	for n := range parts {
		for _, part := range parts[:n] {
			must.Do(t, part())
		}
		m.known, m.bits = nil, nil
		check(fmt.Sprintf("%d parts of adding", n), xdpPass)
		must.Do(t, m.add(f, mask, ingressTarget{Lane: 10}))
		check("added", xdpRedirect)
		must.Do(t, m.remove(f, mask))
		check("removed", xdpPass)
		m.known, m.bits = nil, nil
	}
	// All slots have a count that is too high. add finds that when it needs a slot.
	for slot := range maxPatterns {
		if err := m.setPattern(slot, pattern{Mask: flow.Flow{Family: 0xff, RemotePort: [2]byte{0, byte(slot)}}, Used: 3,
			Rank: 9}); err != nil {
			t.Fatal(err)
		}
	}
	m.known, m.bits = nil, nil
	for range 2 {
		must.Do(t, m.add(f, mask, ingressTarget{Lane: 10}))
		check("added to full slots", xdpRedirect)
		must.Refuse(t, "adding twice", m.add(f, mask, ingressTarget{Lane: 10}), ebpf.ErrKeyExist)
		must.Do(t, m.remove(f, mask))
	}
	var bits uint32
	if err := m.inUse.Lookup(uint32(0), &bits); err != nil || bits != 0 {
		t.Errorf("patterns in use at the end: %#x, %v", bits, err)
	}
}

// TestLaneIsFull: a program that reads a lane during a write may see the old count with the new
// CPUs, or the reverse. So each place of the array must have a CPU of the lane.
func TestLaneIsFull(t *testing.T) {
	for _, cpus := range [][]int{{3}, {1, 2, 5}, make([]int, maxCPUs)} {
		l, err := encodeLane(device.CPULane{Dev: "v0", Lane: 1, CPUs: cpus})
		must.Do(t, err)
		for i, cpu := range l.CPUs {
			if !slices.Contains(cpus, int(cpu)) {
				t.Errorf("CPUs %v: place %d has %d", cpus, i, cpu)
			}
		}
	}
}
