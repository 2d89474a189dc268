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

// A Moment has all counters at one moment. Counters that this machine does not have are left out.
type Moment struct {
	Counters map[string]device.Counters // by device
	// Arrived counts the packets of a lane that niclane's XDP program has seen, by device and lane.
	Arrived map[string]map[string]device.QueueCounter
	// Received and Sent count the packets of each lane in each queue, by device. The counters come
	// from niclane's XDP program (Received) and classifier (Sent), or from programs that watch the
	// traffic.
	Received, Sent map[string]map[LaneQueue]device.QueueCounter
	// Handlers are the PIDs of the kernel threads that empty the cpumap of niclane's XDP program, by
	// device and processor.
	Handlers map[string]map[int]int
	// Interrupts maps an IRQ to its interrupts on all processors.
	Interrupts map[int]uint64
	// Threads are the threads by PID.
	Threads map[int]Thread
	// Polls counts the polls of niclane's own pollers, by the PID of the polling thread.
	Polls map[int]uint64
}

// AnyQueue stands for a queue that is not known.
const AnyQueue = -1

// A LaneQueue is a lane, and a queue in which packets of that lane were seen. The queue may
// belong to another lane. It is AnyQueue if it is not known.
type LaneQueue struct {
	Lane  string
	Queue int
}

// A Thread is a kernel thread that polls.
type Thread struct {
	// State is the kernel's letter for the thread's state: R running, S sleeping, D waiting.
	State string `json:"state"`
	// Voluntary and Involuntary count context switches since its start.
	Voluntary, Involuntary uint64 `json:"-"`
	// CPU is the processor time that the thread has used, in ns.
	CPU uint64 `json:"-"`
}

// A Row has the rates of one line of the table: of a lane, of one of its queues, or of its class.
type Row struct {
	Device string `json:"device"`
	Lane   string `json:"lane"`
	// What is what the row counts: "lane"; "queue"; "class"; "xdp", the lane's packets as niclane's
	// XDP program counts them; "processor", one to which that program moves packets. "received" and
	// "sent" count only packets of this lane, in one queue of any lane; a queue without such packets
	// has no row.
	What string `json:"what"`
	// Owner is the lane that has the transmit queue, if it is not the row's lane: a packet left by
	// another lane's queue. "" if it is the row's lane, or if all lanes share all queues.
	Owner string `json:"owner,omitempty"`
	// Number is the number of the queue or processor; -1 for other rows and for AnyQueue.
	Number     int      `json:"number"`
	Rx         *Rate    `json:"rx,omitempty"`
	Tx         *Rate    `json:"tx,omitempty"`
	Interrupts *float64 `json:"interruptsPerSecond,omitempty"`
	// Poller is what polls the queue, or works on the processor. It is nil if there is none or if it
	// is not known. It is also nil for the queues of a lane that has processors instead of receive
	// queues.
	Poller *Poller `json:"poller,omitempty"`
}

// A Rate has rates per second.
type Rate struct {
	Packets float64 `json:"packetsPerSecond"`
	Bytes   float64 `json:"bytesPerSecond"`
	Drops   float64 `json:"dropsPerSecond"`
}

// A Poller is the thread or softirq that polls a queue, and its cost.
type Poller struct {
	NAPI uint32 `json:"napi,omitempty"`
	// PID is the PID of the polling thread. 0: softirq polls, for which there are no counters per
	// queue.
	PID int `json:"pid,omitempty"`
	// Driver says that the driver itself polls the queue, by the NAPI of this or of another queue.
	Driver bool `json:"driver,omitempty"`
	// Doing is what niclane's own poller reports about its thread.
	Doing       string  `json:"doing,omitempty"`
	State       string  `json:"state,omitempty"`
	CPU         float64 `json:"cpu"` // share of one processor, 0 to 1
	Voluntary   float64 `json:"voluntarySwitchesPerSecond"`
	Involuntary float64 `json:"involuntarySwitchesPerSecond"`
	// Polls is the number of polls per second of niclane's own poller; nil for other pollers.
	Polls *float64 `json:"pollsPerSecond,omitempty"`
}

// Rates returns the rates between two moments. ns is the time between them in ns. Each lane has a
// row, followed by rows for its class and its queues.
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

// queues returns the sum of the rates of these queues. It returns nil if none of them has
// counters.
func (r rates) queues(dev string, queues []int, of func(device.Counters) []device.QueueCounter) *Rate {
	t := sum(queues, Sample{Before: r.before.Counters[dev], Now: r.now.Counters[dev]}, of)
	return r.rate(t)
}

// transmitted returns the rate of the lane's transmit queues. It returns nil if the lane sends by
// the queue of its HTB class on the card, which is another queue.
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

// passed returns a row for each queue in which packets of lane l were counted. owners are the
// lanes that can own such a queue; with nil, Owner stays empty.
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

// owner returns the name of the lane that has the queue, "" if that is l or none.
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
		before = 0 // the counter was reset and counts from zero
	}
	if r.ns <= 0 {
		return 0
	}
	return float64(now-before) * 1e9 / float64(r.ns)
}

// interrupts returns the rate of the queue's interrupts. It returns nil if none are counted.
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

// handed reports whether the lane has processors instead of receive queues.
func (r rates) handed(l plan.FittedLane) bool {
	return len(r.now.Handlers[l.Device]) > 0 && l.Name != intent.DefaultLane
}

func (r rates) poller(l plan.FittedLane, queue int) *Poller {
	d := r.st.Device(l.Device)
	if d == nil || r.handed(l) {
		return nil
	}
	by := d.DriverPoller(queue)
	lead := queue
	if by != nil {
		lead = by.Queues[0]
	}
	i := slices.IndexFunc(d.NAPIs, func(n device.NAPI) bool { return n.Config.Queue == lead })
	if i < 0 {
		return nil
	}
	p := &Poller{NAPI: d.NAPIs[i].ID, PID: d.NAPIs[i].PID, Driver: by != nil}
	if own := d.PollerOf(queue); own != nil {
		p.PID, p.Doing = own.Thread, own.Doing
		if was, ok := r.before.Polls[own.Thread]; ok {
			polls := r.per(was, r.now.Polls[own.Thread])
			p.Polls = &polls
		}
	}
	return r.thread(p)
}

// thread adds the rates of the polling thread to p.
func (r rates) thread(p *Poller) *Poller {
	now, ok := r.now.Threads[p.PID]
	if p.PID == 0 || !ok {
		return p
	}
	was, ok := r.before.Threads[p.PID]
	if !ok {
		was = now // the thread has just begun
	}
	p.State = now.State
	p.Voluntary, p.Involuntary = r.per(was.Voluntary, now.Voluntary), r.per(was.Involuntary, now.Involuntary)
	p.CPU = r.per(was.CPU, now.CPU) / 1e9
	return p
}

// WriteRates prints the rows as a table for people.
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

// what returns the text in the table that identifies the row within its lane.
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

// columns returns the texts of three columns: what polls, its share of a processor, and its
// voluntary and involuntary context switches per second.
func (p *Poller) columns() (who, cpu, switches string) {
	switch {
	case p == nil:
		return "-", "-", "-"
	case p.PID == 0 && p.Driver:
		return "driver", "-", "-"
	case p.PID == 0:
		return "softirq", "-", "-"
	case p.State == "":
		return "thread " + strconv.Itoa(p.PID), "-", "-"
	}
	who = fmt.Sprintf("thread %d %s", p.PID, p.State)
	if p.Driver {
		who = "driver's " + who
	}
	if p.Doing != "" {
		who = fmt.Sprintf("poller %d %s", p.PID, p.Doing)
	}
	return who, fmt.Sprintf("%.0f%%", p.CPU*100), fmt.Sprintf("%.0f+%.0f", p.Voluntary, p.Involuntary)
}
