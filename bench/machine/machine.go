// SPDX-License-Identifier: Apache-2.0

// Package machine records what a host did during a measurement. It has processor time by kind,
// interrupts, softirqs, context switches, and the counters of the network stack and TCP. It
// also has a device's queues, lanes and polls, and the resource use and waiting time of selected
// processes. It only reads counters before and after the measurement. It does not judge them.
package machine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/internal/traffic/napi"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
)

// Config says what to read in addition to the host itself.
type Config struct {
	// Processes are PIDs by name. They are read with all their threads.
	Processes map[string]int
	// Device is the network device whose queues and classes are read; "": none. The device and
	// the counters of TCP and UDP are those of the calling thread's network namespace.
	Device string
	// Cards are further devices, which are read like Device.
	Cards []string
	// Polls count the polls of the NAPIs of Device and Cards; none: they are not counted.
	Polls []*napi.Counter
}

// LaneQueues are a lane's queues and class on a device.
type LaneQueues struct {
	Name   string
	Device string
	// Rx and Tx are numbers of queues. Rx is nil if the lane has no receive queues of its own.
	Rx, Tx []int
	Class  string // "1:10", "" for none
}

// A Snapshot is the counters at one moment.
type Snapshot struct {
	at        int64 // CLOCK_MONOTONIC, ns
	stat      procfs.Stat
	softnet   []procfs.SoftnetStat
	snmp      procfs.ProcSnmp
	netstat   procfs.ProcNetstat
	device    *device.Counters
	cards     []device.Counters // of the device and the further cards; none without such cards
	processes map[string]process
	pids      map[string]int
	polls     []napi.Count
	memory    Memory
	tls       *KernelTLS
}

// process is the resource use of a process and its descendants. threads are those that exist now.
type process struct {
	user, system       float64 // s
	diskRead           uint64  // bytes
	threads            map[int]threadUse
	minorFaults, start uint64
}

type threadUse struct {
	running, waiting       uint64 // ns
	voluntary, involuntary uint64
}

// Take reads the counters. For a process that has ended, the error is fs.ErrNotExist.
func Take(c Config) (*Snapshot, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	s := &Snapshot{at: thread.Monotonic(), processes: map[string]process{}, pids: maps.Clone(c.Processes)}
	if s.stat, err = fs.Stat(); err != nil {
		return nil, fmt.Errorf("/proc/stat: %w", err)
	}
	// /proc/TID/net shows the network namespace of the calling thread. Other threads of this
	// process may be in another one.
	self, err := fs.Proc(unix.Gettid())
	if err != nil {
		return nil, err
	}
	var errs []error
	s.memory, err = readMemory()
	errs = append(errs, err)
	s.tls, err = readTLS()
	errs = append(errs, err)
	s.softnet, err = fs.NetSoftnetStat()
	errs = append(errs, err)
	s.snmp, err = self.Snmp()
	errs = append(errs, err)
	s.netstat, err = self.Netstat()
	errs = append(errs, err)
	if c.Device != "" {
		counters, err := observe.Counters(c.Device)
		errs = append(errs, err)
		s.device = &counters
	}
	for i, card := range c.Cards {
		if i == 0 {
			s.cards = append(s.cards, *s.device)
		}
		counters, err := observe.Counters(card)
		errs = append(errs, err)
		s.cards = append(s.cards, counters)
	}
	for _, p := range c.Polls {
		polls, err := p.Read()
		errs = append(errs, err)
		s.polls = append(s.polls, polls...)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Processes)) {
		p, err := readProcess(fs, c.Processes[name])
		if err != nil {
			err = fmt.Errorf("%s (process %d): %w", name, c.Processes[name], err)
		}
		errs = append(errs, err)
		s.processes[name] = p
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

func readProcess(fs procfs.FS, pid int) (process, error) {
	p := process{threads: map[int]threadUse{}}
	whole, err := fs.Proc(pid)
	if err != nil {
		return p, err
	}
	st, err := whole.Stat()
	if err != nil {
		return p, err
	}
	p.start = st.Starttime
	for _, one := range family(fs, whole) {
		p.add(fs, one)
	}
	return p, nil
}

// family returns a process and all its descendants: servers have workers.
func family(fs procfs.FS, of procfs.Proc) []procfs.Proc {
	all, err := fs.AllProcs()
	if err != nil {
		return []procfs.Proc{of}
	}
	children := map[int][]procfs.Proc{}
	for _, p := range all {
		if st, err := p.Stat(); err == nil {
			children[st.PPID] = append(children[st.PPID], p)
		}
	}
	out := []procfs.Proc{of}
	for i := 0; i < len(out); i++ {
		out = append(out, children[out[i].PID]...)
	}
	return out
}

// add adds the use of one process to p. A process that has ended adds nothing.
func (p *process) add(fs procfs.FS, one procfs.Proc) {
	st, err := one.Stat()
	if err != nil {
		return
	}
	p.user, p.system = p.user+seconds(st.UTime), p.system+seconds(st.STime)
	p.minorFaults += uint64(st.MinFlt)
	if io, err := one.IO(); err == nil {
		p.diskRead += io.ReadBytes
	}
	threads, err := fs.AllThreads(one.PID)
	if err != nil {
		return
	}
	for _, t := range threads {
		sched, err1 := t.Schedstat()
		status, err2 := t.NewStatus()
		if err1 != nil || err2 != nil {
			continue // it has ended
		}
		p.threads[t.PID] = threadUse{
			running: sched.RunningNanoseconds, waiting: sched.WaitingNanoseconds,
			voluntary: status.VoluntaryCtxtSwitches, involuntary: status.NonVoluntaryCtxtSwitches,
		}
	}
}

// userHZ is the unit of processor time in the kernel's ABI (getconf CLK_TCK).
const userHZ = 100

func seconds(ticks uint) float64 { return float64(ticks) / userHZ }

func nanoseconds(s float64) int64 { return int64(s*1e9 + 0.5) }

// Since returns the change from before to s. Both must have been taken with the same Config. If a
// PID belongs to another process now than in before, that is an error.
func (s *Snapshot) Since(before *Snapshot) (Diff, error) {
	d := Diff{
		Duration:        s.at - before.at,
		ContextSwitches: s.stat.ContextSwitches - before.stat.ContextSwitches,
		Interrupts:      s.stat.IRQTotal - before.stat.IRQTotal,
		SoftIRQs: SoftIRQs{
			NetRx: s.stat.SoftIRQ.NetRx - before.stat.SoftIRQ.NetRx,
			NetTx: s.stat.SoftIRQ.NetTx - before.stat.SoftIRQ.NetTx,
			Timer: s.stat.SoftIRQ.Timer - before.stat.SoftIRQ.Timer,
			Sched: s.stat.SoftIRQ.Sched - before.stat.SoftIRQ.Sched,
			All:   s.stat.SoftIRQTotal - before.stat.SoftIRQTotal,
		},
	}
	for _, id := range slices.Sorted(maps.Keys(s.stat.CPU)) {
		if was, ok := before.stat.CPU[id]; ok {
			d.CPUs = append(d.CPUs, cpuBetween(int(id), was, s.stat.CPU[id]))
		}
	}
	for _, now := range s.softnet {
		i := slices.IndexFunc(before.softnet, func(b procfs.SoftnetStat) bool { return b.Index == now.Index })
		if i < 0 {
			continue
		}
		was := before.softnet[i] // counters of 32 bits, which wrap
		d.Softnet = append(d.Softnet, Softnet{
			CPU: int(now.Index), Processed: now.Processed - was.Processed, Dropped: now.Dropped - was.Dropped,
			TimeSqueezed: now.TimeSqueezed - was.TimeSqueezed, RPS: now.ReceivedRps - was.ReceivedRps,
		})
	}
	d.Memory = s.memory.since(before.memory)
	d.KernelTLS = s.tls.since(before.tls)
	d.TCP, d.UDP = s.protocols(before)
	if s.device != nil && before.device != nil {
		d.Device = deviceBetween(before.device, s.device)
	}
	for i := range min(len(s.cards), len(before.cards)) {
		d.Cards = append(d.Cards, Card{Device: deviceBetween(&before.cards[i], &s.cards[i])})
	}
	if len(d.Cards) > 0 {
		d.Device = together(d.Cards)
	}
	d.NAPIs = pollsBetween(before.polls, s.polls)
	for _, name := range slices.Sorted(maps.Keys(s.processes)) {
		p, err := processBetween(before.processes[name], s.processes[name])
		if err != nil {
			return Diff{}, fmt.Errorf("%s: %w", name, err)
		}
		p.Name, p.PID = name, s.pids[name]
		d.Processes = append(d.Processes, p)
	}
	return d, nil
}

// errAnother says that a PID belongs to another process than before.
var errAnother = errors.New("the process has ended, and another one has its number")

// less returns the growth of a counter, 0 if it fell. A sum over processes falls when one of them
// has ended.
func less(now, was uint64) uint64 {
	if now < was {
		return 0
	}
	return now - was
}

func processBetween(was, now process) (Process, error) {
	if was.start != now.start {
		return Process{}, errAnother
	}
	p := Process{
		User: nanoseconds(max(0, now.user-was.user)), System: nanoseconds(max(0, now.system-was.system)),
		MinorFaults: less(now.minorFaults, was.minorFaults), DiskRead: less(now.diskRead, was.diskRead),
		Threads: len(now.threads),
	}
	for tid, t := range now.threads {
		b := was.threads[tid] // zero for a new thread
		p.Running += int64(t.running - b.running)
		p.Waiting += int64(t.waiting - b.waiting)
		p.Voluntary += t.voluntary - b.voluntary
		p.Involuntary += t.involuntary - b.involuntary
	}
	return p, nil
}

func cpuBetween(id int, a, b procfs.CPUStat) CPU {
	return CPU{
		CPU: id, User: nanoseconds(b.User - a.User + b.Nice - a.Nice), System: nanoseconds(b.System - a.System),
		IRQ: nanoseconds(b.IRQ - a.IRQ), SoftIRQ: nanoseconds(b.SoftIRQ - a.SoftIRQ),
		Steal: nanoseconds(b.Steal - a.Steal),
		Idle:  nanoseconds(b.Idle - a.Idle + b.Iowait - a.Iowait),
	}
}

// count returns a counter's growth, 0 if the kernel does not have the counter.
func count(now, was *float64) uint64 {
	if now == nil || was == nil {
		return 0
	}
	return uint64(*now - *was)
}

func (s *Snapshot) protocols(b *Snapshot) (TCP, UDP) {
	return TCP{
			InSegments: count(s.snmp.InSegs, b.snmp.InSegs), OutSegments: count(s.snmp.OutSegs, b.snmp.OutSegs),
			Retransmits: count(s.snmp.RetransSegs, b.snmp.RetransSegs),
			Timeouts:    count(s.netstat.TCPTimeouts, b.netstat.TCPTimeouts),
			ListenDrops: count(s.netstat.ListenDrops, b.netstat.ListenDrops),
			BusyPolled:  count(s.netstat.BusyPollRxPackets, b.netstat.BusyPollRxPackets),
		}, UDP{
			InDatagrams:   count(s.snmp.Udp.InDatagrams, b.snmp.Udp.InDatagrams),
			OutDatagrams:  count(s.snmp.Udp.OutDatagrams, b.snmp.Udp.OutDatagrams),
			ReceiveErrors: count(s.snmp.Udp.RcvbufErrors, b.snmp.Udp.RcvbufErrors),
			SendErrors:    count(s.snmp.Udp.SndbufErrors, b.snmp.Udp.SndbufErrors),
		}
}

// deviceBetween returns the growth of a device's counters. It leaves out new queues and classes.
func deviceBetween(a, b *device.Counters) *Device {
	d := &Device{Name: b.Device, Source: b.Source}
	queues := func(was, now []device.QueueCounter) (out []device.QueueCounter) {
		for _, n := range now {
			i := slices.IndexFunc(was, func(w device.QueueCounter) bool { return w.Queue == n.Queue })
			if i >= 0 {
				n.Packets, n.Bytes, n.Drops = n.Packets-was[i].Packets, n.Bytes-was[i].Bytes, n.Drops-was[i].Drops
				out = append(out, n)
			}
		}
		return out
	}
	d.Rx, d.Tx = queues(a.Rx, b.Rx), queues(a.Tx, b.Tx)
	for _, n := range b.Classes {
		i := slices.IndexFunc(a.Classes, func(w device.ClassCounter) bool { return w.ID == n.ID })
		if i >= 0 {
			n.Packets, n.Bytes, n.Drops = n.Packets-a.Classes[i].Packets, n.Bytes-a.Classes[i].Bytes,
				n.Drops-a.Classes[i].Drops
			d.Classes = append(d.Classes, n)
		}
	}
	return d
}

// together returns the counters of several cards as those of one device. The cards' queues follow each
// other, and keep their numbers.
func together(cards []Card) *Device {
	sum := Device{Source: cards[0].Device.Source}
	var names []string
	for _, c := range cards {
		names = append(names, c.Device.Name)
		sum.Rx, sum.Tx = append(sum.Rx, c.Device.Rx...), append(sum.Tx, c.Device.Tx...)
		sum.Classes = append(sum.Classes, c.Device.Classes...)
	}
	sum.Name = strings.Join(names, "+")
	return &sum
}

// Tell sets the lanes of d: for each lane, the sums of the counters of its queues and of its class. With
// several cards, each has its own lanes, and d.Lanes has the sums of lanes of the same name.
func (d *Diff) Tell(lanes []LaneQueues) {
	d.Lanes = nil
	for i := range d.Cards {
		d.Cards[i].Lanes = nil
	}
	for _, l := range lanes {
		if len(d.Cards) == 0 {
			if d.Device != nil {
				d.Lanes = append(d.Lanes, d.Device.lane(l))
			}
			continue
		}
		for i := range d.Cards {
			if c := &d.Cards[i]; c.Device.Name == l.Device {
				one := c.Device.lane(l)
				c.Lanes = append(c.Lanes, one)
				d.addLane(one)
			}
		}
	}
}

// addLane adds the counters of a lane on one card to those of the lane of the same name.
func (d *Diff) addLane(l Lane) {
	i := slices.IndexFunc(d.Lanes, func(o Lane) bool { return o.Name == l.Name })
	if i < 0 {
		d.Lanes = append(d.Lanes, Lane{Name: l.Name, Rx: l.Rx.plus(nil), Tx: l.Tx.plus(nil), Class: l.Class.plus(nil)})
		return
	}
	o := &d.Lanes[i]
	o.Rx, o.Tx, o.Class = o.Rx.plus(l.Rx), o.Tx.plus(l.Tx), o.Class.plus(l.Class)
}

// plus returns the sum of two counts in a new Traffic; nil if both are nil.
func (t *Traffic) plus(o *Traffic) *Traffic {
	if t == nil && o == nil {
		return nil
	}
	var sum Traffic
	for _, x := range []*Traffic{t, o} {
		if x != nil {
			sum.Packets, sum.Bytes, sum.Drops = sum.Packets+x.Packets, sum.Bytes+x.Bytes, sum.Drops+x.Drops
		}
	}
	return &sum
}

// lane adds up the counters of one lane.
func (d *Device) lane(l LaneQueues) Lane {
	add := func(all []device.QueueCounter, mine []int) *Traffic {
		if mine == nil || len(all) == 0 {
			return nil
		}
		t := &Traffic{}
		for _, q := range all {
			if slices.Contains(mine, q.Queue) {
				t.Packets, t.Bytes, t.Drops = t.Packets+q.Packets, t.Bytes+q.Bytes, t.Drops+q.Drops
			}
		}
		return t
	}
	out := Lane{Name: l.Name, Rx: add(d.Rx, l.Rx), Tx: add(d.Tx, l.Tx)}
	for _, c := range d.Classes {
		if c.ID == l.Class {
			out.Class = &Traffic{Packets: c.Packets, Bytes: c.Bytes, Drops: c.Drops}
		}
	}
	return out
}

// pollsBetween returns the growth of the counts of each NAPI that was polled. The counts of a new
// NAPI start at 0.
func pollsBetween(a, b []napi.Count) (out []napi.Count) {
	for _, n := range b {
		i := slices.IndexFunc(a, func(w napi.Count) bool { return w.NAPI == n.NAPI })
		if i >= 0 {
			w := a[i]
			n.Polls, n.Packets, n.Empty, n.Full = n.Polls-w.Polls, n.Packets-w.Packets, n.Empty-w.Empty, n.Full-w.Full
			n.Thread, n.Busy = n.Thread-w.Thread, n.Busy-w.Busy
		}
		if n.Polls > 0 {
			out = append(out, n)
		}
	}
	return out
}

// Plus returns the sum of two processes, with the name and PID of the first.
func (p Process) Plus(o Process) Process {
	p.Threads += o.Threads
	p.User, p.System = p.User+o.User, p.System+o.System
	p.Running, p.Waiting = p.Running+o.Running, p.Waiting+o.Waiting
	p.Voluntary, p.Involuntary = p.Voluntary+o.Voluntary, p.Involuntary+o.Involuntary
	p.MinorFaults, p.DiskRead = p.MinorFaults+o.MinorFaults, p.DiskRead+o.DiskRead
	return p
}

// CPUPerRequest returns the processor time per request, if the process has served n requests.
func (p Process) CPUPerRequest(n int64) time.Duration {
	if n <= 0 {
		return 0
	}
	return time.Duration(p.Running / n)
}
