// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

const (
	maxLanes = 64 // MAX_LANES; 0 is no lane
	maxCPUs  = 64 // MAX_CPUS
)

// lane is struct lane of ingress.c.
type lane struct {
	Count uint32 // 0: the lane does not exist
	// CPUs repeats the lane's CPUs until it is full. The kernel writes an array's entry byte by
	// byte, while programs read it. Because CPUs is full, any mix of the old and the new entry
	// leads to a CPU of the old lane or of the new lane.
	CPUs [maxCPUs]uint32
}

func encodeLane(l device.CPULane) (v lane, err error) {
	if len(l.CPUs) == 0 || len(l.CPUs) > maxCPUs {
		return v, fmt.Errorf("%w: %d CPUs: want 1 to %d", unix.EINVAL, len(l.CPUs), maxCPUs)
	}
	v.Count = uint32(len(l.CPUs))
	for i := range v.CPUs {
		v.CPUs[i] = uint32(l.CPUs[i%len(l.CPUs)])
	}
	return v, nil
}

func checkLane(n int) error {
	if n < 1 || n >= maxLanes {
		return fmt.Errorf("%w: lane %d: want 1 to %d", unix.EINVAL, n, maxLanes-1)
	}
	return nil
}

func (m *xdpMaps) lane(n int) (*device.CPULane, error) {
	var v lane
	if err := m.lanes.Lookup(uint32(n), &v); err != nil {
		return nil, fmt.Errorf("lane %d of %s: %w", n, m.dev, err)
	}
	if v.Count == 0 || v.Count > maxCPUs {
		return nil, nil
	}
	l := &device.CPULane{Dev: m.dev, Lane: n}
	for _, cpu := range v.CPUs[:v.Count] {
		l.CPUs = append(l.CPUs, int(cpu))
	}
	return l, nil
}

func (c *Client) readCPULane(l device.CPULane) (device.Object, error) {
	if err := checkLane(l.Lane); err != nil {
		return nil, fmt.Errorf("%s: %w", l.Key(), err)
	}
	m, err := c.openXDP(l.Dev)
	if m == nil || err != nil {
		return nil, err
	}
	return objectOf(m.lane(l.Lane))
}

func (c *Client) writeCPULane(old, next device.Object, l device.CPULane) error {
	if err := checkLane(l.Lane); err != nil {
		return err
	}
	var v lane
	var err error
	if next != nil {
		if v, err = encodeLane(l); err != nil {
			return err
		}
	}
	m, err := c.haveXDP(l.Dev)
	if err != nil {
		return err
	}
	present, err := m.lane(l.Lane)
	switch {
	case err != nil:
		return err
	case old == nil && present != nil:
		return unix.EEXIST
	case old != nil && present == nil:
		return unix.ENOENT
	case next == nil:
		// Only the count changes: a program that still reads the CPUs finds the old ones.
		if v, err = encodeLane(*present); err != nil {
			return err
		}
		v.Count = 0
	}
	for _, cpu := range v.CPUs[:v.Count] {
		if q, err := m.queue(int(cpu)); err != nil || q == nil {
			return errors.Join(err, fmt.Errorf("%w: CPU %d has no queue in %s's cpumap", unix.ENOENT, cpu, l.Dev))
		}
	}
	return m.lanes.Update(uint32(l.Lane), v, ebpf.UpdateExist)
}

// used returns the lanes that exist, by number.
func (m *xdpMaps) used() ([]device.CPULane, error) {
	return present(1, maxLanes, m.lane)
}

func (c *Client) readXDPEntry(e device.XDPEntry) (device.Object, error) {
	f, mask, err := flow.Encode(e.Match)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Key(), err)
	}
	m, err := c.openXDP(e.Dev)
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
	e.Lane = int(t.Lane)
	return e, nil
}

func (c *Client) writeXDPEntry(old, next device.Object, e device.XDPEntry) error {
	f, mask, err := flow.Encode(e.Match)
	if err == nil && next != nil {
		err = checkLane(e.Lane)
	}
	if err != nil {
		return err
	}
	m, err := c.haveXDP(e.Dev)
	if err != nil {
		return err
	}
	return m.write(old, next, f, mask, ingressTarget{Lane: uint32(e.Lane)})
}

// xdpEntriesOf returns the entries of niclane's XDP program on a device, or none if the
// program is not attached.
func (c *Client) xdpEntriesOf(dev string) ([]device.XDPEntry, error) {
	m, err := c.openXDP(dev)
	if m == nil || err != nil {
		return nil, err
	}
	return listed(m.lister())
}

// lister returns a function that reads all entries. Like that of reader, it works on any
// thread.
func (m *xdpMaps) lister() (func() ([]device.XDPEntry, error), error) {
	dev := m.dev
	read, err := m.reader()
	if err != nil {
		return nil, fmt.Errorf("XDP entries of %s: %w", dev, err)
	}
	return func() ([]device.XDPEntry, error) {
		matches, targets, err := read()
		if err != nil {
			return nil, fmt.Errorf("XDP entries of %s: %w", dev, err)
		}
		out := make([]device.XDPEntry, len(matches))
		for i, match := range matches {
			out[i] = device.XDPEntry{Dev: dev, Match: match, Lane: int(targets[i].Lane)}
		}
		return out, nil
	}, nil
}
