// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/cilium/ebpf"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/sched"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/status"
	"github.com/niclane/niclane/lane/verify"
)

// rateOutput is one line of the JSON output of status --watch. Each line is one document.
type rateOutput struct {
	Time time.Time    `json:"time"`
	Rows []status.Row `json:"rows"`
	// NotCounted says which sent packets --sent does not count, and why.
	NotCounted []string `json:"notCounted,omitempty"`
}

// watchStatus prints rates every interval, count times. If count is 0, it prints them until it is
// interrupted. An interrupt is not an error.
func (a *app) watchStatus(ctx context.Context, args []string, interval time.Duration, count int, sent bool) error {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	if err := a.sayUnshown(); err != nil {
		return err
	}
	fitted, devices, err := a.Engine().Fitted(first(args))
	if err != nil {
		return err
	}
	if len(fitted) == 0 {
		fmt.Fprintln(a.Stderr, "niclane: no lanes are applied here")
		return nil
	}
	r, err := a.newRater(ctx, fitted, devices, sent)
	if err != nil {
		return err
	}
	defer r.close()
	for _, why := range r.notCounted {
		fmt.Fprintln(a.Stderr, "niclane:", why)
	}
	before, at, _, err := r.read(ctx)
	if err != nil {
		return err
	}
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for n := 0; count == 0 || n < count; n++ {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
		now, then, st, err := r.read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		rows := status.Rates(fitted, st, before, now, then.Sub(at).Nanoseconds())
		if err := a.printRates(rateOutput{then, rows, r.notCounted}); err != nil {
			return err
		}
		before, at = now, then
	}
	return nil
}

func (a *app) printRates(r rateOutput) error {
	if a.JSON {
		return a.PrintJSONLine(r)
	}
	if cli.IsTerminal(a.Stdout) {
		fmt.Fprint(a.Stdout, "\x1b[H\x1b[J") // cursor home, clear screen
	}
	fmt.Fprintln(a.Stdout, r.Time.Format(time.TimeOnly))
	return status.WriteRates(a.Stdout, r.Rows)
}

// A rater reads the counters from which rates are computed.
type rater struct {
	app     *app
	devices []string
	numbers map[string]map[int]string // lane names by number in niclane's XDP program, by device
	tc      *tc.Client
	bpf     *bpf.Client
	// handlers are the PIDs of the cpumap's threads, by XDP program and processor.
	handlers map[uint32]map[int]int
	// sent counts sent packets while the rater is open.
	sent sentCounter
	// notCounted says which sent packets are not in sent, and why.
	notCounted []string
}

// newRater returns a rater. If exact is true, it counts sent packets at the tracepoint. This costs
// time for every packet of the host.
func (a *app) newRater(ctx context.Context, lanes []plan.FittedLane, devices []string, exact bool) (*rater, error) {
	js, err := a.Engine().Journals()
	if err != nil {
		return nil, err
	}
	r := &rater{app: a, devices: devices, numbers: map[string]map[int]string{},
		handlers: map[uint32]map[int]int{}}
	var st *device.State
	if exact {
		if st, err = a.look(ctx, devices); err != nil {
			return nil, err
		}
	}
	if r.sent, r.notCounted, err = a.countSent(js, st, devices, exact); err != nil {
		return nil, err
	}
	for _, j := range js {
		applied := a.Engine().Applied(j)
		for _, d := range devices {
			if numbers := verify.CPULanes(applied, d); len(numbers) > 0 {
				r.numbers[d] = numbers
			}
		}
	}
	if len(r.numbers) == 0 {
		return r, nil
	}
	if r.tc, err = tc.Open(); err != nil {
		r.sent.close()
		return nil, err
	}
	r.bpf = bpf.New(r.tc)
	return r, nil
}

func (r *rater) close() {
	r.sent.close()
	if r.tc != nil {
		_ = r.bpf.Close() // they only read, so an error loses nothing
		_ = r.tc.Close()
	}
}

// read reads all counters and finds the polling threads.
func (r *rater) read(ctx context.Context) (status.Moment, time.Time, *device.State, error) {
	m := status.Moment{Counters: map[string]device.Counters{},
		Received: map[string]map[status.LaneQueue]device.QueueCounter{},
		Arrived:  map[string]map[string]device.QueueCounter{}, Threads: map[int]status.Thread{},
		Polls: map[int]uint64{}, Handlers: map[string]map[int]int{}}
	st, err := r.app.look(ctx, r.devices)
	if err != nil {
		return m, time.Time{}, nil, err
	}
	at := time.Now()
	for _, d := range r.devices {
		if m.Counters[d], err = observe.Counters(d); err != nil {
			return m, at, nil, err
		}
		if err := r.arrived(&m, d); err != nil {
			return m, at, nil, err
		}
	}
	if m.Sent, err = r.sent.read(); err != nil {
		return m, at, nil, err
	}
	if b, err := os.ReadFile("/proc/interrupts"); err == nil {
		m.Interrupts = status.ParseInterrupts(string(b))
	}
	for i := range st.Devices {
		d := &st.Devices[i]
		for _, n := range d.NAPIs {
			if n.PID != 0 {
				addThread(&m, n.PID)
			}
		}
		for _, p := range d.Pollers {
			addThread(&m, p.Thread)
			m.Polls[p.Thread] = p.Polls
		}
		if err := r.addHandlers(&m, d); err != nil {
			return m, at, nil, err
		}
	}
	return m, at, st, nil
}

// arrived reads how many packets niclane's XDP program on dev has counted, and adds the numbers to
// m.
func (r *rater) arrived(m *status.Moment, dev string) error {
	if r.numbers[dev] == nil {
		return nil
	}
	counted, err := r.bpf.XDPCounters(dev)
	if err != nil {
		return err
	}
	m.Arrived[dev], m.Received[dev] = map[string]device.QueueCounter{}, map[status.LaneQueue]device.QueueCounter{}
	for _, name := range r.numbers[dev] {
		m.Arrived[dev][name] = device.QueueCounter{}
	}
	for _, c := range counted {
		name, ok := r.numbers[dev][c.Lane]
		if !ok {
			continue
		}
		sum := m.Arrived[dev][name]
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
		m.Arrived[dev][name] = sum
		m.Received[dev][status.LaneQueue{Lane: name, Queue: c.Queue}] = device.QueueCounter{Packets: c.Packets,
			Bytes: c.Bytes}
	}
	return nil
}

// addHandlers finds the threads that empty the cpumap of niclane's XDP program, and adds them to m.
func (r *rater) addHandlers(m *status.Moment, d *device.Device) error {
	if r.numbers[d.Name] == nil {
		return nil
	}
	for _, p := range d.Programs {
		if p.Name != plan.IngressProgram {
			continue
		}
		if len(r.handlers[p.ID]) != len(d.CPUQueues) {
			found, err := cpumapThreads(p.ID, d.CPUQueues)
			if err != nil {
				return err
			}
			r.handlers[p.ID] = found
		}
		m.Handlers[d.Name] = r.handlers[p.ID]
		for _, pid := range r.handlers[p.ID] {
			addThread(m, pid)
		}
	}
	return nil
}

// cpumapThreads returns the PIDs of the threads of a program's cpumap, by processor. It finds them
// by their names, which consist of processor and map (__cpu_map_entry_alloc).
func cpumapThreads(program uint32, queues []device.CPUQueue) (map[int]int, error) {
	out := map[int]int{}
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(program))
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil // the program was detached meanwhile
	}
	if err != nil {
		return nil, err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return nil, err
	}
	ids, _ := info.MapIDs()
	cpuOf := map[string]int{}
	var names []string
	for _, id := range ids {
		for _, q := range queues {
			name := fmt.Sprintf("cpumap/%d/map:%d", q.CPU, id)
			names, cpuOf[name] = append(names, name), q.CPU
		}
	}
	found, err := sched.Find(names...)
	for name, pid := range found {
		out[cpuOf[name]] = pid
	}
	return out, err
}

func addThread(m *status.Moment, pid int) {
	if t, err := readThread(pid); err == nil {
		m.Threads[pid] = t
	}
}

func readThread(pid int) (status.Thread, error) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	text, err1 := os.ReadFile(dir + "status")
	sched, err2 := os.ReadFile(dir + "schedstat")
	if err := errors.Join(err1, err2); err != nil {
		return status.Thread{}, err
	}
	return status.ParseThread(string(text), string(sched))
}
