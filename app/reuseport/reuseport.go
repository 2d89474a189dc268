// SPDX-License-Identifier: Apache-2.0

// Package reuseport chooses a listener of a SO_REUSEPORT group by the receive queue and processor
// on which a connection arrives. A Picker is an eBPF program for one group, with its maps. It is
// attached to the application's own sockets, lasts as long as the group, and needs no process of
// niclane.
//
// The package keeps no listener open, and its callers close their descriptor of a listener at once.
// If such a descriptor were still open when the application closes the listener, the kernel would
// go on to give the listener connections, and nothing would accept them. If a Picker has no table
// for a connection, the kernel's hash chooses.
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

// ProgramName is the program's name, by which Open recognises it.
const ProgramName = "niclane_listen"

// Sizes of the maps (listen.c).
const (
	MaxSockets = 1024
	maxPlaces  = 65536
)

// A Picker is the eBPF program of one SO_REUSEPORT group, with its maps.
type Picker struct {
	prog                                      *ebpf.Program
	socks, places, queues, cpus, devs, counts *ebpf.Map
}

// maps returns a pointer to each field of p that is a map. Keys are the names of the maps.
func (p *Picker) maps() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		"niclane_socks": &p.socks, "niclane_places": &p.places, "niclane_queues": &p.queues,
		"niclane_cpus": &p.cpus, "niclane_devs": &p.devs, "niclane_picks": &p.counts,
	}
}

// New loads a Picker with empty tables.
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

// Open opens the Picker of a group. id is the ID of the group's program. If that program is not
// niclane's, the error is fs.ErrNotExist.
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

// Close closes p's descriptors. The program and the maps stay if a group uses them.
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

// Attach attaches p to the group of a listening socket. It replaces the program that the group has,
// if any. So the caller must check first that no other owner attached one (package sockiter).
func (p *Picker) Attach(socket int) error {
	err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF, p.prog.FD())
	if err != nil {
		return fmt.Errorf("SO_ATTACH_REUSEPORT_EBPF: %w", err)
	}
	return nil
}

// Detach removes the program from the group of a listening socket (Linux 5.3), even if another
// owner attached it. It is no error if the group has none.
func Detach(socket int) error {
	err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_DETACH_REUSEPORT_BPF, 0)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("SO_DETACH_REUSEPORT_BPF: %w", err)
	}
	return nil
}

// Sockets returns the slot of each listener in p. Keys are socket cookies. Sockets that no longer
// listen are left out.
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

// Put stores a listening socket in a free slot, 0 to MaxSockets-1. If this Picker or another one
// has the socket already, the error is EBUSY.
func (p *Picker) Put(slot uint32, socket int) error {
	if err := p.socks.Update(slot, uint64(socket), ebpf.UpdateNoExist); err != nil {
		return fmt.Errorf("niclane_socks: slot %d: %w", slot, err)
	}
	return nil
}

// Forget empties a slot. A slot that is already empty is no error.
func (p *Picker) Forget(slot uint32) error {
	err := p.socks.Delete(slot)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("niclane_socks: slot %d: %w", slot, err)
	}
	return nil
}

// A Queue is a receive queue of a device.
type Queue struct{ Index, Queue uint32 }

// Tables say which slots connections go to. A hash of the connection chooses one entry of a table.
// If a slot has two entries, it gets twice as many connections as a slot with one.
type Tables struct {
	// Devices are the interface indexes to which the tables apply.
	Devices []uint32
	// Queues has the tables for packets that arrive at a queue and on that queue's expected processor.
	// CPUs has the tables for all other packets, by processor.
	Queues map[Queue]QueueTable
	CPUs   map[uint32][]uint32
}

// A QueueTable is the table of a queue, with the processor on which its packets are expected.
type QueueTable struct {
	CPU   int32
	Slots []uint32
}

// table corresponds to struct table of listen.c.
type table struct {
	First, Count uint32
	CPU          int32
}

// Set replaces the tables. While it does, a connection may get its listener by the old tables or by
// the kernel's hash.
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
		return fmt.Errorf("found tables of %d places, want at most %d", len(places), maxPlaces)
	}
	// Empty the other tables first, because none of them may refer to places while places change.
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

// exchange sets the content of m to want.
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

// Counts has the numbers of connections since the program was loaded, by how their listener was
// chosen.
type Counts struct {
	// Queue and CPU count the choices by Tables.Queues and Tables.CPUs, Hash those by the kernel's
	// hash.
	Queue, CPU, Hash uint64
}

// Counts reads the counters.
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
