// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// linkClass is the minor number of the HTB class that limits the rate of the link from the SUT.
const linkClass = 0xffff

// addQdiscs adds the qdiscs that emulate the link in both directions.
func (b *builder) addQdiscs() error {
	if err := b.withLink(Switch, downlink, func(h *netlink.Handle, l netlink.Link) error {
		return h.QdiscAdd(switchQueue(b.cfg, l.Attrs().Index, b.cfg.SwitchBuffer))
	}); err != nil {
		return err
	}
	return b.withLink(Switch, uplink, b.addArbiter)
}

// switchQueue returns the qdisc that acts as the switch's queue toward the SUT. It is a FIFO of
// buffer bytes, followed by the link with its rate.
func switchQueue(c Config, index, buffer int) *netlink.Tbf {
	rate := c.LinkRate / 8
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       rate,
		Limit:      uint32(buffer),
		Buffer:     netlink.Xmittime(rate, uint32(c.LinkBurst)),
	}
}

// addArbiter makes the transmit side of the card: a ring for each queue, and an arbiter that
// divides the link among the rings. Each queue has an equal share of the rate, and may borrow more
// by deficit round robin (fair queueing). Packets of a queue below its share do not wait for other
// queues. On a real card, queues take turns by frames, so such a packet waits for at most one frame
// of each other busy queue. Here, a turn would be an unsegmented TSO packet of up to 64 KiB. A
// single FIFO would be no model of a card, because no lane could improve anything behind it.
func (b *builder) addArbiter(h *netlink.Handle, l netlink.Link) error {
	index := l.Attrs().Index
	htb := netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0),
		Parent: netlink.HANDLE_ROOT})
	htb.Defcls = 1
	if err := h.QdiscAdd(htb); err != nil {
		return fmt.Errorf("htb: %w", err)
	}
	frame := uint32(b.cfg.MTU + 14)
	add := func(minor uint16, parent uint32, rate uint64, burst uint32) error {
		c := netlink.NewHtbClass(
			netlink.ClassAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, minor), Parent: parent},
			netlink.HtbClassAttrs{Rate: rate, Ceil: b.cfg.LinkRate, Buffer: burst, Cbuffer: uint32(b.cfg.LinkBurst),
				Quantum: frame})
		if err := h.ClassAdd(c); err != nil {
			return fmt.Errorf("class %#x: %w", minor, err)
		}
		return nil
	}
	if err := add(linkClass, netlink.MakeHandle(1, 0), b.cfg.LinkRate, uint32(b.cfg.LinkBurst)); err != nil {
		return err
	}
	for q := range b.cfg.Queues {
		minor := uint16(q + 1)
		if err := add(minor, netlink.MakeHandle(1, linkClass), b.cfg.LinkRate/uint64(b.cfg.Queues),
			2*frame); err != nil {
			return err
		}
		if err := addBFIFO(b.nodes[Switch], index, netlink.MakeHandle(1, minor), b.cfg.Ring); err != nil {
			return fmt.Errorf("ring of queue %d: %w", q, err)
		}
	}
	return nil
}

// addBFIFO adds a FIFO of limit bytes. The netlink library cannot do this: the FIFO's options are a
// bare struct tc_fifo_qopt, without attributes.
func addBFIFO(n *node, index int, parent uint32, limit int) error {
	return n.do(func() error {
		req := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
		req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Parent: parent})
		req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bfifo")))
		req.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, binary.NativeEndian.AppendUint32(nil, uint32(limit))))
		_, err := req.Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
}
