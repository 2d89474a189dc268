// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

const (
	maxPatterns   = 16 // MAX_PATTERNS
	sizeofPattern = uint32(unsafe.Sizeof(pattern{}))
	sizeofFlowKey = uint32(unsafe.Sizeof(flow.Key{}))
)

// A table is the set of maps in which one attached program looks up flows (c/flow.h). T is
// the target of a flow. While niclane's lock is held, no other process of niclane changes it.
// The program finds a flow if the flow's pattern, the pattern's bit in inUse and the flow
// itself are there. write adds them in this order and removes them in reverse, each by one
// system call. So a killed process leaves maps that give no packet a wrong target.
type table[T any] struct {
	inUse    *ebpf.Map
	patterns *ebpf.Map
	flows    *ebpf.Map

	// former says that the program is of a version with a target of formerTarget bytes: the first
	// bytes of T.
	former bool

	known *[maxPatterns]pattern // contents of patterns, once read
	bits  *uint32               // contents of inUse, once read
}

func (t *table[T]) close() error {
	return errors.Join(t.inUse.Close(), t.patterns.Close(), t.flows.Close())
}

// take stores m if it is a map that the table needs and does not have yet. It reports whether
// it has stored m.
func (t *table[T]) take(m *ebpf.Map, info *ebpf.MapInfo) bool {
	var value T
	isFormer := info.ValueSize == formerTarget && unsafe.Sizeof(value) > formerTarget
	var to **ebpf.Map
	switch {
	case info.Name == egressMapNlInUse && info.ValueSize == 4:
		to = &t.inUse
	case info.Name == egressMapNlPatterns && info.ValueSize == sizeofPattern:
		to = &t.patterns
	case info.Name == egressMapNlFlows && info.KeySize == sizeofFlowKey &&
		(info.ValueSize == uint32(unsafe.Sizeof(value)) || isFormer):
		to = &t.flows
		t.former = isFormer
	}
	if to == nil || *to != nil {
		return false
	}
	*to = m
	return true
}

func (t *table[T]) complete() bool { return t.inUse != nil && t.patterns != nil && t.flows != nil }

func (t *table[T]) pattern(slot int) (pattern, error) {
	if t.known == nil {
		var all [maxPatterns]pattern
		for i := range all {
			if err := t.patterns.Lookup(uint32(i), &all[i]); err != nil {
				return pattern{}, err
			}
		}
		t.known = &all
	}
	return t.known[slot], nil
}

func (t *table[T]) setPattern(slot int, p pattern) error {
	if err := t.patterns.Update(uint32(slot), p, ebpf.UpdateExist); err != nil {
		t.known = nil
		return err
	}
	if t.known != nil {
		t.known[slot] = p
	}
	return nil
}

// setInUse sets or clears a pattern's bit, if it has not that value already.
func (t *table[T]) setInUse(slot int, used bool) error {
	if t.bits == nil {
		bits := uint32(0)
		if err := t.inUse.Lookup(uint32(0), &bits); err != nil {
			return err
		}
		t.bits = &bits
	}
	want := *t.bits &^ (1 << slot)
	if used {
		want |= 1 << slot
	}
	if want == *t.bits {
		return nil
	}
	if err := t.inUse.Update(uint32(0), want, ebpf.UpdateExist); err != nil {
		t.bits = nil
		return err
	}
	*t.bits = want
	return nil
}

// find returns the slot whose pattern is mask, or -1 if there is none.
func (t *table[T]) find(mask flow.Flow) (slot int, p pattern, err error) {
	for slot := range maxPatterns {
		p, err := t.pattern(slot)
		if err != nil {
			return -1, p, err
		}
		if p.Used > 0 && p.Mask == mask {
			return slot, p, nil
		}
	}
	return -1, pattern{}, nil
}

// get returns the target of a flow; ok is false if there is no such flow.
func (t *table[T]) get(f, mask flow.Flow) (v T, ok bool, err error) {
	slot, _, err := t.find(mask)
	if err != nil || slot < 0 {
		return v, false, err
	}
	err = t.flows.Lookup(flow.Key{Pattern: uint64(slot), Flow: f}, t.stored(&v))
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return v, false, nil
	}
	return v, err == nil, err
}

// formerTarget is the size of a target of the classifier before version 0.2.
const formerTarget = 8

// stored returns the memory of v that the map has.
func (t *table[T]) stored(v *T) []byte {
	size := unsafe.Sizeof(*v)
	if t.former {
		size = formerTarget
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), size)
}

// entries returns the contents of a table's map of flows.
func (t *table[T]) entries(flows *ebpf.Map) ([]flow.Key, []T, error) {
	if !t.former {
		return flow.Entries[T](flows)
	}
	keys, short, err := flow.Entries[[formerTarget]byte](flows)
	values := make([]T, len(short))
	for i := range short {
		copy(t.stored(&values[i]), short[i][:])
	}
	return keys, values, err
}

func (t *table[T]) add(f, mask flow.Flow, v T) error {
	slot, p, err := t.find(mask)
	if err == nil && slot < 0 {
		slot, err = t.free()
		p = pattern{Mask: mask, Rank: rank(mask)}
	}
	if err != nil {
		return err
	}
	p.Used++
	if err := t.setPattern(slot, p); err != nil {
		return err
	}
	if err := t.setInUse(slot, true); err != nil {
		return err
	}
	if err := t.flows.Update(flow.Key{Pattern: uint64(slot), Flow: f}, t.stored(&v), ebpf.UpdateNoExist); err != nil {
		p.Used--
		return errors.Join(err, t.lower(slot, p))
	}
	return nil
}

func (t *table[T]) change(f, mask flow.Flow, v T) error {
	slot, _, err := t.find(mask)
	if err != nil {
		return err
	}
	if slot < 0 {
		return unix.ENOENT
	}
	return t.flows.Update(flow.Key{Pattern: uint64(slot), Flow: f}, t.stored(&v), ebpf.UpdateExist)
}

func (t *table[T]) remove(f, mask flow.Flow) error {
	slot, p, err := t.find(mask)
	if err != nil {
		return err
	}
	if slot < 0 {
		return unix.ENOENT
	}
	if err := t.flows.Delete(flow.Key{Pattern: uint64(slot), Flow: f}); err != nil {
		return err
	}
	p.Used--
	return t.lower(slot, p)
}

// write changes a flow's entry from old to next; nil means absent.
func (t *table[T]) write(old, next device.Object, f, mask flow.Flow, v T) error {
	switch {
	case next == nil:
		return t.remove(f, mask)
	case old != nil:
		return t.change(f, mask, v)
	}
	return t.add(f, mask, v)
}

// lower writes a pattern after one of its flows was removed.
func (t *table[T]) lower(slot int, p pattern) error {
	if p.Used > 0 {
		return t.setPattern(slot, p)
	}
	if err := t.setInUse(slot, false); err != nil {
		return err
	}
	return t.setPattern(slot, pattern{})
}

// free returns a slot without a pattern. If there is none, it counts the flows of each
// pattern again, because a killed process may have left a count too high.
func (t *table[T]) free() (int, error) {
	for range 2 {
		for slot := range maxPatterns {
			p, err := t.pattern(slot)
			if err != nil {
				return -1, err
			}
			if p.Used == 0 {
				return slot, nil
			}
		}
		if err := t.recount(); err != nil {
			return -1, err
		}
	}
	return -1, fmt.Errorf("%w: the entries already compare %d different sets of fields, the maximum", unix.ENOSPC,
		maxPatterns)
}

func (t *table[T]) recount() error {
	keys, _, err := t.entries(t.flows)
	if err != nil {
		return err
	}
	var used [maxPatterns]uint32
	for _, k := range keys {
		if k.Pattern < maxPatterns {
			used[k.Pattern]++
		}
	}
	for slot, n := range used {
		p, err := t.pattern(slot)
		if err != nil {
			return err
		}
		p.Used = n
		if err := t.lower(slot, p); err != nil {
			return err
		}
	}
	return nil
}

// reader returns a function that reads the match and the target of each flow, in no particular
// order. Callers must call the function once. It works on any thread, and also after the table
// was changed or closed.
func (t *table[T]) reader() (func() ([]device.Match, []T, error), error) {
	var patterns [maxPatterns]pattern
	for slot := range patterns {
		p, err := t.pattern(slot)
		if err != nil {
			return nil, err
		}
		patterns[slot] = p
	}
	flows, err := t.flows.Clone()
	if err != nil {
		return nil, err
	}
	return func() ([]device.Match, []T, error) {
		defer flows.Close()
		keys, values, err := t.entries(flows)
		if err != nil {
			return nil, nil, err
		}
		matches := make([]device.Match, len(keys))
		for i, k := range keys {
			if k.Pattern >= maxPatterns {
				return nil, nil, fmt.Errorf("map entry of pattern %d", k.Pattern)
			}
			if matches[i], err = flow.Decode(k.Flow, patterns[k.Pattern].Mask); err != nil {
				return nil, nil, err
			}
		}
		return matches, values, nil
	}, nil
}
