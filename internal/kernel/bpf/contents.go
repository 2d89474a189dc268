// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"

	"github.com/cilium/ebpf"

	"github.com/niclane/niclane/lane/device"
)

// Contents are the objects that niclane's own programs on one device hold.
type Contents struct {
	Entries    []device.FilterEntry // by key
	Defaults   []device.FilterDefault
	Links      []device.FilterLink
	Shares     []device.FilterShare // by lane
	Tunnels    []device.Tunnels
	CPUQueues  []device.CPUQueue  // by CPU
	CPUThreads []device.CPUThread // by CPU
	CPULanes   []device.CPULane   // by number
	XDPEntries []device.XDPEntry  // by key
}

// A Look is a running read of a device's contents.
type Look struct {
	contents Contents
	err      error // of Client.Look
	beside   beside
}

// Look starts to read the contents of niclane's programs on dev. It finds the attached
// programs and their maps itself, in the network namespace of the calling thread. Goroutines
// read the maps while the caller reads the rest of the device: a thousand entries take as long
// as that. The caller must not use the client until Contents returns.
func (c *Client) Look(dev string) *Look {
	l := &Look{}
	l.err = c.filterContents(dev, &l.contents, &l.beside)
	if l.err == nil {
		l.err = c.xdpContents(dev, &l.contents, &l.beside)
	}
	return l
}

// Contents waits for the goroutines and returns the contents. Without CAP_BPF the error
// is fs.ErrPermission.
func (l *Look) Contents() (*Contents, error) {
	l.err = errors.Join(l.err, l.beside.wait())
	l.beside = nil
	if l.err != nil {
		return nil, l.err
	}
	return &l.contents, nil
}

func (c *Client) filterContents(dev string, v *Contents, b *beside) error {
	var lists []func() ([]device.FilterEntry, error)
	err := c.eachFilter(dev, func(m *maps) error {
		d, err := m.rest()
		if err != nil {
			return err
		}
		if d != nil {
			v.Defaults = append(v.Defaults, *d)
		}
		if err := v.addShares(m); err != nil {
			return err
		}
		if err := v.addTunnels(m.tunnels, m.filter.Key()); err != nil {
			return err
		}
		list, err := m.lister()
		if err != nil {
			return err
		}
		lists = append(lists, list)
		return nil
	})
	b.run(func() error {
		for _, list := range lists {
			entries, err := list()
			if err != nil {
				return err
			}
			v.Entries = append(v.Entries, entries...)
		}
		sortByKey(v.Entries)
		return nil
	})
	return err
}

// addTunnels adds the tunnels of the program with the given key.
func (v *Contents) addTunnels(m *ebpf.Map, key string) error {
	t, err := tunnelsOf(m, key)
	if t != nil {
		v.Tunnels = append(v.Tunnels, *t)
	}
	return err
}

func (c *Client) xdpContents(dev string, v *Contents, b *beside) error {
	m, err := c.openXDPAnew(dev)
	if m == nil || err != nil {
		return err
	}
	if err := v.addTunnels(m.tunnels, device.XDP{Dev: dev}.Key()); err != nil {
		return err
	}
	list, err := m.lister()
	if err != nil {
		return err
	}
	b.run(func() (err error) {
		v.XDPEntries, err = list()
		sortByKey(v.XDPEntries)
		return err
	})
	b.run(func() (err error) {
		if v.CPUQueues, err = m.queues(); err != nil {
			return err
		}
		if v.CPUThreads, err = c.threadsOf(m, v.CPUQueues); err != nil {
			return err
		}
		v.CPULanes, err = m.used()
		return err
	})
	return nil
}

// A beside is a list of goroutines that run while the caller does other work.
type beside []chan error

func (b *beside) run(f func() error) {
	done := make(chan error, 1)
	*b = append(*b, done)
	go func() { done <- f() }()
}

func (b *beside) wait() error {
	var all []error
	for _, done := range *b {
		all = append(all, <-done)
	}
	return errors.Join(all...)
}
