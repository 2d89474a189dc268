// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

// parseFilterKey is the inverse of device.Filter.Key.
func parseFilterKey(key string) (device.Filter, error) {
	f := strings.Split(key, "/")
	if len(f) == 5 && f[0] == "filter" {
		pref, err1 := strconv.ParseUint(f[3], 10, 16)
		handle, err2 := strconv.ParseUint(f[4], 10, 32)
		if err1 == nil && err2 == nil {
			return device.Filter{Dev: f[1], Parent: f[2], Pref: uint16(pref), Handle: uint32(handle),
				Program: EgressProgram}, nil
		}
	}
	return device.Filter{}, fmt.Errorf("filter key %q: want filter/DEV/PARENT/PREF/HANDLE", key)
}

func (c *Client) readEntry(e device.FilterEntry) (device.Object, error) {
	f, mask, err := flow.Encode(e.Match)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Key(), err)
	}
	m, err := c.filterOf(e.Filter)
	if m == nil || err != nil {
		return nil, err
	}
	t, ok, err := m.get(f, mask)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Key(), err)
	}
	if !ok {
		return nil, nil
	}
	return decodeTarget(t, e), nil
}

func (c *Client) writeEntry(old, next device.Object, e device.FilterEntry) error {
	f, mask, err := flow.Encode(e.Match)
	if err != nil {
		return err
	}
	var t egressTarget
	if next != nil {
		if t, err = encodeTarget(e); err != nil {
			return err
		}
	}
	m, err := c.haveFilter(e.Filter)
	if err != nil {
		return err
	}
	if m.former && (t.DSCP != 0 || t.PCP != 0 || t.Lane != 0 || next != nil && e.Unshaped()) {
		return fmt.Errorf("%w: an older version of niclane attached this classifier, which knows neither DSCP nor "+
			"PCP, unshaped networks nor departure times: roll back, then apply again", unix.EOPNOTSUPP)
	}
	return m.write(old, next, f, mask, t)
}

// eachFilter calls f for each of niclane's own classifiers on a device.
func (c *Client) eachFilter(dev string, f func(*maps) error) error {
	filters, err := c.tc.Filters(dev)
	if err != nil {
		return err
	}
	filters = append(filters, device.FilterState{
		Filter: device.Filter{Dev: dev, Parent: TCXEgress, Program: EgressProgram}, Type: "bpf", Name: EgressProgram,
	})
	for _, s := range filters {
		if s.Type != "bpf" || !strings.HasPrefix(s.Name, prefix) {
			continue
		}
		c.uses = maxUses // look the program up again: another program may have replaced it
		m, err := c.open(s.Filter)
		if errors.Is(err, errNotOurs) || err == nil && m == nil {
			continue
		}
		if err != nil {
			return err
		}
		if err := f(m); err != nil {
			return err
		}
	}
	return nil
}

// lister returns a function that reads all entries. Like that of reader, it works on any
// thread.
func (m *maps) lister() (func() ([]device.FilterEntry, error), error) {
	key := m.filter.Key()
	read, err := m.reader()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return func() ([]device.FilterEntry, error) {
		matches, targets, err := read()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		out := make([]device.FilterEntry, len(matches))
		var e device.FilterEntry
		for i, t := range targets {
			if i == 0 || t != targets[i-1] { // members of one lane have the same target
				e = decodeTarget(t, device.FilterEntry{Filter: key})
			}
			out[i] = e
			out[i].Match = matches[i]
		}
		return out, nil
	}, nil
}

// entriesOf returns the entries of one filter, or none if it is not attached.
func (c *Client) entriesOf(key string) ([]device.FilterEntry, error) {
	m, err := c.filterOf(key)
	if m == nil || err != nil {
		return nil, err
	}
	return listed(m.lister())
}

// listed takes the results of lister. It returns the result of list, or err if err is not nil.
func listed[T any](list func() ([]T, error), err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	return list()
}
