// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Messages of linux/ethtool_netlink.h that write RSS tables (Linux 6.17). Earlier kernels
// answer EOPNOTSUPP and have only the ioctl ETHTOOL_SRSSH.
const (
	msgRSSSet    = 48
	msgRSSCreate = 49
	msgRSSDelete = 50
)

// More fields of struct ethtool_rxfh. Before Linux 6.8, input_xfrm was reserved and had to be
// 0, so the client writes back the value that it read.
const (
	rxfhInputXfrm = 17
	// contextAlloc is ETH_RXFH_CONTEXT_ALLOC: the kernel chooses the number.
	contextAlloc = 0xffffffff
)

// SetRSS writes the indirection table of an existing context.
func (c *Client) SetRSS(dev string, context int, queues []int) error {
	err := c.set(msgRSSSet, dev, func(ae *netlink.AttributeEncoder) {
		rssNumber(ae, context)
		ae.Bytes(rssIndir, encodeIndir(queues))
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = c.ioctlSetRSS(dev, uint32(context), queues)
	}
	return rssError("set", dev, context, err)
}

// ResetRSS gives the default context the kernel's default table again, which follows the number
// of channels. It uses the ioctl, which works on all kernels.
func (c *Client) ResetRSS(dev string) error {
	_, err := c.ioctlSetRSS(dev, 0, nil)
	return rssError("reset", dev, 0, err)
}

// CreateContext makes the RSS context id with a table. Since Linux 6.17 it asks the kernel
// for that number. Older kernels or their drivers assign the lowest free number
// (net/ethtool/ioctl.c: xa_alloc). There, CreateContext makes contexts until one has the
// number id, and removes the others that it made.
func (c *Client) CreateContext(dev string, id int, queues []int) error {
	// Without netlink.Acknowledge: the kernel always replies (ethnl_rss_create_doit), so an
	// acknowledgement would be a second answer.
	_, err := c.execute(msgRSSCreate, dev, netlink.Request, func(ae *netlink.AttributeEncoder) {
		rssNumber(ae, id)
		ae.Bytes(rssIndir, encodeIndir(queues))
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = c.ioctlCreateContext(dev, uint32(id), queues)
	}
	return rssError("create", dev, id, err)
}

func (c *Client) ioctlCreateContext(dev string, id uint32, queues []int) (err error) {
	var below []uint32
	defer func() {
		for _, b := range below {
			_, derr := c.ioctlSetRSS(dev, b, nil)
			err = errors.Join(err, derr)
		}
	}()
	for {
		got, err := c.ioctlSetRSS(dev, contextAlloc, queues)
		if err != nil {
			return err
		}
		if got == id {
			return nil
		}
		below = append(below, got)
		if got > id {
			return fmt.Errorf("%w: the driver gives numbers from %d on", unix.EEXIST, got)
		}
	}
}

// DeleteContext removes an RSS context. The error is EBUSY while a rule leads to it.
func (c *Client) DeleteContext(dev string, id int) error {
	if id == 0 {
		return errors.New("the default RSS context cannot be deleted")
	}
	err := c.set(msgRSSDelete, dev, func(ae *netlink.AttributeEncoder) { rssNumber(ae, id) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = c.ioctlSetRSS(dev, uint32(id), nil)
	}
	return rssError("delete", dev, id, err)
}

// rssNumber adds a context's number to a request; the default context has none.
func rssNumber(ae *netlink.AttributeEncoder, context int) {
	if context != 0 {
		ae.Uint32(rssContext, uint32(context))
	}
}

func encodeIndir(queues []int) []byte {
	b := make([]byte, 0, 4*len(queues))
	for _, q := range queues {
		b = binary.NativeEndian.AppendUint32(b, uint32(q))
	}
	return b
}

// ioctlSetRSS writes a table by ETHTOOL_SRSSH and returns the context's number. Without
// queues, it resets the default context or deletes any other context (net/ethtool/ioctl.c:
// ethtool_set_rxfh). The key and the hash function stay.
func (c *Client) ioctlSetRSS(dev string, context uint32, queues []int) (uint32, error) {
	of := context
	if of == contextAlloc {
		of = 0
	}
	now := rxfhRequest(0, of)
	if err := c.ioctl(dev, now); err != nil {
		return 0, err
	}
	size := int(binary.NativeEndian.Uint32(now[rxfhIndirSize:]))
	buf := rxfhSet(context, resized(queues, size), now[rxfhInputXfrm])
	if err := c.ioctl(dev, buf); err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint32(buf[rxfhContext:]), nil
}

// resized repeats or cuts a table to size entries, the present size of the card's tables. That
// size may follow the channels. If a cut loses queues, the caller sees it when it reads the
// table back. With netlink, the kernel itself repeats the table (net/ethtool/rss.c:
// rss_set_prep_indir).
func resized(queues []int, size int) []int {
	if len(queues) == 0 || size == 0 || len(queues) == size {
		return queues
	}
	if len(queues)%size == 0 {
		return queues[:size]
	}
	out := make([]int, 0, size)
	for len(out) < size {
		out = append(out, queues[:min(len(queues), size-len(out))]...)
	}
	return out
}

// rxfhSet returns struct ethtool_rxfh with a table.
func rxfhSet(context uint32, queues []int, inputXfrm byte) []byte {
	buf := make([]byte, rxfhSize, rxfhSize+4*len(queues))
	binary.NativeEndian.PutUint32(buf, unix.ETHTOOL_SRSSH)
	binary.NativeEndian.PutUint32(buf[rxfhContext:], context)
	binary.NativeEndian.PutUint32(buf[rxfhIndirSize:], uint32(len(queues)))
	buf[rxfhInputXfrm] = inputXfrm
	return append(buf, encodeIndir(queues)...)
}

func rssError(verb, dev string, context int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s RSS context %d of %s: %w", verb, context, dev, err)
}
