// SPDX-License-Identifier: Apache-2.0

// Package count counts the packets of one device by lane and queue while a Watcher is open. Two
// eBPF programs at tracepoints look up each packet's flow. They change no packet, are not part
// of a chain of filters, and end with the process. The package needs the kernel's BTF and Linux
// 5.17 (bpf_loop). It does not guess: if it cannot read a packet's headers, it counts the packet
// as unread, not as a packet of no lane.
package count

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

// A Lane describes packets to count separately. Lanes are numbered from 1 in the order given; 0
// is for packets of no lane.
type Lane struct {
	// Class is the lane's HTB class or mqprio priority, as in skb->priority; 0 for none.
	Class uint32
	// ByClass means that a sent packet with the class Class belongs to this lane if it matches
	// no lane. Lanes of control groups need this. The received packets of such a lane are not
	// counted separately.
	ByClass bool
	// Matches describe the lane's packets, as this host sees them.
	Matches []device.Match
	// SentOnly means that Matches hold only for sent packets, and go before those of all other
	// lanes.
	SentOnly bool
	// Marks means that the lane's sent packets are also counted by DSCP, and by PCP.
	Marks bool
	// Fragments means that the lane's packets are fragments of the packets that match Matches.
	// Only matches with ports count. Fragments have no ports, so the programs compare their
	// other fields. A fragment that matches another lane belongs to that lane.
	Fragments bool
}

// Unread is the lane number of packets that could not be read.
const Unread = -1

// A Cell counts the packets of one lane in one column: a receive queue, a transmit queue, the
// lane of an HTB class, or a CPU.
type Cell struct {
	Lane   int
	Column int
	Count
}

// A Count is a number of packets. Packets counts segments as on the wire; Bytes counts the bytes
// of GSO packets, which are not yet divided into segments. Bare counts TCP packets without data.
type Count struct {
	Packets, Bytes, Bare uint64
}

// Counts are the cells that are not zero, ordered by lane and column.
type Counts struct {
	Received []Cell // column: receive queue
	Sent     []Cell // column: transmit queue
	Classed  []Cell // column: lane of the packet's class, 0 if the class is of no lane
	// Marked are the packets of Sent of lanes with Marks. Their column is the DSCP of the outermost IP
	// header. They have no bytes.
	Marked []Cell
	// Tagged are those of Marked's packets that have a VLAN tag. Their column is the PCP of the outermost
	// tag.
	Tagged []Cell
	// Direct are the packets that the stack took from the driver, Handed those that it took
	// from a cpumap. Their column is the CPU. In generic mode, Direct also counts the packets
	// of Handed.
	Direct, Handed []Cell
	// Missed is the number of packets that the programs did not see, because they were already
	// running on that CPU (recursion).
	Missed uint64
}

// A Watcher counts until it is closed.
type Watcher struct {
	objs    watchObjects
	flows   *flows
	links   []link.Link
	lanes   int // number of rows
	columns int
	marks   []int // lanes with Marks
}

const (
	maxPatterns = 64      // MAX_PATTERNS of c/watch.c
	alone       = 1 << 31 // ALONE
)

// Open starts to count the packets of d, also those inside d.Tunnels, in the calling thread's network
// namespace. The error is ebpf.ErrNotSupported if the kernel has no BTF, and EPERM without the privilege.
func Open(d *device.Device, lanes []Lane) (*Watcher, error) { return open(d, lanes, false) }

// OpenTransmit is Open for sent packets only: received packets then have no cost.
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
	for i, l := range lanes {
		if l.Marks {
			w.marks = append(w.marks, i+1)
		}
	}
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
	// Drivers record the receive queue plus one. veth leaves the sender's transmit queue in the
	// same field (47e550e0105b "veth: Do not record rx queue hint in veth_xmit").
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
		"patterns": uint32(len(f.masks)), "sent_only": uint32(f.sentOnly), "marks": uint32(len(w.marks)),
		"lanes": uint32(w.lanes), "columns": uint32(w.columns),
	} {
		if err := spec.Variables[name].Set(v); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(d.Tunnels) > 0 { // niclane's programs on one device have the same tunnels
		t, err := flow.EncodeTunnels(d.Tunnels[0].Tunnels)
		if err == nil {
			err = spec.Variables["tunnels"].Set(t)
		}
		if err != nil {
			return fmt.Errorf("tunnels: %w", err)
		}
	}
	spec.Maps["watch_flows"].MaxEntries = uint32(max(len(f.keys), 1))
	spec.Maps["watch_classes"].MaxEntries = uint32(len(lanes) + 1)
	spec.Maps["watch_counts"].MaxEntries = uint32(directions * w.lanes * w.columns)
	spec.Maps["watch_dscp"].MaxEntries = uint32(w.lanes * dscps)
	spec.Maps["watch_pcp"].MaxEntries = uint32(w.lanes * pcps)
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

// LaneOf returns the number of the lane for which the programs count packets of a flow. flow
// must have two complete addresses and two ports.
func (w *Watcher) LaneOf(flow device.Match) (int, error) { return w.flows.laneOf(flow) }

// Close stops counting.
func (w *Watcher) Close() error {
	var errs []error
	for _, l := range w.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, w.objs.Close())...)
}

// Drain makes the programs count no new packets from the driver. They still count the packets
// that are on their way through a cpumap.
func (w *Watcher) Drain() error { return w.objs.Draining.Set(uint32(1)) }

// The directions of c/watch.c: RECEIVED, SENT, CLASSED, DIRECT, HANDED.
const directions = 5

// sent is SENT.
const sent = 1

// Sent returns the packets sent since Open, by lane and transmit queue.
func (w *Watcher) Sent() ([]Cell, error) { return w.cells(sent) }

// Counts returns the counters since Open.
func (w *Watcher) Counts() (c Counts, err error) {
	for direction, to := range []*[]Cell{&c.Received, &c.Sent, &c.Classed, &c.Direct, &c.Handed} {
		if *to, err = w.cells(direction); err != nil {
			return c, err
		}
	}
	if c.Marked, err = w.marked(w.objs.WatchDscp, dscps); err != nil {
		return c, fmt.Errorf("DSCP: %w", err)
	}
	if c.Tagged, err = w.marked(w.objs.WatchPcp, pcps); err != nil {
		return c, fmt.Errorf("PCP: %w", err)
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

// The numbers of DSCPs and PCPs.
const (
	dscps = device.MaxDSCP + 1
	pcps  = device.MaxPCP + 1
)

// marked returns the packets of lanes with Marks, by DSCP or PCP: from a map that has so many of them for
// each lane.
func (w *Watcher) marked(from *ebpf.Map, each int) ([]Cell, error) {
	var out []Cell
	for _, lane := range w.marks {
		for mark := range each {
			var perCPU []uint64
			if err := from.Lookup(uint32(lane*each+mark), &perCPU); err != nil {
				return nil, fmt.Errorf("%d of lane %d: %w", mark, lane, err)
			}
			cell := Cell{Lane: lane, Column: mark}
			for _, n := range perCPU {
				cell.Packets += n
			}
			if cell.Packets > 0 {
				out = append(out, cell)
			}
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
