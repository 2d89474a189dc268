// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/device"
)

// readDefault returns a classifier's queues for what no entry matches, nil if
// it has none.
func (c *Client) readDefault(d device.FilterDefault) (device.Object, error) {
	m, err := c.filterOf(d.Filter)
	if m == nil || err != nil {
		return nil, err
	}
	v, err := m.rest()
	if v == nil || err != nil {
		return nil, err
	}
	return *v, nil
}

func (m *maps) rest() (*device.FilterDefault, error) {
	var t egressTarget
	if err := m.defaults.Lookup(uint32(0), &t); err != nil {
		return nil, fmt.Errorf("%s: %w", m.filter.Key(), err)
	}
	if t.Queues == 0 {
		return nil, nil
	}
	e := decodeTarget(t, device.FilterEntry{})
	return &device.FilterDefault{Filter: m.filter.Key(), Queues: e.Queues}, nil
}

func (c *Client) writeDefault(new device.Object, d device.FilterDefault) error {
	var t egressTarget
	if new != nil {
		var err error
		if t, err = encodeTarget(device.FilterEntry{Queues: d.Queues}); err != nil {
			return err
		}
	}
	m, err := c.filterOf(d.Filter)
	if err != nil {
		return err
	}
	if m == nil {
		return fmt.Errorf("%w: its filter is not there", unix.ENOENT)
	}
	return m.defaults.Update(uint32(0), t, ebpf.UpdateExist)
}

// filterOf finds the maps of the filter with a key, nil if it is not there.
func (c *Client) filterOf(key string) (*maps, error) {
	f, err := parseFilterKey(key)
	if err != nil {
		return nil, err
	}
	return c.open(f)
}

// Defaults returns, of niclane's own classifiers on a device, the queues for
// what no entry matches.
func (c *Client) Defaults(dev string) ([]device.FilterDefault, error) {
	var out []device.FilterDefault
	err := c.eachFilter(dev, func(m *maps) error {
		v, err := m.rest()
		if v != nil {
			out = append(out, *v)
		}
		return err
	})
	return out, err
}
