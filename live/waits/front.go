// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/niclane/niclane/internal/traffic/wait"
)

// A front is what was in front of the slow requests of one service and stage.
type front struct {
	limit int64 // the present threshold, ns
	total int64 // ns: the sum of the slow waits
	known int64 // ns: the part of them that the programs' memory reaches back to
	by    map[place]int64
}

// A place is where something was in front.
type place struct {
	what   string
	kind   string // "receive queue", "transmit queue" or "processor"
	number int
	device string // of a queue
}

// Words of a place.
const (
	itselfWord   = " itself"
	idleWords    = "an idle processor"
	softirqWords = "received packets (softirq)"
)

// where returns how the places of one culprit are called, most important first.
func where(places []place) string {
	first := places[0]
	same := true
	var numbers []int
	for _, p := range places {
		same = same && p.kind == first.kind && p.device == first.device
		numbers = append(numbers, p.number)
	}
	if !same { // such as queues for some packets, and the processor for those without a queue
		numbers = numbers[:1]
	}
	slices.Sort(numbers)
	text := fmt.Sprintf("%s %d", first.kind, numbers[0])
	switch n := len(numbers); {
	case n > 4:
		text = fmt.Sprintf("%d %ss", n, first.kind)
	case n > 1:
		text = first.kind + "s " + strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ", "), "[]")
	}
	if first.device != "" {
		text += " of " + first.device
	}
	return text
}

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
	at := place{kind: "processor", number: s.CPU}
	switch Stage(s.Stage) {
	case CardToStack:
		if s.Queue > 0 { // skb_record_rx_queue: the queue plus 1
			at = place{kind: "receive queue", number: s.Queue - 1, device: device}
		}
	case SocketToCard:
		at = place{kind: "transmit queue", number: s.Queue, device: device}
	}
	return func(e wait.Past) place {
		p := at
		if e.Protocol == 0 {
			p = place{kind: "processor", number: s.CPU}
		}
		switch {
		case e.Protocol != 0 && Stage(s.Stage) == SocketToCard:
			p.what = c.packet(own, e.Protocol, e.Source, e.Dest)
		case e.Protocol != 0:
			p.what = c.packet(own, e.Protocol, e.Dest, e.Source)
		case e.Comm == "":
		case e.PID == 0 && e.Comm == "softirq net_rx":
			p.what = softirqWords
		case e.PID == 0:
			p.what = idleWords
		case e.PID == s.PID && Stage(s.Stage) != CardToStack: // there it is the thread that polls
			p.what = own + itselfWord
		default:
			p.what = fmt.Sprintf("%s (%d)", e.Comm, e.PID)
		}
		return p
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
				return own + itselfWord
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
		places := map[string][]place{}
		for p := range f.by {
			places[p.what] = append(places[p.what], p)
		}
		for what, ps := range places {
			slices.SortFunc(ps, func(a, b place) int {
				return cmp.Or(cmp.Compare(f.by[b], f.by[a]), cmp.Compare(a.number, b.number))
			})
			var sum int64
			for _, p := range ps {
				sum += f.by[p]
			}
			if s := float64(sum) / float64(max(f.known, 1)); s >= 0.01 {
				out[st] = append(out[st], Culprit{Share: s, Above: f.limit, What: what, Where: where(ps)})
			}
		}
		slices.SortFunc(out[st], func(a, b Culprit) int {
			return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.What, b.What))
		})
	}
	return out
}
