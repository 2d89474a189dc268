// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
)

// A Hop is one queue that packets pass, with its state at one moment.
type Hop struct {
	// Name is one of these. "switch to sut" is the switch's buffer. "card tx ring N" is a transmit
	// queue of the card. "sut qdisc KIND HANDLE" and "sut class ID" are what is configured on the
	// SUT's port; "sut qdisc KIND at CLASS" is a qdisc that the kernel made by itself. "card rx rings" are the
	// receive queues; veth does not report how full they are.
	// "host backlog" are the queues by which CPUs pass packets to each other (RPS). Each holds at most
	// net.core.netdev_max_backlog packets, of all traffic of the host.
	Name string `json:"name"`
	// Backlog is the number of bytes that wait now. It is always 0 for "card rx rings" and "host
	// backlog".
	Backlog int64 `json:"backlogBytes"`
	// Drops, Packets and Bytes count from when the queue was made. "card rx rings" has only Drops, at
	// a full ring. "host backlog" has no Bytes.
	Drops   int64 `json:"drops"`
	Packets int64 `json:"packets"`
	Bytes   int64 `json:"bytes"`
}

// A HopReader reads hops. Each read costs three or four netlink dumps. It is not safe for
// concurrent use.
type HopReader struct {
	sw, sut                *node
	uplink, downlink, port int
	queues                 int
}

// Hops opens a reader. The caller must close it before the lab goes down.
func (l *Lab) Hops() (*HopReader, error) {
	sw, err := openNode(l.Config, Switch)
	if err != nil {
		return nil, err
	}
	sut, err := openNode(l.Config, SUT)
	if err != nil {
		sw.close()
		return nil, err
	}
	r := &HopReader{sw: sw, sut: sut, queues: l.Config.Queues}
	for _, x := range []struct {
		n     *node
		name  string
		index *int
	}{{sw, uplink, &r.uplink}, {sw, downlink, &r.downlink}, {sut, Port, &r.port}} {
		link, err := x.n.nl.LinkByName(x.name)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", x.name, err), r.Close())
		}
		*x.index = link.Attrs().Index
	}
	return r, nil
}

// Close closes the reader.
func (r *HopReader) Close() error {
	r.sw.close()
	r.sut.close()
	return nil
}

// Read returns the hops in order: first those that a request passes on its way to the SUT, then
// those of the answer.
func (r *HopReader) Read() ([]Hop, error) {
	down, err := qdiscHops(r.sw, r.downlink, func(q netlink.Qdisc) string {
		if q.Type() == "tbf" {
			return "switch to sut"
		}
		return ""
	})
	if err != nil {
		return nil, err
	}
	port, err := r.sw.nl.LinkByName(cardPort)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cardPort, err)
	}
	rings := Hop{Name: "card rx rings", Drops: int64(port.Attrs().Statistics.TxDropped)}
	sut, err := qdiscHops(r.sut, r.port, func(q netlink.Qdisc) string {
		if kind := q.Type(); kind != "clsact" && kind != "ingress" && kind != "noqueue" {
			if q.Attrs().Handle == 0 {
				return "sut qdisc " + kind + " at " + handle(q.Attrs().Parent)
			}
			return "sut qdisc " + kind + " " + handle(q.Attrs().Handle)
		}
		return ""
	})
	if err != nil {
		return nil, err
	}
	classes, err := classHops(r.sut, r.port, func(id uint32) string { return "sut class " + handle(id) })
	if err != nil {
		return nil, err
	}
	tx, err := classHops(r.sw, r.uplink, func(id uint32) string {
		if q := int(id&0xffff) - 1; q < r.queues {
			return fmt.Sprintf("card tx ring %d", q)
		}
		return ""
	})
	if err != nil {
		return nil, err
	}
	backlog, err := hostBacklog()
	if err != nil {
		return nil, err
	}
	hops := append(down, backlog, rings)
	hops = append(hops, sut...)
	hops = append(hops, classes...)
	return append(hops, tx...), nil
}

// hostBacklog reads /proc/net/softnet_stat, which has one line for each CPU. The first two
// hexadecimal columns are the numbers of processed and of dropped packets (softnet_seq_show of
// net/core/net-procfs.c).
func hostBacklog() (Hop, error) {
	h := Hop{Name: "host backlog"}
	b, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		return h, err
	}
	for line := range strings.Lines(string(b)) {
		var processed, dropped int64
		if _, err := fmt.Sscanf(line, "%x %x", &processed, &dropped); err != nil {
			return h, fmt.Errorf("/proc/net/softnet_stat: %q: %w", line, err)
		}
		h.Packets += processed
		h.Drops += dropped
	}
	return h, nil
}

// handle formats a handle as tc(8) does: "1:" for a qdisc, "1:10" for a class.
func handle(h uint32) string {
	if h&0xffff == 0 {
		return fmt.Sprintf("%x:", h>>16)
	}
	return fmt.Sprintf("%x:%x", h>>16, h&0xffff)
}

func qdiscHops(n *node, index int, name func(netlink.Qdisc) string) ([]Hop, error) {
	qdiscs, err := n.nl.QdiscList(indexed(index))
	if err != nil {
		return nil, fmt.Errorf("qdiscs on %s: %w", n.host, err)
	}
	var hops []Hop
	for _, q := range qdiscs {
		if what := name(q); what != "" {
			hops = append(hops, hop(what, (*netlink.ClassStatistics)(q.Attrs().Statistics)))
		}
	}
	return hops, nil
}

func classHops(n *node, index int, name func(id uint32) string) ([]Hop, error) {
	classes, err := n.nl.ClassList(indexed(index), 0)
	if err != nil {
		return nil, fmt.Errorf("classes on %s: %w", n.host, err)
	}
	var hops []Hop
	for _, c := range classes {
		if c.Type() == "mq" {
			continue // it has no counters of its own: it shows those of its qdisc
		}
		if what := name(c.Attrs().Handle); what != "" {
			hops = append(hops, hop(what, c.Attrs().Statistics))
		}
	}
	return hops, nil
}

func hop(name string, s *netlink.ClassStatistics) Hop {
	h := Hop{Name: name}
	if s != nil && s.Basic != nil && s.Queue != nil {
		h.Backlog, h.Drops = int64(s.Queue.Backlog), int64(s.Queue.Drops)
		h.Packets, h.Bytes = int64(s.Basic.Packets), int64(s.Basic.Bytes)
	}
	return h
}

func indexed(index int) netlink.Link {
	return &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index}, LinkType: "veth"}
}

// SetSwitchBuffer changes the size of the buffer at the switch's port toward the SUT, in bytes.
// Packets that wait in the buffer stay there.
func (l *Lab) SetSwitchBuffer(bytes int) error {
	if least := max(l.Config.LinkBurst, l.Config.SwitchMark); bytes < least || bytes > 1<<30 {
		return fmt.Errorf("lab: switch buffer: %d, want %d to %d", bytes, least, 1<<30)
	}
	n, err := openNode(l.Config, Switch)
	if err != nil {
		return err
	}
	defer n.close()
	link, err := n.nl.LinkByName(downlink)
	if err == nil {
		err = n.nl.QdiscChange(switchQueue(l.Config, link.Attrs().Index, bytes))
	}
	if err == nil {
		err = putSwitchBuffers(n, l.Config, link.Attrs().Index, bytes)
	}
	if err != nil {
		return fmt.Errorf("switch buffer: %w", err)
	}
	l.Config.SwitchBuffer = bytes
	return nil
}
