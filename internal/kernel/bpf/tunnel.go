// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

// readTunnels returns the tunnels into which a program looks, or nil if there are none.
func (c *Client) readTunnels(t device.Tunnels) (device.Object, error) {
	m, err := c.tunnelMap(t.Filter)
	if m == nil || err != nil {
		return nil, err
	}
	return objectOf(tunnelsOf(m, t.Filter))
}

func tunnelsOf(m *ebpf.Map, filter string) (*device.Tunnels, error) {
	if m == nil {
		return nil, nil
	}
	var now flow.Tunnels
	if err := m.Lookup(uint32(0), &now); err != nil {
		return nil, fmt.Errorf("tunnels of %s: %w", filter, err)
	}
	all := now.Decode()
	if len(all) == 0 {
		return nil, nil
	}
	return &device.Tunnels{Filter: filter, Tunnels: all}, nil
}

func (c *Client) writeTunnels(next device.Object, t device.Tunnels) error {
	var value flow.Tunnels
	if next != nil {
		var err error
		if value, err = flow.EncodeTunnels(t.Tunnels); err != nil {
			return fmt.Errorf("%w: %w", unix.EINVAL, err)
		}
	}
	m, err := c.tunnelMap(t.Filter)
	if err == nil && m == nil {
		err = fmt.Errorf("%w: its program is not there, or is of a niclane that does not look into tunnels: "+
			"niclane rollback, then apply again", unix.ENOENT)
	}
	if err != nil {
		return err
	}
	return m.Update(uint32(0), value, ebpf.UpdateExist)
}

// tunnelMap returns the map of tunnels of the program with the given key. It returns nil if there is no
// program, or if the program's version has no such map.
func (c *Client) tunnelMap(key string) (*ebpf.Map, error) {
	if dev, ok := strings.CutPrefix(key, device.XDP{}.Key()); ok {
		m, err := c.openXDP(dev)
		if m == nil || err != nil {
			return nil, err
		}
		return m.tunnels, nil
	}
	m, err := c.filterOf(key)
	if m == nil || err != nil {
		return nil, err
	}
	return m.tunnels, nil
}

// takeTunnels stores m in to if it is the map of tunnels. It reports whether it has stored m.
func takeTunnels(to **ebpf.Map, m *ebpf.Map, info *ebpf.MapInfo) bool {
	if info.Name != egressMapNlTunnels || info.ValueSize != uint32(unsafe.Sizeof(flow.Tunnels{})) || *to != nil {
		return false
	}
	*to = m
	return true
}
