// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"

	"github.com/niclane/niclane/device"
)

// Contents are what niclane's own programs on one device hold.
type Contents struct {
	Entries    []device.FilterEntry // by key
	Defaults   []device.FilterDefault
	CPUQueues  []device.CPUQueue  // by CPU
	CPUThreads []device.CPUThread // by CPU
	CPULanes   []device.CPULane   // by number
	XDPEntries []device.XDPEntry  // by key
}

// Contents looks at the device anew, also for what others have done to it
// since. Without CAP_BPF it is an error of fs.ErrPermission. The entries of a
// thousand members take as long as all the rest, so they are read beside it:
// reading a map needs no network namespace, unlike finding it.
func (c *Client) Contents(dev string) (*Contents, error) {
	v := &Contents{}
	var b beside
	err := c.filterContents(dev, v, &b)
	if err == nil {
		err = c.xdpContents(dev, v, &b)
	}
	if err := errors.Join(err, b.wait()); err != nil {
		return nil, err
	}
	return v, nil
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

func (c *Client) xdpContents(dev string, v *Contents, b *beside) error {
	m, err := c.openXDPAnew(dev)
	if m == nil || err != nil {
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
	if v.CPUQueues, err = m.queues(); err != nil {
		return err
	}
	if v.CPUThreads, err = c.threadsOf(m, v.CPUQueues); err != nil {
		return err
	}
	v.CPULanes, err = m.used()
	return err
}

// beside is what goroutines do beside their caller.
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
