// SPDX-License-Identifier: Apache-2.0

// Package netprio reads and writes the priority that the net_prio controller of cgroup v1
// gives the packets of a control group's processes on a device
// (Documentation/admin-guide/cgroup-v1/net_prio.rst). The kernel sets it on packets whose
// socket has no priority of its own (net/core/dev.c: skb_update_prio). This includes sockets
// that exist already, and connections that a listening socket's process accepts.
package netprio

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/lane/device"
)

const mapFile = "net_prio.ifpriomap"

// onlyInitial is a sysctl that only the initial network namespace has
// (net/core/sysctl_net_core.c: net_core_table).
const onlyInitial = "/proc/sys/net/core/netdev_budget"

// Client reads and writes below the mount point of a net_prio hierarchy.
type Client struct{ root *os.Root }

// Open opens the hierarchy mounted at dir.
func Open(dir string) (*Client, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Client{root}, nil
}

// Close ends the client.
func (c *Client) Close() error { return c.root.Close() }

// Reaches returns an error if the controller does not know the device dev of the calling
// thread's network namespace. The controller knows only devices of the initial namespace, by
// name (net/core/netprio_cgroup.c: read_priomap). In another namespace, the names would mean
// other devices. The errors are EOPNOTSUPP (other namespace) and ENODEV.
func (c *Client) Reaches(dev string) error {
	_, err := os.Stat(onlyInitial)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w: net_prio knows devices of the initial network namespace only", dev, unix.EOPNOTSUPP)
	}
	if err != nil {
		return err
	}
	all, err := c.priorities("/")
	if err != nil {
		return err
	}
	if _, ok := all[dev]; !ok {
		return fmt.Errorf("%s: %w: not in %s", dev, unix.ENODEV, mapFile)
	}
	return nil
}

// Has reports whether the hierarchy has a group.
func (c *Client) Has(group string) (bool, error) {
	_, err := c.root.Stat(below(group) + "/" + mapFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Read returns the priority of a group on a device as a device.CgroupPriority, or nil if it is
// 0 or the group is gone. If the device is not known, the error is ENODEV.
func (c *Client) Read(o device.Object) (device.Object, error) {
	p, ok := o.(device.CgroupPriority)
	if !ok {
		return nil, fmt.Errorf("object kind %q is not net_prio's", o.Kind())
	}
	if err := c.Reaches(p.Dev); err != nil {
		return nil, err
	}
	all, err := c.priorities(p.Cgroup)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if all[p.Dev] == 0 {
		return nil, nil
	}
	p.Priority = tc.FormatHandle(all[p.Dev])
	return p, nil
}

// Write sets a priority; nil means 0.
func (c *Client) Write(old, next device.Object) error {
	o := cmp.Or(next, old)
	p, ok := o.(device.CgroupPriority)
	if !ok {
		return fmt.Errorf("object kind %q is not net_prio's", o.Kind())
	}
	if err := c.Reaches(p.Dev); err != nil {
		return err
	}
	var priority uint32
	if next != nil {
		var err error
		if priority, err = tc.ParseHandle(p.Priority); err != nil {
			return fmt.Errorf("%s: %w", p.Key(), err)
		}
		if priority == 0 {
			return fmt.Errorf("%s: %w: priority 0 is none", p.Key(), unix.EINVAL)
		}
	}
	f, err := c.root.OpenFile(below(p.Cgroup)+"/"+mapFile, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Key(), err)
	}
	_, err = fmt.Fprintf(f, "%s %d", p.Dev, priority)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", p.Key(), err)
	}
	return nil
}

// priorities reads a group's map: the priority of each device.
func (c *Client) priorities(group string) (map[string]uint32, error) {
	b, err := c.root.ReadFile(below(group) + "/" + mapFile)
	if err != nil {
		return nil, err
	}
	return parse(string(b))
}

// parse reads lines with a device's name and its priority.
func parse(text string) (map[string]uint32, error) {
	all := map[string]uint32{}
	for line := range strings.Lines(text) {
		// A name has no white space (dev_valid_name).
		name, number, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		n, err := strconv.ParseUint(number, 10, 32)
		if !ok || err != nil {
			return nil, fmt.Errorf("%s: line %q: want a device and a number", mapFile, line)
		}
		all[name] = uint32(n)
	}
	return all, nil
}

// below returns a group's path relative to the mount point.
func below(group string) string { return "." + group }
