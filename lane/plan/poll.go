// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// wantPollers makes the polling threads of lanes that ask for them and sets the threads'
// processors and priorities. It also sets the affinity of the queues' interrupts.
func (f *fit) wantPollers(lanes []*deviceLane) {
	f.wantDriverPollers(lanes)
	for _, l := range lanes {
		kind := f.kind(l)
		if n := l.Poller.Count; n > 0 && n < len(l.queues) && kind == intent.PollerThread {
			f.notef("lane %s: %d pollers asked for, but a threaded NAPI has a thread of its own: %d threads on %d "+
				"processors",
				l.Name, n, len(l.queues), min(n, len(l.cpus)))
		}
		if !f.reserves() && !l.isDefault {
			continue // all lanes share its receive queues
		}
		l = f.receiving(l)
		if kind == intent.PollerBusy && f.uses(device.PartPoller, ByIoUring) {
			f.wantOwnPollers(l)
		}
		if l.each > 0 {
			f.wantDriverQueues(l)
			continue
		}
		for i, q := range l.queues {
			f.wantIRQ(l, i, q)
			switch {
			case kind == intent.PollerBusy && f.uses(device.PartPoller, ByIoUring):
				f.wantDeferred(l, q)
			case kind == intent.PollerThread || kind == intent.PollerBusy:
				f.wantThread(l, kind, i, q)
			case kind == intent.PollerInterrupt && !l.isDefault:
				f.wantUnthreaded(l, q)
			}
		}
	}
	if !f.defaultThreaded(lanes[0]) && f.threadsShareCPUs(lanes) {
		f.notef("the default lane's queues are polled in softirq, which runs before any thread " +
			"on the same processor; " +
			"globals.poller: thread puts them behind the lane's")
	}
}

// receiving returns the lane without its transmit-only queues, because nothing polls these.
func (f *fit) receiving(l *deviceLane) *deviceLane {
	if f.reserves() || len(l.queues) <= f.dev.RxQueues {
		return l
	}
	less := *l
	less.queues = l.queues[:f.dev.RxQueues]
	return &less
}

func (f *fit) defaultThreaded(def *deviceLane) bool { return def.Poller.Kind == intent.PollerThread }

func (f *fit) threadsShareCPUs(lanes []*deviceLane) bool {
	for _, w := range f.wants {
		if n, ok := w.Object.(device.NAPIConfig); ok && n.Threaded == "on" {
			return true
		}
	}
	return false
}

func (f *fit) wantThread(l *deviceLane, kind intent.PollerKind, i, q int) {
	what := "a kernel thread polls queue %d of lane %s"
	if kind == intent.PollerBusy {
		what = "a kernel thread busy-polls queue %d of lane %s"
	}
	f.wantNAPIThread(l, kind, i, q, fmt.Sprintf(what, q, l.Name))
}

// wantNAPIThread makes, places and schedules the kernel thread of the lane's i-th queue, q.
func (f *fit) wantNAPIThread(l *deviceLane, kind intent.PollerKind, i, q int, what string) {
	cfg, ok := f.napi(l, q)
	if !ok {
		return
	}
	cfg.Threaded = "on"
	if kind == intent.PollerBusy && l.each == 0 {
		cfg.Threaded = "busy" // otherwise the driver keeps the poll busy
	}
	if f.threadsAll() {
		f.wantDeviceThreads(l)
	} else {
		f.want(cfg, device.PartPoller, lanePath(l.Lane, "poller"), what)
	}
	t := device.Thread{Dev: f.dev.Name, Queue: q, CPUs: l.pollCPUs(i)}
	if l.isDefault {
		t.CPUs = l.cpus
	}
	var how string
	t.Policy, t.Priority, t.Nice, how = l.scheduling()
	if kind == intent.PollerBusy {
		t.Policy, t.Priority, t.Nice, how = l.spinning()
	}
	reason := fmt.Sprintf("its thread on processor %s, %s", device.FormatCPUList(t.CPUs), how)
	if l.each > 0 {
		reason = fmt.Sprintf("%s on processor %s, %s", what, device.FormatCPUList(t.CPUs), how)
	}
	f.want(t, device.PartPoller, lanePath(l.Lane, "cpus"), reason)
}

func (f *fit) wantUnthreaded(l *deviceLane, q int) {
	cfg, ok := f.napi(nil, q)
	if !ok || cfg.Threaded == "off" || f.madeThreads() { // these end with the device's file "threaded"
		return
	}
	cfg.Threaded = "off"
	// The thread ends with its NAPI's threaded mode. A separate step records the thread's policy and
	// processors. Rollback turns threaded mode on again, and gives both to the new thread.
	thread := device.Thread{Dev: f.dev.Name, Queue: q}
	_, there := f.present[thread.Key()]
	if _, ours := f.owned[thread.Key()]; there || ours {
		f.wantAbsent(thread, device.PartPoller, lanePath(l.Lane, "poller"),
			fmt.Sprintf("the thread of queue %d ends", q))
	}
	f.want(cfg, device.PartPoller, lanePath(l.Lane, "poller"),
		fmt.Sprintf("queue %d of lane %s is polled in softirq", q, l.Name))
}

// napi returns the configuration of a queue's NAPI, as it is planned so far, otherwise as the
// device has it. The caller changes it and adds it to the plan. If the queue has no NAPI, napi
// reports an error for lane l, or none if l is nil.
func (f *fit) napi(l *deviceLane, q int) (device.NAPIConfig, bool) {
	key := device.NAPIConfig{Dev: f.dev.Name, Queue: q}.Key()
	for _, w := range f.wants {
		if w.Key() == key {
			return w.Object.(device.NAPIConfig), true
		}
	}
	now, ok := f.present[key].(device.NAPIConfig)
	if r, ours := f.owned[key]; ok && ours && r.Original == nil {
		return f.freshNAPI(q), true // the queue came with niclane's channels
	}
	if ok {
		return f.base(now).(device.NAPIConfig), true
	}
	if f.grown(q) && len(f.dev.NAPIs) > 0 {
		return f.freshNAPI(q), true
	}
	if l != nil {
		f.failf(lanePath(l.Lane, "poller"), "%s has no NAPI for queue %d (%s)", f.dev.Name, q,
			"a veth has NAPIs only while its GRO is on: ethtool -K "+f.dev.Name+" gro on")
	}
	return now, false
}

// freshNAPI returns the configuration of a new NAPI. It has the device's settings
// (net/core/dev.c: netif_napi_add_weight_locked, napi_restore_config).
func (f *fit) freshNAPI(q int) device.NAPIConfig {
	cfg := device.NAPIConfig{Dev: f.dev.Name, Queue: q, Threaded: "off"}
	number := func(name string) uint64 {
		n, err := strconv.ParseUint(strings.TrimSpace(f.st.Files["/sys/class/net/"+f.dev.Name+"/"+name].Value), 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	cfg.DeferHardIRQs, cfg.GROFlushTimeout = uint32(number("napi_defer_hard_irqs")), number("gro_flush_timeout")
	if number("threaded") == 1 {
		cfg.Threaded = "on"
	}
	return cfg
}

// wantIRQ sets the affinity of a queue's interrupts to the processor that polls the queue.
func (f *fit) wantIRQ(l *deviceLane, i, q int) {
	if !f.uses(device.PartInterrupts, ByIRQAffinity) || l.isDefault && len(l.CPUs) == 0 {
		return
	}
	key := device.Affinity{Dev: f.dev.Name, Queue: q}.Key()
	now, ok := f.present[key].(device.Affinity)
	if !ok {
		if !f.grown(q) {
			return
		}
		// A new queue has as many interrupts as queue 0. Their numbers and
		// names are not known yet.
		now.CPUs = make([]string, max(1, f.irqsPerQueue()))
	}
	a := device.Affinity{Dev: f.dev.Name, Queue: q}
	for range now.CPUs {
		a.CPUs = append(a.CPUs, device.FormatCPUList(l.pollCPUs(i)))
	}
	where := "on the processor that polls its queue"
	if len(l.pollCPUs(i)) > 1 {
		where = "on any of the processors that poll its queue"
	}
	f.want(a, device.PartInterrupts, lanePath(l.Lane, "cpus"),
		fmt.Sprintf("%s of lane %s %s", f.irqName(q), l.Name, where))
}

// noteIRQBalance adds a note if irqbalance will move the interrupts that the plan places.
func (f *fit) noteIRQBalance() {
	places := func(w want) bool {
		_, is := w.Object.(device.Affinity)
		return is
	}
	if f.st.IRQBalance && slices.ContainsFunc(f.wants, places) {
		f.notef("irqbalance runs, and moves the lanes' interrupts every 10 s: stop it, or ban them there " +
			"(docs/how-to/boot.md)")
	}
}

// irqsPerQueue returns the number of interrupts of queue 0.
func (f *fit) irqsPerQueue() (n int) {
	for _, irq := range f.dev.IRQs {
		if irq.Queue == 0 {
			n++
		}
	}
	return n
}

// irqName returns the kernel's names of a queue's interrupts, or a description if it has none.
func (f *fit) irqName(q int) string {
	var names []string
	for _, irq := range f.dev.IRQs {
		if irq.Queue == q && irq.Name != "" {
			names = append(names, irq.Name)
		}
	}
	if len(names) == 0 {
		return fmt.Sprintf("the interrupt of queue %d", q)
	}
	return "interrupt " + strings.Join(names, ", ")
}

// grown reports whether the queue does not exist yet: niclane's added channels will create it.
func (f *fit) grown(q int) bool { return f.dev.Channels != nil && q >= f.dev.RxQueues }

// wantModeration sets the interrupt moderation of the lanes' queues.
func (f *fit) wantModeration(lanes []*deviceLane) {
	for _, l := range lanes {
		m := l.Moderation
		if m == (intent.Moderation{}) {
			continue
		}
		switch f.choice[device.PartModeration].Mechanism {
		case ByQueueCoalesce:
			for _, q := range l.queues {
				f.wantCoalesce(l, q)
			}
		case ByCoalesce:
			f.wantCoalesce(l, -1)
		case ByNAPIConfig:
			f.wantNAPIModeration(l)
		default:
			f.failf(l.Path, "no moderation on %s: %s", f.dev.Name, f.reasons(f.choice[device.PartModeration]))
		}
	}
}

func (f *fit) wantCoalesce(l *deviceLane, q int) {
	key := device.Coalesce{Dev: f.dev.Name, Queue: q}.Key()
	c, ok := f.present[key].(device.Coalesce)
	if !ok && q >= 0 && f.grown(q) {
		// Drivers give a new queue the device's values.
		c, ok = f.present[device.Coalesce{Dev: f.dev.Name}.Key()].(device.Coalesce)
		c.Queue = q
	}
	if !ok {
		f.failf(l.Path, "%s does not show its coalescing (%s)", f.dev.Name, key)
		return
	}
	c = f.base(c).(device.Coalesce)
	m := l.Moderation
	for _, p := range []struct {
		key, has string
		differs  bool
	}{
		{"rxusecs", "rxUsecs", m.RxUsecs != nil && *m.RxUsecs != c.RxUsecs},
		{"txusecs", "txUsecs", m.TxUsecs != nil && *m.TxUsecs != c.TxUsecs},
		{"rxadapt", "rxAdapt", m.RxAdapt != nil && *m.RxAdapt != c.RxAdapt},
		{"txadapt", "txAdapt", m.TxAdapt != nil && *m.TxAdapt != c.TxAdapt},
	} {
		if p.differs && len(f.dev.CoalesceHas) > 0 && !slices.Contains(f.dev.CoalesceHas, p.has) {
			f.failf(lanePath(l.Lane, p.key), "the driver of %s (%s) has no such setting (ethtool -c shows n/a): "+
				"leave it out", f.dev.Name, f.dev.Driver)
			return
		}
	}
	set(&c.RxUsecs, m.RxUsecs)
	set(&c.TxUsecs, m.TxUsecs)
	set(&c.RxAdapt, m.RxAdapt)
	set(&c.TxAdapt, m.TxAdapt)
	f.want(c, device.PartModeration, l.Path, "moderation of lane "+l.Name)
}

func set[T any](dst *T, src *T) {
	if src != nil {
		*dst = *src
	}
}

// wantNAPIModeration delays interrupts by the NAPI's timer, for cards without interrupt
// moderation (Documentation/networking/napi.rst, "Software IRQ coalescing"). gro-flush-timeout is
// effective with defer-hard-irqs 1 and off with 0.
func (f *fit) wantNAPIModeration(l *deviceLane) {
	if l.Moderation.RxAdapt != nil && *l.Moderation.RxAdapt {
		f.failf(lanePath(l.Lane, "rxadapt"), "%s has no adaptive moderation", f.dev.Name)
	}
	if l.Moderation.RxUsecs == nil {
		return
	}
	usecs := *l.Moderation.RxUsecs
	for _, q := range f.receiving(l).queues {
		cfg, ok := f.napi(l, q)
		if !ok {
			continue
		}
		cfg.GROFlushTimeout, cfg.DeferHardIRQs = uint64(usecs)*1000, 0
		if usecs > 0 {
			cfg.DeferHardIRQs = 1
		}
		f.replace(cfg, device.PartModeration, lanePath(l.Lane, "rxusecs"),
			fmt.Sprintf("queue %d of lane %s waits %d µs for more packets", q, l.Name, usecs))
	}
}

// replace changes the planned value of an object, so that the object has only one step. If the
// object is not in the plan yet, replace adds it.
func (f *fit) replace(o device.Object, part device.Part, cause, reason string) {
	for i := range f.wants {
		if w := &f.wants[i]; w.Key() == o.Key() {
			w.Object = o
			if !strings.Contains(w.reason, reason) {
				w.reason += "; " + reason
			}
			return
		}
	}
	f.want(o, part, cause, reason)
}
