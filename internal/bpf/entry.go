// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/internal/tc"
	"github.com/niclane/niclane/internal/tuple"
)

const (
	maxPatterns   = 16 // MAX_PATTERNS
	sizeofPattern = uint32(unsafe.Sizeof(pattern{}))
	sizeofFlowKey = uint32(unsafe.Sizeof(tuple.Key{}))
)

// parseFilterKey is the inverse of device.Filter.Key.
func parseFilterKey(key string) (device.Filter, error) {
	f := strings.Split(key, "/")
	if len(f) == 5 && f[0] == "filter" {
		pref, err1 := strconv.ParseUint(f[3], 10, 16)
		handle, err2 := strconv.ParseUint(f[4], 10, 32)
		if err1 == nil && err2 == nil {
			return device.Filter{Dev: f[1], Parent: f[2], Pref: uint16(pref), Handle: uint32(handle), Program: EgressProgram}, nil
		}
	}
	return device.Filter{}, fmt.Errorf("filter key %q: want filter/DEV/PARENT/PREF/HANDLE", key)
}

func (c *Client) readEntry(e device.FilterEntry) (device.Object, error) {
	filter, err := parseFilterKey(e.Filter)
	if err != nil {
		return nil, err
	}
	f, mask, err := tuple.Encode(e.Match)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Key(), err)
	}
	m, err := c.open(filter)
	if m == nil || err != nil {
		return nil, err
	}
	slot, _, err := m.find(mask)
	if err != nil || slot < 0 {
		return nil, err
	}
	var class uint32
	err = m.flows.Lookup(tuple.Key{Pattern: uint64(slot), Flow: f}, &class)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Key(), err)
	}
	e.Priority = tc.FormatHandle(class)
	return e, nil
}

func (c *Client) writeEntry(old, new device.Object, e device.FilterEntry) error {
	filter, err := parseFilterKey(e.Filter)
	if err != nil {
		return err
	}
	f, mask, err := tuple.Encode(e.Match)
	if err != nil {
		return err
	}
	m, err := c.open(filter)
	if err != nil {
		return err
	}
	if m == nil {
		return fmt.Errorf("%w: its filter is not there", unix.ENOENT)
	}
	switch {
	case new == nil:
		return m.remove(f, mask)
	default:
		class, err := tc.ParseHandle(e.Priority)
		if err == nil && class&0xffff == 0 {
			err = fmt.Errorf("%w: priority %q names no class", unix.EINVAL, e.Priority)
		}
		if err != nil {
			return err
		}
		if old != nil {
			return m.change(f, mask, class)
		}
		return m.add(f, mask, class)
	}
}

func (m *maps) pattern(slot int) (pattern, error) {
	if m.known == nil {
		var all [maxPatterns]pattern
		for i := range all {
			if err := m.patterns.Lookup(uint32(i), &all[i]); err != nil {
				return pattern{}, err
			}
		}
		m.known = &all
	}
	return m.known[slot], nil
}

func (m *maps) setPattern(slot int, p pattern) error {
	if err := m.patterns.Update(uint32(slot), p, ebpf.UpdateExist); err != nil {
		m.known = nil
		return err
	}
	if m.known != nil {
		m.known[slot] = p
	}
	return nil
}

// find returns the slot whose pattern is mask, -1 if there is none.
func (m *maps) find(mask tuple.Flow) (slot int, p pattern, err error) {
	for slot := range maxPatterns {
		p, err := m.pattern(slot)
		if err != nil {
			return -1, p, err
		}
		if p.Used > 0 && p.Mask == mask {
			return slot, p, nil
		}
	}
	return -1, pattern{}, nil
}

func (m *maps) add(f, mask tuple.Flow, class uint32) error {
	slot, p, err := m.find(mask)
	if err == nil && slot < 0 {
		slot, err = m.free()
		p = pattern{Mask: mask, Rank: rank(mask)}
	}
	if err != nil {
		return err
	}
	p.Used++
	if err := m.setPattern(slot, p); err != nil {
		return err
	}
	return m.flows.Update(tuple.Key{Pattern: uint64(slot), Flow: f}, class, ebpf.UpdateNoExist)
}

func (m *maps) change(f, mask tuple.Flow, class uint32) error {
	slot, _, err := m.find(mask)
	if err != nil {
		return err
	}
	if slot < 0 {
		return unix.ENOENT
	}
	return m.flows.Update(tuple.Key{Pattern: uint64(slot), Flow: f}, class, ebpf.UpdateExist)
}

func (m *maps) remove(f, mask tuple.Flow) error {
	slot, p, err := m.find(mask)
	if err != nil {
		return err
	}
	if slot < 0 {
		return unix.ENOENT
	}
	if err := m.flows.Delete(tuple.Key{Pattern: uint64(slot), Flow: f}); err != nil {
		return err
	}
	if p.Used--; p.Used == 0 {
		p = pattern{}
	}
	return m.setPattern(slot, p)
}

// free returns a slot without a pattern. If none is left, those are counted
// anew whose count a kill may have left too high.
func (m *maps) free() (int, error) {
	for range 2 {
		for slot := range maxPatterns {
			p, err := m.pattern(slot)
			if err != nil {
				return -1, err
			}
			if p.Used == 0 {
				return slot, nil
			}
		}
		if err := m.recount(); err != nil {
			return -1, err
		}
	}
	return -1, fmt.Errorf("%w: the entries compare %d different sets of fields, which is the most", unix.ENOSPC, maxPatterns)
}

func (m *maps) recount() error {
	var used [maxPatterns]uint32
	var k tuple.Key
	var class uint32
	it := m.flows.Iterate()
	for it.Next(&k, &class) {
		if k.Pattern < maxPatterns {
			used[k.Pattern]++
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	for slot, n := range used {
		p, err := m.pattern(slot)
		if err != nil {
			return err
		}
		if p.Used = n; n == 0 {
			p = pattern{}
		}
		if err := m.setPattern(slot, p); err != nil {
			return err
		}
	}
	return nil
}

// Entries returns the entries of niclane's own classifiers on a device, by
// key.
func (c *Client) Entries(dev string) ([]device.FilterEntry, error) {
	filters, err := c.tc.Filters(dev)
	if err != nil {
		return nil, err
	}
	var out []device.FilterEntry
	for _, s := range filters {
		if s.Type != "bpf" || !strings.HasPrefix(s.Name, prefix) {
			continue
		}
		m, err := c.open(s.Filter)
		if errors.Is(err, errNotOurs) || err == nil && m == nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		entries, err := m.entries()
		if err != nil {
			return nil, err
		}
		out = append(out, entries...)
	}
	slices.SortFunc(out, func(a, b device.FilterEntry) int { return cmp.Compare(a.Key(), b.Key()) })
	return out, nil
}

func (m *maps) entries() ([]device.FilterEntry, error) {
	var patterns [maxPatterns]pattern
	for slot := range patterns {
		p, err := m.pattern(slot)
		if err != nil {
			return nil, err
		}
		patterns[slot] = p
	}
	var out []device.FilterEntry
	var k tuple.Key
	var class uint32
	it := m.flows.Iterate()
	for it.Next(&k, &class) {
		if k.Pattern >= maxPatterns {
			return nil, fmt.Errorf("%s: map entry of pattern %d", m.filter.Key(), k.Pattern)
		}
		match, err := tuple.Decode(k.Flow, patterns[k.Pattern].Mask)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.filter.Key(), err)
		}
		out = append(out, device.FilterEntry{Filter: m.filter.Key(), Match: match, Priority: tc.FormatHandle(class)})
	}
	return out, it.Err()
}
