// SPDX-License-Identifier: Apache-2.0

// Package count counts the packets of one device by lane and queue while it is
// open: with two eBPF programs at tracepoints, which know flows, change no
// packet, stand in nobody's chain of filters and vanish with the process. It
// needs the kernel's BTF and Linux 5.17 (bpf_loop). It refuses to guess: a
// packet whose headers it cannot reach is counted as unread, not as nobody's.
package count

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// A Lane is what to tell apart. Lanes are numbered from 1 in the order given;
// 0 is what belongs to none.
type Lane struct {
	// Class is the lane's HTB class, or one of mqprio's priorities, as
	// skb->priority has it, 0 for none.
	Class uint32
	// ByClass: what is sent with Class and matches no lane is this one's, as
	// where a lane is a control group. What it receives is not told apart.
	ByClass bool
	// Matches are the lane's packets, as this host sees them.
	Matches []device.Match
	// Fragments: of the packets of Matches with ports, these are fragments,
	// which have none, as far as they are no other lane's.
	Fragments bool
}

// Unread is the number of the lane of packets that could not be read.
const Unread = -1

// A Cell counts the packets of one lane in one column: a receive queue, a
// transmit queue, or the lane of an HTB class, a processor.
type Cell struct {
	Lane   int
	Column int
	Count
}

// A Count is of packets as on the wire (segments, not GSO units); bytes are
// those of the GSO units. Bare are the packets of TCP without data.
type Count struct {
	Packets, Bytes, Bare uint64
}

// Counts are the cells that are not zero, by lane and column.
type Counts struct {
	Received []Cell // column: receive queue
	Sent     []Cell // column: transmit queue
	Classed  []Cell // column: lane of the class that the packet is sent in, 0 for none of the lanes'
	// Direct and Handed are by processor: what the stack took from the
	// driver, and from a cpumap. In generic mode what is handed was direct
	// before.
	Direct, Handed []Cell
	// Missed is how many packets the programs did not get to see, because
	// they were interrupted by themselves.
	Missed uint64
}

// A Watcher counts until it is closed.
type Watcher struct {
	objs    watchObjects
	flows   *flows
	links   []link.Link
	lanes   int // rows
	columns int
}

const (
	maxPatterns = 64      // MAX_PATTERNS of c/watch.c
	alone       = 1 << 31 // ALONE
)

// Open begins to count the packets of d, in the calling thread's network
// namespace. A kernel without BTF is ebpf.ErrNotSupported, a missing privilege
// EPERM.
func Open(d *device.Device, lanes []Lane) (*Watcher, error) { return open(d, lanes, false) }

// OpenTransmit is Open for what leaves alone: what arrives costs nothing then.
func OpenTransmit(d *device.Device, lanes []Lane) (*Watcher, error) { return open(d, lanes, true) }

func open(d *device.Device, lanes []Lane, transmit bool) (*Watcher, error) {
	flows, err := encode(lanes)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", d.Name, err)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", d.Name, err)
	}
	w := &Watcher{flows: flows, lanes: len(lanes) + 2, columns: max(d.RxQueues, d.TxQueues, len(lanes)+1, cpus) + 1}
	if err := w.open(d, lanes, flows, transmit); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", d.Name, err), w.Close())
	}
	return w, nil
}

func (w *Watcher) open(d *device.Device, lanes []Lane, f *flows, transmit bool) error {
	spec, err := loadWatch()
	if err != nil {
		return err
	}
	var ns unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &ns); err != nil {
		return err
	}
	// veth leaves the sender's transmit queue where drivers record the
	// receive queue, plus one (47e550e0105b "veth: Do not record rx queue
	// hint in veth_xmit").
	recorded := uint32(1)
	if d.Driver == "veth" {
		recorded = 0
	}
	var mode uint32
	if x, ok := d.XDP(); ok {
		mode = map[string]uint32{"native": 1, "generic": 2}[x.Mode]
	}
	for name, v := range map[string]uint32{
		"xdp":     mode,
		"ifindex": uint32(d.Index), "netns": uint32(ns.Ino), "recorded": recorded,
		"patterns": uint32(len(f.masks)), "lanes": uint32(w.lanes), "columns": uint32(w.columns),
	} {
		if err := spec.Variables[name].Set(v); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	spec.Maps["watch_flows"].MaxEntries = uint32(max(len(f.keys), 1))
	spec.Maps["watch_classes"].MaxEntries = uint32(len(lanes) + 1)
	spec.Maps["watch_counts"].MaxEntries = uint32(directions * w.lanes * w.columns)
	if err := spec.LoadAndAssign(&w.objs, nil); err != nil {
		return err
	}
	if err := w.fill(lanes, f); err != nil {
		return err
	}
	programs := []*ebpf.Program{w.objs.WatchTransmit}
	if !transmit {
		programs = append(programs, w.objs.WatchReceive)
	}
	for _, p := range programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return err
		}
		w.links = append(w.links, l)
	}
	return nil
}

func (w *Watcher) fill(lanes []Lane, f *flows) error {
	for i := range f.masks {
		if err := w.objs.WatchPatterns.Put(uint32(i), f.masks[i]); err != nil {
			return fmt.Errorf("pattern: %w", err)
		}
	}
	for key, lane := range f.keys {
		if err := w.objs.WatchFlows.Put(key, lane); err != nil {
			return fmt.Errorf("flow: %w", err)
		}
	}
	for i, l := range lanes {
		if l.Class == 0 {
			continue
		}
		lane := uint32(i + 1)
		if l.ByClass {
			lane |= alone
		}
		if err := w.objs.WatchClasses.Put(l.Class, lane); err != nil {
			return fmt.Errorf("class: %w", err)
		}
	}
	return nil
}

// LaneOf gives the number of the lane that packets count as which have all of
// one flow: both addresses whole, and ports.
func (w *Watcher) LaneOf(flow device.Match) (int, error) { return w.flows.laneOf(flow) }

// Close ends counting.
func (w *Watcher) Close() error {
	var errs []error
	for _, l := range w.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, w.objs.Close())...)
}

// Drain counts no more packets from the driver, so that those that are on
// their way through a cpumap can be counted at its end.
func (w *Watcher) Drain() error { return w.objs.Draining.Set(uint32(1)) }

// The directions of c/watch.c: RECEIVED, SENT, CLASSED, DIRECT, HANDED.
const directions = 5

// sent is SENT.
const sent = 1

// Sent returns what left since Open, by lane and transmit queue.
func (w *Watcher) Sent() ([]Cell, error) { return w.cells(sent) }

// Counts returns what was counted since Open.
func (w *Watcher) Counts() (c Counts, err error) {
	for direction, to := range []*[]Cell{&c.Received, &c.Sent, &c.Classed, &c.Direct, &c.Handed} {
		if *to, err = w.cells(direction); err != nil {
			return c, err
		}
	}
	for _, p := range []*ebpf.Program{w.objs.WatchReceive, w.objs.WatchTransmit} {
		if s, err := p.Stats(); err == nil {
			c.Missed += s.RecursionMisses
		}
	}
	return c, nil
}

func (w *Watcher) cells(direction int) ([]Cell, error) {
	var out []Cell
	for lane := range w.lanes {
		for column := range w.columns {
			n, err := w.count((direction*w.lanes+lane)*w.columns + column)
			if err != nil {
				return nil, err
			}
			if n.Packets == 0 {
				continue
			}
			cell := Cell{Lane: lane, Column: column, Count: n}
			if lane == w.lanes-1 {
				cell.Lane = Unread
			}
			out = append(out, cell)
		}
	}
	return out, nil
}

func (w *Watcher) count(i int) (Count, error) {
	var sum Count
	var perCPU []Count
	if err := w.objs.WatchCounts.Lookup(uint32(i), &perCPU); err != nil {
		return sum, fmt.Errorf("counter %d: %w", i, err)
	}
	for _, n := range perCPU {
		sum.Packets += n.Packets
		sum.Bytes += n.Bytes
		sum.Bare += n.Bare
	}
	return sum, nil
}
