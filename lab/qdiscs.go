// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
)

// linkClass is the minor number of the HTB class that limits the rate of the link from the SUT.
const linkClass = 0xffff

// portRoot is the handle of the root qdisc of the SUT's port. The kernel's own mq has none, but the
// kernel makes no mq for a veth (IFF_NO_QUEUE, net/sched/sch_generic.c: attach_default_qdiscs).
const portRoot = 0x8001

// addPortQdisc gives the SUT's port what the kernel gives a card: an mq, with the kernel's default
// qdisc (net.core.default_qdisc) at each transmit queue.
func (b *builder) addPortQdisc() error {
	if b.cfg.Queues < 2 {
		return nil // mq needs several queues
	}
	return b.withLink(SUT, Port, func(h *netlink.Handle, l netlink.Link) error {
		return h.QdiscAdd(&netlink.GenericQdisc{QdiscType: "mq", QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(portRoot, 0), Parent: netlink.HANDLE_ROOT}})
	})
}

// addQdiscs adds the qdiscs that emulate the link in both directions, and the SUT's own.
func (b *builder) addQdiscs() error {
	if err := b.addPortQdisc(); err != nil {
		return err
	}
	if err := b.withLink(Switch, downlink, func(h *netlink.Handle, l netlink.Link) error {
		index := l.Attrs().Index
		if err := h.QdiscAdd(switchQueue(b.cfg, index, b.cfg.SwitchBuffer)); err != nil {
			return err
		}
		return putSwitchBuffers(b.nodes[Switch], b.cfg, index, b.cfg.SwitchBuffer)
	}); err != nil {
		return err
	}
	if err := b.withLink(Switch, uplink, b.addArbiter); err != nil {
		return err
	}
	// Behind the link in both directions: what waits here has left it.
	for _, host := range HostNames() {
		if err := b.withLink(Switch, portOf(host), func(_ *netlink.Handle, l netlink.Link) error {
			return b.addDelay(host, l.Attrs().Index)
		}); err != nil {
			return err
		}
	}
	return nil
}

// addDelay adds the link's delay to the switch's port of a host. With a model of processors, the card's
// program decides when the SUT gets a packet, the delay included, and fq holds it until then.
func (b *builder) addDelay(host string, index int) error {
	switch {
	case host == SUT && b.cfg.costs():
		return putFQ(b.nodes[Switch], index)
	case b.cfg.Delay > 0:
		return putNetem(b.nodes[Switch], index, b.cfg.Delay)
	}
	return nil
}

// switchQueue returns the qdisc that acts as the switch's queue toward the SUT. It is a FIFO of
// buffer bytes, or what putSwitchBuffers puts in its place, followed by the link with its rate.
func switchQueue(c Config, index, buffer int) *netlink.Tbf {
	rate := c.LinkRate / 8
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       rate,
		Limit:      uint32(buffer),
		Buffer:     ticks(rate, c.LinkBurst),
	}
}

// putSwitchBuffers makes or changes the buffers of a switch that marks packets, or that lets some go
// first.
func putSwitchBuffers(n *node, c Config, index, buffer int) error {
	put := func(parent, handle uint32) error {
		if c.SwitchMark > 0 {
			return putRED(n, index, parent, handle, buffer, c.SwitchMark)
		}
		return putBFIFO(n, index, parent, handle, buffer)
	}
	parent := netlink.MakeHandle(1, 1)
	if len(c.SwitchFirst) == 0 {
		if c.SwitchMark == 0 {
			return nil // TBF has a FIFO of its own
		}
		return put(parent, netlink.MakeHandle(3, 0))
	}
	if err := putPrio(n, index, parent, netlink.MakeHandle(2, 0)); err != nil {
		return err
	}
	return errors.Join(put(netlink.MakeHandle(2, 1), netlink.MakeHandle(3, 0)),
		put(netlink.MakeHandle(2, 2), netlink.MakeHandle(4, 0)))
}

// ticks returns how long a link of rate bytes per second takes for so many bytes, in the units of tc,
// which are 64 ns. It rounds up: TBF drops a frame that is larger than its bucket. netlink.Xmittime
// counts whole µs, in which a link of 100 Gbit/s sends eight frames.
func ticks(rate uint64, bytes int) uint32 {
	return uint32(math.Ceil(float64(bytes) * 1e6 / float64(rate) * netlink.TickInUsec()))
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
	frame := b.cfg.MTU + 14
	add := func(minor uint16, parent uint32, rate uint64, burst int) error {
		c := netlink.NewHtbClass(
			netlink.ClassAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, minor), Parent: parent},
			netlink.HtbClassAttrs{Rate: rate, Ceil: b.cfg.LinkRate, Quantum: uint32(frame)})
		c.Buffer, c.Cbuffer = ticks(c.Rate, burst), ticks(c.Ceil, b.cfg.LinkBurst)
		if err := h.ClassAdd(c); err != nil {
			return fmt.Errorf("class %#x: %w", minor, err)
		}
		return nil
	}
	if err := add(linkClass, netlink.MakeHandle(1, 0), b.cfg.LinkRate, b.cfg.LinkBurst); err != nil {
		return err
	}
	for q := range b.cfg.Queues {
		minor := uint16(q + 1)
		if err := add(minor, netlink.MakeHandle(1, linkClass), b.cfg.LinkRate/uint64(b.cfg.Queues),
			2*frame); err != nil {
			return err
		}
		if err := putBFIFO(b.nodes[Switch], index, netlink.MakeHandle(1, minor), 0, b.cfg.Ring); err != nil {
			return fmt.Errorf("ring of queue %d: %w", q, err)
		}
	}
	return nil
}
