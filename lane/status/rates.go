// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
)

// A Moment is everything that was counted at one moment. What is not counted
// on this machine is not in it.
type Moment struct {
	Counters map[string]device.Counters // by device
	// Arrived is what niclane's XDP program counted, by device and lane.
	Arrived map[string]map[string]device.QueueCounter
	// Received and Sent count by device, lane and queue: what arrived as
	// niclane's XDP program counts it, and what left as its classifier counts
	// it, or as it was watched.
	Received, Sent map[string]map[LaneQueue]device.QueueCounter
	// Handlers are the PIDs of the threads that empty the cpumap of niclane's
	// XDP program, by device and processor.
	Handlers map[string]map[int]int
	// Interrupts by IRQ, over all processors.
	Interrupts map[int]uint64
	// Threads by PID.
	Threads map[int]Thread
	// Polls of niclane's own pollers, by the PID of their threads.
	Polls map[int]uint64
}

// AnyQueue is the number of a queue that is not known.
const AnyQueue = -1

// A LaneQueue is where packets of one lane can be: its own queues, others', or
// AnyQueue.
type LaneQueue struct {
	Lane  string
	Queue int
}

// A Thread is a kernel thread that polls.
type Thread struct {
	// State is the kernel's letter: R running, S sleeping, D waiting.
	State string `json:"state"`
	// Voluntary and Involuntary are context switches since it began.
	Voluntary, Involuntary uint64 `json:"-"`
	// CPU is the processor time that it used, ns.
	CPU uint64 `json:"-"`
}

// A Row is one lane, one of its queues or its class, per second.
type Row struct {
	Device string `json:"device"`
	Lane   string `json:"lane"`
	// What is "lane", "queue", "class", "xdp" (what niclane's XDP program
	// counted as the lane's), "processor" (that it hands the lane's to),
	// "received" or "sent" (the lane's packets alone, in one queue,
	// whoever's it is; where none were there is no row).
	What string `json:"what"`
	// Owner is the other lane that has the transmit queue by which the lane's
	// packets left; "" if it is the lane's own, or all lanes have all queues.
	Owner string `json:"owner,omitempty"`
	// Number of the queue or processor, -1 for others, and AnyQueue.
	Number     int      `json:"number"`
	Rx         *Rate    `json:"rx,omitempty"`
	Tx         *Rate    `json:"tx,omitempty"`
	Interrupts *float64 `json:"interruptsPerSecond,omitempty"`
	// Poller of a queue or processor: nil where there is none, or it is not
	// known; the queues of lanes that are processors are everybody's.
	Poller *Poller `json:"poller,omitempty"`
}

// A Rate is per second.
type Rate struct {
	Packets float64 `json:"packetsPerSecond"`
	Bytes   float64 `json:"bytesPerSecond"`
	Drops   float64 `json:"dropsPerSecond"`
}

// A Poller is who polls a queue, and what that costs.
type Poller struct {
	NAPI uint32 `json:"napi,omitempty"`
	// PID of its thread; 0: softirq, of which nothing is counted by queue.
	PID int `json:"pid,omitempty"`
	// Doing is what a process of niclane's says that its thread does.
	Doing       string  `json:"doing,omitempty"`
	State       string  `json:"state,omitempty"`
	CPU         float64 `json:"cpu"` // of one processor, 0 to 1
	Voluntary   float64 `json:"voluntarySwitchesPerSecond"`
	Involuntary float64 `json:"involuntarySwitchesPerSecond"`
	// Polls of niclane's own poller, nil for others.
	Polls *float64 `json:"pollsPerSecond,omitempty"`
}

// Rates gives what happened per second between two moments, ns apart: a row
// for each lane, its class and its queues.
func Rates(lanes []plan.FittedLane, st *device.State, before, now Moment, ns int64) []Row {
	r := rates{st: st, before: before, now: now, ns: ns}
	var out []Row
	for _, l := range lanes {
		row := Row{Device: l.Device, Lane: l.Name, What: "lane", Number: -1}
		row.Rx, row.Tx = r.queues(l.Device, l.Queues, receive), r.transmitted(l.Device, l.Queues)
		out = append(out, row)
		if x := r.arrived(l); x != nil {
			out = append(out, Row{Device: l.Device, Lane: l.Name, What: "xdp", Number: -1, Rx: x})
		}
		if c := r.class(l); c != nil {
			out = append(out, Row{Device: l.Device, Lane: l.Name, What: "class", Number: -1, Tx: c})
		}
		for _, q := range l.Queues {
			one := []int{q}
			out = append(out, Row{
				Device: l.Device, Lane: l.Name, What: "queue", Number: q,
				Rx: r.queues(l.Device, one, receive), Tx: r.transmitted(l.Device, one),
				Interrupts: r.interrupts(l, q), Poller: r.poller(l, q),
			})
		}
		out = append(out, r.passed(l, "received", r.before.Received[l.Device], r.now.Received[l.Device], nil)...)
		out = append(out, r.passed(l, "sent", r.before.Sent[l.Device], r.now.Sent[l.Device], lanes)...)
		for _, cpu := range l.CPUs {
			if pid, ok := r.now.Handlers[l.Device][cpu]; ok && l.Name != intent.DefaultLane {
				out = append(out, Row{Device: l.Device, Lane: l.Name, What: "processor", Number: cpu,
					Poller: r.thread(&Poller{PID: pid})})
			}
		}
	}
	return out
}

type rates struct {
	st          *device.State
	before, now Moment
	ns          int64
}

func receive(c device.Counters) []device.QueueCounter  { return c.Rx }
func transmit(c device.Counters) []device.QueueCounter { return c.Tx }

// queues adds the rates of queues; nil if none of them is counted.
func (r rates) queues(dev string, queues []int, of func(device.Counters) []device.QueueCounter) *Rate {
	t := sum(queues, Sample{Before: r.before.Counters[dev], Now: r.now.Counters[dev]}, of)
	return r.rate(t)
}

// transmitted is what lanes sent by queues of theirs; nil where they leave by
// others'.
func (r rates) transmitted(dev string, queues []int) *Rate {
	if byClass(r.st, dev) {
		return nil
	}
	return r.queues(dev, queues, transmit)
}

func (r rates) class(l plan.FittedLane) *Rate {
	t, _ := class(l.Class, Sample{Before: r.before.Counters[l.Device], Now: r.now.Counters[l.Device]})
	return r.rate(t)
}

func (r rates) rate(t *Traffic) *Rate {
	if t == nil {
		return nil
	}
	return &Rate{Packets: t.PacketsPerSecond, Bytes: t.BytesPerSecond, Drops: t.DropsPerSecond}
}

func (r rates) arrived(l plan.FittedLane) *Rate {
	now, ok := r.now.Arrived[l.Device][l.Name]
	if !ok {
		return nil
	}
	return r.rate(traffic(device.QueueCounter{}, r.before.Arrived[l.Device][l.Name], now, r.ns))
}

// passed gives a row for each queue in which packets of a lane were. owners are
// the lanes, if queues are theirs.
func (r rates) passed(l plan.FittedLane, what string, before, now map[LaneQueue]device.QueueCounter,
	owners []plan.FittedLane) []Row {
	var out []Row
	for at, c := range now {
		was := before[at]
		if at.Lane != l.Name || c.Packets == was.Packets {
			continue
		}
		row := Row{Device: l.Device, Lane: l.Name, What: what, Number: at.Queue, Owner: owner(owners, l, at.Queue)}
		if rate := r.rate(traffic(device.QueueCounter{}, was, c, r.ns)); what == "sent" {
			row.Tx = rate
		} else {
			row.Rx = rate
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b Row) int { return a.Number - b.Number })
	return out
}

// owner names the lane that has a queue, if it is another than l.
func owner(lanes []plan.FittedLane, l plan.FittedLane, queue int) string {
	if slices.Contains(l.Queues, queue) {
		return ""
	}
	for _, o := range lanes {
		if o.Device == l.Device && slices.Contains(o.Queues, queue) {
			return o.Name
		}
	}
	return ""
}

func (r rates) per(before, now uint64) float64 {
	if now < before {
		before = 0 // made anew
	}
	if r.ns <= 0 {
		return 0
	}
	return float64(now-before) * 1e9 / float64(r.ns)
}

// interrupts adds those of a queue's IRQs; nil if it has none.
func (r rates) interrupts(l plan.FittedLane, queue int) *float64 {
	d := r.st.Device(l.Device)
	if d == nil || r.handed(l) {
		return nil
	}
	var total float64
	some := false
	for _, i := range d.IRQs {
		now, counted := r.now.Interrupts[i.Number]
		if i.Queue != queue || !counted {
			continue
		}
		total, some = total+r.per(r.before.Interrupts[i.Number], now), true
	}
	if !some {
		return nil
	}
	return &total
}

// handed reports whether a lane is processors, and not receive queues.
func (r rates) handed(l plan.FittedLane) bool {
	return len(r.now.Handlers[l.Device]) > 0 && l.Name != intent.DefaultLane
}

func (r rates) poller(l plan.FittedLane, queue int) *Poller {
	d := r.st.Device(l.Device)
	if d == nil || r.handed(l) {
		return nil
	}
	i := slices.IndexFunc(d.NAPIs, func(n device.NAPI) bool { return n.Config.Queue == queue })
	if i < 0 {
		return nil
	}
	p := &Poller{NAPI: d.NAPIs[i].ID, PID: d.NAPIs[i].PID}
	if own := d.PollerOf(queue); own != nil {
		p.PID, p.Doing = own.Thread, own.Doing
		if was, ok := r.before.Polls[own.Thread]; ok {
			polls := r.per(was, r.now.Polls[own.Thread])
			p.Polls = &polls
		}
	}
	return r.thread(p)
}

// thread adds what the poller's thread did.
func (r rates) thread(p *Poller) *Poller {
	now, ok := r.now.Threads[p.PID]
	if p.PID == 0 || !ok {
		return p
	}
	was, ok := r.before.Threads[p.PID]
	if !ok {
		was = now // it has just begun
	}
	p.State = now.State
	p.Voluntary, p.Involuntary = r.per(was.Voluntary, now.Voluntary), r.per(was.Involuntary, now.Involuntary)
	p.CPU = r.per(was.CPU, now.CPU) / 1e9
	return p
}

// WriteRates prints rows as a table for people.
func WriteRates(w io.Writer, rows []Row) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "DEVICE\tLANE\t\tRX/S\tMBIT/S\tDROPS/S\tTX/S\tMBIT/S\tDROPS/S\tIRQ/S\t"+
		"POLLED BY\tCPU\tSWITCHES/S\t")
	for _, r := range rows {
		irq := "-"
		if r.Interrupts != nil {
			irq = fmt.Sprintf("%.0f", *r.Interrupts)
		}
		who, cpu, switches := r.Poller.columns()
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Device, r.Lane, r.what(), r.Rx.columns(),
			r.Tx.columns(), irq, who, cpu, switches)
	}
	return tw.Flush()
}

// what names the row within its lane.
func (r Row) what() string {
	what := r.What
	switch {
	case r.What == "lane":
		return ""
	case r.What == "sent" && r.Number == AnyQueue:
		return "sent, any queue"
	case r.Number >= 0:
		what += " " + strconv.Itoa(r.Number)
	}
	if r.Owner != "" {
		what += " of " + r.Owner
	}
	return what
}

func (r *Rate) columns() string {
	if r == nil {
		return "-\t-\t-"
	}
	return fmt.Sprintf("%.0f\t%.1f\t%.0f", r.Packets, r.Bytes*8/1e6, r.Drops)
}

// columns says who polls, what of a processor that takes, and how often it is
// switched to: of its own will, and by force.
func (p *Poller) columns() (who, cpu, switches string) {
	switch {
	case p == nil:
		return "-", "-", "-"
	case p.PID == 0:
		return "softirq", "-", "-"
	case p.State == "":
		return "thread " + strconv.Itoa(p.PID), "-", "-"
	}
	who = fmt.Sprintf("thread %d %s", p.PID, p.State)
	if p.Doing != "" {
		who = fmt.Sprintf("poller %d %s", p.PID, p.Doing)
	}
	return who, fmt.Sprintf("%.0f%%", p.CPU*100), fmt.Sprintf("%.0f+%.0f", p.Voluntary, p.Involuntary)
}
