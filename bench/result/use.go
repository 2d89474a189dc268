// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"slices"

	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/lane/device"
)

// Units of a Use.
const (
	PerRequestNs = "ns/request"
	PerRequest   = "/request"
	PerSecond    = "/s"
	BitsPerS     = "bit/s"
	OfProcessor  = "of a processor"
	OfPackets    = "of the packets"
	OfPolls      = "of the polls"
	PerPoll      = "/poll"
	Times        = "in all"
)

// A Use is one counter of the SUT, with its value in each variant.
type Use struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Values are in the order of the load point's variants; nil: not known.
	Values []*float64 `json:"values"`
}

// perCPU is the largest number of processors for which each processor gets a line.
const perCPU = 8

// machineUse compares the SUT's counters by variant. It leaves out a line whose values are all
// zero, except if zero is informative.
func machineUse(variants []map[int]*Window) []Use {
	columns := make([]*column, len(variants))
	var names []string
	some := false
	for i, windows := range variants {
		columns[i] = newColumn(windows)
		some = some || columns[i] != nil
		if columns[i] != nil {
			for _, n := range columns[i].keys {
				if !slices.Contains(names, n) {
					names = append(names, n)
				}
			}
		}
	}
	if !some {
		return nil
	}
	var out []Use
	for _, name := range names {
		u := Use{Name: name, Values: make([]*float64, len(columns))}
		keep := false
		for i, c := range columns {
			if c == nil {
				continue
			}
			if v, ok := c.of[name]; ok {
				u.Unit, u.Values[i] = v.unit, &v.value
				keep = keep || v.value != 0 || v.always
			}
		}
		if keep {
			out = append(out, u)
		}
	}
	return out
}

type value struct {
	value  float64
	unit   string
	always bool
}

// A column is the values of one variant, by the counter's name.
type column struct{ tally[string, value] }

func (c *column) put(name string, v float64, unit string) { *c.at(name) = value{v, unit, false} }

// tell adds a line that is shown even if all its values are zero.
func (c *column) tell(name string, v float64, unit string) { *c.at(name) = value{v, unit, true} }

// newColumn adds up the counters of a variant's windows; nil if no window has counters.
func newColumn(windows map[int]*Window) *column {
	var all []*machine.Diff
	var requests, ns float64
	for _, i := range rounds(windows) {
		if w := windows[i]; w.Machine != nil {
			all = append(all, w.Machine)
			requests += float64(w.sent())
			ns += float64(w.Machine.Duration)
		}
	}
	if len(all) == 0 || ns == 0 {
		return nil
	}
	c := &column{}
	sum := func(of func(*machine.Diff) float64) (s float64) {
		for _, d := range all {
			s += of(d)
		}
		return s
	}
	perSecond := func(name string, of func(*machine.Diff) float64) { c.put(name, sum(of)/ns*1e9, PerSecond) }
	c.processes(all, requests)
	c.processors(all, ns)
	perSecond("interrupts", func(d *machine.Diff) float64 { return float64(d.Interrupts) })
	perSecond("context switches, all processes", func(d *machine.Diff) float64 { return float64(d.ContextSwitches) })
	perSecond("receive softirqs", func(d *machine.Diff) float64 { return float64(d.SoftIRQs.NetRx) })
	perSecond("transmit softirqs", func(d *machine.Diff) float64 { return float64(d.SoftIRQs.NetTx) })
	softnet := func(of func(machine.Softnet) uint32) float64 {
		return sum(func(d *machine.Diff) (s float64) {
			for _, x := range d.Softnet {
				s += float64(of(x))
			}
			return s
		})
	}
	c.put("packets that softirqs received", softnet(func(x machine.Softnet) uint32 { return x.Processed })/ns*1e9,
		PerSecond)
	if in := sum(func(d *machine.Diff) float64 { return float64(d.TCP.InSegments) }); in > 0 {
		c.tell("received by busy polling", sum(func(d *machine.Diff) float64 { return float64(d.TCP.BusyPolled) })/in,
			OfPackets)
	}
	c.put("softirqs stopped with work left", softnet(func(x machine.Softnet) uint32 { return x.TimeSqueezed }), Times)
	c.tell("dropped from a processor's backlog", softnet(func(x machine.Softnet) uint32 { return x.Dropped }), Times)
	c.tell("TCP segments sent again", sum(func(d *machine.Diff) float64 { return float64(d.TCP.Retransmits) }), Times)
	c.put("TCP timers that fired", sum(func(d *machine.Diff) float64 { return float64(d.TCP.Timeouts) }), Times)
	c.put("connections dropped by a full backlog",
		sum(func(d *machine.Diff) float64 { return float64(d.TCP.ListenDrops) }), Times)
	c.put("UDP datagrams dropped by a full buffer",
		sum(func(d *machine.Diff) float64 { return float64(d.UDP.ReceiveErrors + d.UDP.SendErrors) }), Times)
	c.napis(all, ns)
	c.lanes(all, ns)
	c.device(all, ns)
	return c
}

// napis adds lines about how the device was polled.
func (c *column) napis(all []*machine.Diff, ns float64) {
	var polls, packets, empty, full, thread, busy float64
	for _, d := range all {
		for _, n := range d.NAPIs {
			polls += float64(n.Polls)
			packets += float64(n.Packets)
			empty += float64(n.Empty)
			full += float64(n.Full)
			thread += float64(n.Thread)
			busy += float64(n.Busy)
		}
	}
	if polls == 0 {
		return
	}
	c.put("NAPI polls", polls/ns*1e9, PerSecond)
	c.put("packets in a NAPI poll", packets/polls, PerPoll)
	c.tell("NAPI polls that found nothing", empty/polls, OfPolls)
	c.put("NAPI polls that used up their budget", full/polls, OfPolls)
	c.put("NAPI polls by its own thread", thread/polls, OfPolls)
	c.tell("NAPI polls by busy polling", busy/polls, OfPolls)
}

// trafficOf returns the sum of the counters of queues; nil without queues.
func trafficOf(queues []device.QueueCounter) *machine.Traffic {
	if len(queues) == 0 {
		return nil
	}
	t := &machine.Traffic{}
	for _, q := range queues {
		t.Packets, t.Bytes, t.Drops = t.Packets+q.Packets, t.Bytes+q.Bytes, t.Drops+q.Drops
	}
	return t
}

// lanes adds lines about the traffic of each lane's queues and class. With several cards, it adds lines
// about the traffic of each card and of the lanes there.
func (c *column) lanes(all []*machine.Diff, ns float64) {
	var sums tally[string, machine.Traffic]
	add := func(name string, t *machine.Traffic) {
		if t != nil {
			s := sums.at(name)
			s.Packets += t.Packets
			s.Bytes += t.Bytes
			s.Drops += t.Drops
		}
	}
	tell := func(lanes []machine.Lane, on string) {
		for _, l := range lanes {
			add("lane "+l.Name+on+": received", l.Rx)
			add("lane "+l.Name+on+": sent", l.Tx)
			add("lane "+l.Name+on+": through its class", l.Class)
		}
	}
	for _, d := range all {
		tell(d.Lanes, "")
		for _, card := range d.Cards {
			add(card.Device.Name+": received", trafficOf(card.Device.Rx))
			add(card.Device.Name+": sent", trafficOf(card.Device.Tx))
			tell(card.Lanes, " on "+card.Device.Name)
		}
	}
	for _, name := range sums.keys {
		s := sums.at(name)
		c.put(name+", packets", float64(s.Packets)/ns*1e9, PerSecond)
		if s.Bytes > 0 {
			c.put(name, float64(s.Bytes)*8/ns*1e9, BitsPerS)
		}
		c.tell(name+", drops", float64(s.Drops), Times)
	}
}

func (c *column) processes(all []*machine.Diff, requests float64) {
	if requests == 0 {
		return
	}
	var sums tally[string, machine.Process]
	for _, d := range all {
		for _, p := range d.Processes {
			s := sums.at(p.Name)
			s.User += p.User
			s.System += p.System
			s.Running += p.Running
			s.Waiting += p.Waiting
			s.Voluntary += p.Voluntary
			s.Involuntary += p.Involuntary
		}
	}
	for _, name := range sums.keys {
		s := sums.at(name)
		c.put(name+": processor time, user", float64(s.User)/requests, PerRequestNs)
		c.put(name+": processor time, kernel", float64(s.System)/requests, PerRequestNs)
		c.put(name+": running", float64(s.Running)/requests, PerRequestNs)
		c.put(name+": waiting for a processor", float64(s.Waiting)/requests, PerRequestNs)
		c.put(name+": context switches, by itself", float64(s.Voluntary)/requests, PerRequest)
		c.put(name+": context switches, forced", float64(s.Involuntary)/requests, PerRequest)
	}
}

func (c *column) processors(all []*machine.Diff, ns float64) {
	var cpus tally[int, machine.CPU]
	var sum machine.CPU
	for _, d := range all {
		for _, x := range d.CPUs {
			for _, s := range []*machine.CPU{cpus.at(x.CPU), &sum} {
				s.User += x.User
				s.System += x.System
				s.IRQ += x.IRQ
				s.SoftIRQ += x.SoftIRQ
				s.Steal += x.Steal
				s.Idle += x.Idle
			}
		}
	}
	slices.Sort(cpus.keys)
	put := func(who string, s *machine.CPU) {
		c.put(who+": user", float64(s.User)/ns, OfProcessor)
		c.put(who+": kernel", float64(s.System)/ns, OfProcessor)
		c.put(who+": interrupts", float64(s.IRQ)/ns, OfProcessor)
		c.put(who+": softirqs", float64(s.SoftIRQ)/ns, OfProcessor)
		c.put(who+": stolen by the hypervisor", float64(s.Steal)/ns, OfProcessor)
		c.put(who+": idle", float64(s.Idle)/ns, OfProcessor)
	}
	if n := len(cpus.keys); n > perCPU {
		put(fmt.Sprintf("all %d processors", n), &sum)
		return
	}
	for _, i := range cpus.keys {
		put(fmt.Sprintf("processor %d", i), cpus.at(i))
	}
}

// perQueue is the largest number of queues for which each queue gets a line.
const perQueue = 32

func (c *column) device(all []*machine.Diff, ns float64) {
	queues := func(what string, of func(*machine.Device) []device.QueueCounter) {
		var packets tally[int, float64]
		drops := 0.0
		for _, d := range all {
			if d.Device == nil {
				continue
			}
			for _, q := range of(d.Device) {
				*packets.at(q.Queue) += float64(q.Packets)
				drops += float64(q.Drops)
			}
		}
		if len(packets.keys) == 0 {
			return
		}
		slices.Sort(packets.keys)
		if len(packets.keys) <= perQueue {
			for _, q := range packets.keys {
				c.put(fmt.Sprintf("%s queue %d", what, q), *packets.at(q)/ns*1e9, PerSecond)
			}
		}
		c.tell(what+" queues, drops", drops, Times)
	}
	queues("receive", func(d *machine.Device) []device.QueueCounter { return d.Rx })
	queues("transmit", func(d *machine.Device) []device.QueueCounter { return d.Tx })
	type class struct{ bytes, drops float64 }
	var classes tally[string, class]
	for _, d := range all {
		if d.Device == nil {
			continue
		}
		for _, x := range d.Device.Classes {
			s := classes.at(x.ID)
			s.bytes += float64(x.Bytes)
			s.drops += float64(x.Drops)
		}
	}
	slices.Sort(classes.keys)
	for _, id := range classes.keys {
		c.put("class "+id, classes.at(id).bytes*8/ns*1e9, BitsPerS)
		c.put("class "+id+", drops", classes.at(id).drops, Times)
	}
}
