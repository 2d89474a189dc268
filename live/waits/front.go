// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/niclane/niclane/internal/traffic/wait"
)

// A front is what was in front of the slow requests of one service and stage.
type front struct {
	limit int64 // the present threshold, ns
	total int64 // ns: the sum of the slow waits
	known int64 // ns: the part of them that the programs' memory reaches back to
	by    map[place]int64
}

type place struct{ what, where string }

func (f *front) clone() front {
	g := *f
	g.by = maps.Clone(f.by)
	return g
}

func (f *front) sub(earlier front) front {
	g := f.clone()
	g.total -= earlier.total
	g.known -= earlier.known
	for p, t := range earlier.by {
		g.by[p] -= t
	}
	return g
}

// add divides a slow wait among what was in front: an entry has the time from its beginning to the
// next one's. name returns an entry's place; "" if nothing was recorded then.
func (f *front) add(s wait.Sample, name func(wait.Past) place) {
	if f.by == nil {
		f.by = map[place]int64{}
	}
	f.total += int64(s.To - s.From)
	end := s.To
	for _, e := range s.Past { // newest first
		begin := min(max(e.At, s.From), end)
		if p := name(e); p.what != "" {
			f.by[p] += int64(end - begin)
			f.known += int64(end - begin)
		}
		end = begin
	}
}

// namer returns how the entries of a sample are called.
func (c *Collector) namer(s wait.Sample) func(wait.Past) place {
	own := c.opts.Targets[s.Service].Name
	device := c.names[s.IfIndex]
	if device == "" {
		device = fmt.Sprintf("device %d", s.IfIndex)
	}
	where := fmt.Sprintf("processor %d", s.CPU)
	switch Stage(s.Stage) {
	case CardToStack:
		if s.Queue > 0 { // skb_record_rx_queue: the queue plus 1
			where = fmt.Sprintf("receive queue %d of %s", s.Queue-1, device)
		}
	case SocketToCard:
		where = fmt.Sprintf("transmit queue %d of %s", s.Queue, device)
	}
	return func(e wait.Past) place {
		switch {
		case e.Protocol != 0 && Stage(s.Stage) == SocketToCard:
			return place{c.packet(own, e.Protocol, e.Source, e.Dest), where}
		case e.Protocol != 0:
			return place{c.packet(own, e.Protocol, e.Dest, e.Source), where}
		case e.Comm == "":
			return place{}
		case e.PID == 0 && e.Comm == "softirq net_rx":
			return place{"received packets (softirq)", where}
		case e.PID == 0:
			return place{"an idle processor (wake-up)", where}
		case e.PID == s.PID:
			return place{own + " itself", where}
		}
		return place{fmt.Sprintf("%s (%d)", e.Comm, e.PID), where}
	}
}

// ephemeral is the first port that Linux gives to a client (net.ipv4.ip_local_port_range).
const ephemeral = 32768

// packet returns whose a packet is, by its local and remote port.
func (c *Collector) packet(own string, protocol, local, remote uint16) string {
	name := "tcp"
	if protocol == 17 {
		name = "udp"
	}
	for _, t := range c.opts.Targets {
		if t.Protocol == name && slices.Contains(t.Ports, local) {
			if t.Name == own {
				return own + " itself"
			}
			if t.Lane != "" {
				return "lane " + t.Lane
			}
			return t.Name
		}
	}
	if local >= ephemeral && remote < ephemeral {
		return fmt.Sprintf("remote port %d/%s", remote, name)
	}
	return fmt.Sprintf("port %d/%s", local, name)
}

// culprits lists what was in front by stage, in shares of at least 1 %, largest first.
func (x *Service) culprits() map[Stage][]Culprit {
	out := map[Stage][]Culprit{}
	for st := range Stages {
		f := x.fronts[st]
		for p, t := range f.by {
			if s := float64(t) / float64(max(f.known, 1)); s >= 0.01 {
				out[st] = append(out[st], Culprit{Share: s, Above: f.limit, What: p.what, Where: p.where})
			}
		}
		slices.SortFunc(out[st], func(a, b Culprit) int {
			return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.What, b.What), cmp.Compare(a.Where, b.Where))
		})
	}
	return out
}
