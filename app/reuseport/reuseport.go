// SPDX-License-Identifier: Apache-2.0

// Package reuseport has connections go to the listener of a SO_REUSEPORT group
// that is told for the receive queue and processor by which they come. A Picker
// is one group's eBPF program with its maps; it is attached to the application's
// own sockets, lives as long as the group, and needs no process of niclane's.
//
// It holds no listener: a descriptor is used and closed at once by whoever calls,
// for a listener that is held open after its application closed it swallows
// connections. What a Picker does not know is left to the kernel's hash.
package reuseport

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/load"
)

// ProgramName is how the program is found again.
const ProgramName = "niclane_listen"

// Sizes of the maps (listen.c).
const (
	MaxSockets = 1024
	maxPlaces  = 65536
)

// A Picker picks among one SO_REUSEPORT group.
type Picker struct {
	prog                                      *ebpf.Program
	socks, places, queues, cpus, devs, counts *ebpf.Map
}

// maps are the program's by name.
func (p *Picker) maps() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		"niclane_socks": &p.socks, "niclane_places": &p.places, "niclane_queues": &p.queues,
		"niclane_cpus": &p.cpus, "niclane_devs": &p.devs, "niclane_picks": &p.counts,
	}
}

// New loads a Picker that knows nothing yet.
func New() (*Picker, error) {
	spec, err := loadListen()
	if err != nil {
		return nil, err
	}
	coll, err := load.Collection(spec, ebpf.CollectionOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ProgramName, err)
	}
	defer coll.Close()
	p := &Picker{prog: coll.DetachProgram(ProgramName)}
	for name, m := range p.maps() {
		*m = coll.DetachMap(name)
	}
	return p, nil
}

// Open opens the Picker that is attached to a group, by its program's ID.
// Somebody else's program is fs.ErrNotExist.
func Open(id ebpf.ProgramID) (_ *Picker, err error) {
	p := &Picker{}
	if p.prog, err = ebpf.NewProgramFromID(id); err != nil {
		return nil, fmt.Errorf("BPF program %d: %w", id, err)
	}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	info, err := p.prog.Info()
	if err != nil {
		return nil, fmt.Errorf("BPF program %d: %w", id, err)
	}
	if info.Name != ProgramName {
		return nil, fmt.Errorf("BPF program %d is %q, not niclane's: %w", id, info.Name, fs.ErrNotExist)
	}
	ids, _ := info.MapIDs()
	want := p.maps()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, fmt.Errorf("BPF map %d: %w", id, err)
		}
		info, err := m.Info()
		if at := want[infoName(info)]; err == nil && at != nil && *at == nil {
			*at = m
			continue
		}
		m.Close()
	}
	for name, m := range want {
		if *m == nil {
			return nil, fmt.Errorf("BPF program %d has no map %s: %w", id, name, fs.ErrNotExist)
		}
	}
	return p, nil
}

func infoName(i *ebpf.MapInfo) string {
	if i == nil {
		return ""
	}
	return i.Name
}

// Close lets go of the program and its maps; the group keeps them.
func (p *Picker) Close() error {
	var errs []error
	if p.prog != nil {
		errs = append(errs, p.prog.Close())
	}
	for _, m := range p.maps() {
		if *m != nil {
			errs = append(errs, (*m).Close())
		}
	}
	return errors.Join(errs...)
}

// Attach has the group of a listening socket ask p. It replaces whatever
// program the group has: look before (package sockiter).
func (p *Picker) Attach(socket int) error {
	err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF, p.prog.FD())
	if err != nil {
		return fmt.Errorf("SO_ATTACH_REUSEPORT_EBPF: %w", err)
	}
	return nil
}

// Detach takes the program of a listening socket's group away, whatever it is
// (Linux 5.3). A group without one is no error.
func Detach(socket int) error {
	err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_DETACH_REUSEPORT_BPF, 0)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("SO_DETACH_REUSEPORT_BPF: %w", err)
	}
	return nil
}

// Sockets returns the listeners that p knows: slots by their sockets' cookies.
// One that stopped listening is not among them.
func (p *Picker) Sockets() (map[uint64]uint32, error) {
	slots := map[uint64]uint32{}
	for slot := range uint32(MaxSockets) {
		var cookie uint64
		err := p.socks.Lookup(slot, &cookie)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("niclane_socks: %w", err)
		}
		slots[cookie] = slot
	}
	return slots, nil
}

// Put makes a listening socket known in a slot that is free, 0 to
// MaxSockets-1. A socket that is in somebody's array already is EBUSY.
func (p *Picker) Put(slot uint32, socket int) error {
	if err := p.socks.Update(slot, uint64(socket), ebpf.UpdateNoExist); err != nil {
		return fmt.Errorf("niclane_socks: slot %d: %w", slot, err)
	}
	return nil
}

// Forget makes the listener in a slot unknown.
func (p *Picker) Forget(slot uint32) error {
	err := p.socks.Delete(slot)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("niclane_socks: slot %d: %w", slot, err)
	}
	return nil
}

// A Queue is a receive queue of a device.
type Queue struct{ Index, Queue uint32 }

// Tables say which slots connections go to: one of a table by a hash of the
// flow, so that a slot which is in it twice gets twice as many.
type Tables struct {
	// Devices are the indexes of those that the tables are for.
	Devices []uint32
	// Queues are for packets of a queue on the processor that it is expected
	// on, CPUs for those of other queues by the processor.
	Queues map[Queue]QueueTable
	CPUs   map[uint32][]uint32
}

// A QueueTable is that of a queue.
type QueueTable struct {
	CPU   int32
	Slots []uint32
}

// table is struct table of listen.c.
type table struct {
	First, Count uint32
	CPU          int32
}

// Set exchanges the tables. While it does, a connection can get a listener by
// the old ones or by the kernel's hash.
func (p *Picker) Set(t Tables) error {
	var places []uint32
	add := func(slots []uint32, cpu int32) table {
		x := table{First: uint32(len(places)), Count: uint32(len(slots)), CPU: cpu}
		places = append(places, slots...)
		return x
	}
	queues, cpus, devs := map[Queue]table{}, map[uint32]table{}, map[uint32]uint32{}
	for _, q := range sortedQueues(t.Queues) {
		queues[q] = add(t.Queues[q].Slots, t.Queues[q].CPU)
	}
	for cpu, slots := range t.CPUs {
		cpus[cpu] = add(slots, int32(cpu))
	}
	for _, d := range t.Devices {
		devs[d] = 1
	}
	if len(places) > maxPlaces {
		return fmt.Errorf("tables of %d places, %d fit", len(places), maxPlaces)
	}
	// No table leads to places that are being changed.
	for _, forget := range []func() error{
		func() error { return exchange(p.devs, map[uint32]uint32{}) },
		func() error { return exchange(p.queues, map[Queue]table{}) },
		func() error { return exchange(p.cpus, map[uint32]table{}) },
	} {
		if err := forget(); err != nil {
			return err
		}
	}
	for i, slot := range places {
		if err := p.places.Put(uint32(i), slot); err != nil {
			return fmt.Errorf("niclane_places: %w", err)
		}
	}
	return errors.Join(exchange(p.queues, queues), exchange(p.cpus, cpus), exchange(p.devs, devs))
}

func sortedQueues(m map[Queue]QueueTable) []Queue {
	return slices.SortedFunc(maps.Keys(m), func(a, b Queue) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Queue, b.Queue))
	})
}

// exchange makes m's content want.
func exchange[K comparable, V any](m *ebpf.Map, want map[K]V) error {
	var k K
	var v V
	var extra []K
	for it := m.Iterate(); it.Next(&k, &v); {
		if _, ok := want[k]; !ok {
			extra = append(extra, k)
		}
	}
	for _, k := range extra {
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	for k, v := range want {
		if err := m.Put(k, v); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	return nil
}

// Counts are how connections were given a listener since the program was
// loaded.
type Counts struct {
	// Queue and CPU are by those tables, Hash by the kernel's hash.
	Queue, CPU, Hash uint64
}

// Counts reads them.
func (p *Picker) Counts() (Counts, error) {
	var sums [3]uint64
	for how := range sums {
		var each []uint64
		if err := p.counts.Lookup(uint32(how), &each); err != nil {
			return Counts{}, fmt.Errorf("niclane_picks: %w", err)
		}
		for _, n := range each {
			sums[how] += n
		}
	}
	return Counts{Queue: sums[0], CPU: sums[1], Hash: sums[2]}, nil
}
