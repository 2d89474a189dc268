// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// egressRest is struct rest of egress.c.
type egressRest struct {
	Queue, Queues uint16
	Lanes         uint32 // one bit for each priority
}

// firstLanePriority and lastLanePriority are the lowest and the highest priority of a lane
// under mqprio (PRIORITY in egress.c). Priority 0 is the default lane's.
const firstLanePriority, lastLanePriority = 1, 15

func encodeRest(d device.FilterDefault) (egressRest, error) {
	var r egressRest
	if len(d.Queues)+len(d.Lanes) == 0 {
		return r, fmt.Errorf("%w: neither queues nor lanes", unix.EINVAL)
	}
	var err error
	if r.Queue, r.Queues, err = encodeQueues(d.Queues); err != nil {
		return r, err
	}
	for _, p := range d.Lanes {
		if p < firstLanePriority || p > lastLanePriority {
			return r, fmt.Errorf("%w: priority %d: want %d to %d", unix.EINVAL, p, firstLanePriority, lastLanePriority)
		}
		r.Lanes |= 1 << p
	}
	return r, nil
}

// decodeRest is the inverse of encodeRest. It returns nil if r has no queues and no lanes.
func decodeRest(r egressRest, filter string) *device.FilterDefault {
	d := device.FilterDefault{Filter: filter, Queues: decodeQueues(r.Queue, r.Queues)}
	for p := firstLanePriority; p <= lastLanePriority; p++ {
		if r.Lanes>>p&1 != 0 {
			d.Lanes = append(d.Lanes, p)
		}
	}
	if len(d.Queues)+len(d.Lanes) == 0 {
		return nil
	}
	return &d
}

// readDefault returns the target of packets that match no entry, or nil if the classifier
// leaves them alone.
func (c *Client) readDefault(d device.FilterDefault) (device.Object, error) {
	m, err := c.filterOf(d.Filter)
	if m == nil || err != nil {
		return nil, err
	}
	return objectOf(m.rest())
}

func (m *maps) rest() (*device.FilterDefault, error) {
	var r egressRest
	if err := m.defaults.Lookup(uint32(0), &r); err != nil {
		return nil, fmt.Errorf("%s: %w", m.filter.Key(), err)
	}
	return decodeRest(r, m.filter.Key()), nil
}

func (c *Client) writeDefault(next device.Object, d device.FilterDefault) error {
	var r egressRest
	if next != nil {
		var err error
		if r, err = encodeRest(d); err != nil {
			return err
		}
	}
	m, err := c.haveFilter(d.Filter)
	if err != nil {
		return err
	}
	return m.defaults.Update(uint32(0), r, ebpf.UpdateExist)
}

// filterOf returns the maps of the filter with the given key, or nil if there is none.
func (c *Client) filterOf(key string) (*maps, error) {
	f, err := parseFilterKey(key)
	if err != nil {
		return nil, err
	}
	return c.open(f)
}

// haveFilter is filterOf, but a missing filter is an error.
func (c *Client) haveFilter(key string) (*maps, error) {
	m, err := c.filterOf(key)
	if m == nil && err == nil {
		err = fmt.Errorf("%w: its filter is not there", unix.ENOENT)
	}
	return m, err
}
