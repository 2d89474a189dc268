// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/extack"
	"github.com/niclane/niclane/lane/device"
)

// Attributes of ETHTOOL_MSG_RSS_GET (linux/ethtool_netlink.h; Linux 6.2).
const (
	rssContext = 2
	rssIndir   = 4
)

// RSS returns the indirection tables: the default context's first, then those of further
// contexts. Linux 6.11 and later list the contexts. For older kernels, RSS asks for each
// context number below maxAsked. EOPNOTSUPP means that the driver has no table.
//
// The kernel does not show whether a user set the default table
// (netif_is_rxfh_configured). RSS treats it as set if it differs from the kernel's default
// for the present receive rings (ethtool_rxfh_indir_default).
func (c *Client) RSS(dev string) ([]device.RSSTable, error) {
	tables, err := c.rss(dev)
	if err != nil || len(tables) == 0 {
		return tables, err
	}
	rings, err := c.rxRings(dev)
	if err != nil {
		return nil, fmt.Errorf("get receive rings of %s: %w", dev, err)
	}
	tables[0].Configured = !defaultTable(tables[0].Queues, rings)
	return tables, nil
}

// defaultTable reports whether a table is the kernel's default: entry i leads to ring
// i % rings (ethtool_rxfh_indir_default).
func defaultTable(queues []int, rings int) bool {
	for i, q := range queues {
		if rings <= 0 || q != i%rings {
			return false
		}
	}
	return true
}

// rxRings returns the number of receive rings in use (ETHTOOL_GRXRINGS).
func (c *Client) rxRings(dev string) (int, error) {
	buf := make([]byte, rxnfcSize)
	binary.NativeEndian.PutUint32(buf, unix.ETHTOOL_GRXRINGS)
	if err := c.ioctl(dev, buf); err != nil {
		return 0, err
	}
	return int(binary.NativeEndian.Uint64(buf[rxnfcData:])), nil
}

func (c *Client) rss(dev string) ([]device.RSSTable, error) {
	b, err := c.get(unix.ETHTOOL_MSG_RSS_GET, dev, nil)
	if errors.Is(err, unix.EOPNOTSUPP) { // from the driver, or from a kernel before 6.2
		return c.ioctlRSS(dev)
	}
	if err != nil {
		return nil, fmt.Errorf("get RSS table of %s: %w", dev, err)
	}
	first, err := decodeRSS(b)
	if err != nil {
		return nil, fmt.Errorf("get RSS table of %s: %w", dev, err)
	}
	tables := []device.RSSTable{first}
	msgs, err := c.dumpRSS(dev)
	if err != nil { // no dump before Linux 6.11
		more, err := c.ioctlContexts(dev, len(first.Queues))
		if err != nil {
			return nil, err
		}
		tables = append(tables, more...)
	}
	for _, m := range msgs {
		t, err := decodeRSS(m.Data)
		if err != nil {
			return nil, fmt.Errorf("get RSS tables of %s: %w", dev, err)
		}
		if t.Context != 0 {
			tables = append(tables, t)
		}
	}
	slices.SortFunc(tables, func(a, b device.RSSTable) int { return cmp.Compare(a.Context, b.Context) })
	for i := range tables {
		tables[i].Dev = dev
	}
	return tables, nil
}

func (c *Client) dumpRSS(dev string) ([]genetlink.Message, error) {
	return c.execute(unix.ETHTOOL_MSG_RSS_GET, dev, netlink.Request|netlink.Dump, nil)
}

func decodeRSS(b []byte) (device.RSSTable, error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return device.RSSTable{}, err
	}
	var t device.RSSTable
	for ad.Next() {
		switch ad.Type() {
		case rssContext:
			t.Context = int(ad.Uint32())
		case rssIndir:
			b := ad.Bytes()
			if len(b)%4 != 0 {
				return t, fmt.Errorf("RSS table of %d bytes", len(b))
			}
			t.Queues = make([]int, len(b)/4)
			for i := range t.Queues {
				t.Queues[i] = int(binary.NativeEndian.Uint32(b[4*i:]))
			}
		}
	}
	return t, ad.Err()
}

// noContext is an RSS context number that no driver has assigned.
const noContext = 0x7fffffff

// HasContexts returns nil if the driver can have further RSS contexts. It asks for a context
// that does not exist. If the driver has only the default context, the kernel answers
// EOPNOTSUPP before it looks the number up (net/ethtool/rss.c: rss_prepare_data). Before Linux
// 6.2, HasContexts asks by ioctl, which answers in the same way.
func (c *Client) HasContexts(dev string) error {
	_, err := c.get(unix.ETHTOOL_MSG_RSS_GET, dev, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(rssContext, noContext)
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		buf := rxfhRequest(0, noContext)
		err = c.ioctl(dev, buf)
	}
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return fmt.Errorf("get an RSS context of %s: %w", dev, extack.Error(err))
}

// Layout of struct ethtool_rxfh (linux/ethtool.h); the table follows.
const (
	rxfhSize      = 24
	rxfhContext   = 4
	rxfhIndirSize = 8
)

func rxfhRequest(entries, context uint32) []byte {
	buf := make([]byte, rxfhSize+4*entries)
	binary.NativeEndian.PutUint32(buf[0:], unix.ETHTOOL_GRSSH)
	binary.NativeEndian.PutUint32(buf[rxfhContext:], context)
	binary.NativeEndian.PutUint32(buf[rxfhIndirSize:], entries)
	return buf
}

// maxRSSEntries bounds the table's size; the largest table of a driver has 4096 entries.
const maxRSSEntries = 1 << 16

// ioctlRSS reads the default context's table by ETHTOOL_GRSSH: first its size,
// then the table.
func (c *Client) ioctlRSS(dev string) ([]device.RSSTable, error) {
	ask := rxfhRequest(0, 0)
	if err := c.ioctl(dev, ask); err != nil {
		return nil, fmt.Errorf("get RSS table of %s: %w", dev, err)
	}
	n := binary.NativeEndian.Uint32(ask[rxfhIndirSize:])
	if n > maxRSSEntries {
		return nil, fmt.Errorf("get RSS table of %s: %d entries", dev, n)
	}
	buf := rxfhRequest(n, 0)
	if err := c.ioctl(dev, buf); err != nil {
		return nil, fmt.Errorf("get RSS table of %s: %w", dev, err)
	}
	t := device.RSSTable{Dev: dev, Queues: make([]int, n)}
	for i := range t.Queues {
		t.Queues[i] = int(binary.NativeEndian.Uint32(buf[rxfhSize+4*i:]))
	}
	more, err := c.ioctlContexts(dev, int(n))
	return append([]device.RSSTable{t}, more...), err
}

// maxAsked bounds the context numbers that RSS asks for one by one. It covers mlx5 and sfc:
// both assign the lowest free number, and mlx5 has 15 contexts besides the default.
const maxAsked = 64

// ioctlContexts reads the tables of all contexts except the default. For a context that
// does not exist, drivers answer ENOENT or EINVAL.
func (c *Client) ioctlContexts(dev string, entries int) (tables []device.RSSTable, err error) {
	for id := 1; id < maxAsked; id++ {
		buf := rxfhRequest(uint32(entries), uint32(id))
		err := c.ioctl(dev, buf)
		if NotSupported(err) || errors.Is(err, errNoSocket) {
			return nil, nil // the driver has only the default context
		}
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get RSS context %d of %s: %w", id, dev, err)
		}
		t := device.RSSTable{Dev: dev, Context: id, Queues: make([]int, entries)}
		for i := range t.Queues {
			t.Queues[i] = int(binary.NativeEndian.Uint32(buf[rxfhSize+4*i:]))
		}
		tables = append(tables, t)
	}
	return tables, nil
}
