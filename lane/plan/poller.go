// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// Busy pollers are threads that poll a lane's NAPIs without a pause. Packets then cause no
// interrupts and no softirqs, and only the application's own context switches. In return, busy
// pollers use their processors completely.

// asksBusy says how a file asks for a busy poller.
const asksBusy = "poller: busy; or pollers: N, if 2 processors are left beside them"

// pollerTimeout is the time without packets, in ns, after which a busy poller sleeps. It is
// adqsetup's default, for files that give none.
const pollerTimeout = 10_000_000

// pollerFlush is the gro-flush-timeout, in ns, of NAPIs with a niclane poller: after a poll,
// their interrupts stay off for this time. A running poller polls again before the time is over.
// If the poller sleeps, does not get its processor or has ended, softirq polls after this time. A
// packet can therefore wait 200 µs.
const pollerFlush = 200_000

// maxPollerQueues is the largest number of queues of one poller (poller/c/napi.c: MAX_NAPIS).
const maxPollerQueues = 64

// sparePollerCPUs is the number of processors that busy pollers must leave to all other work,
// unless the file says poller: busy. In the lab with two processors, a poller made the P50 of
// memcached under noise worse: 1.62 times that of softirq with the poller on the server's
// processor (1.41 to 1.85), 1.78 times on the other processor (1.51 to 2.09);
// docs/results/2026-11-mechanisms.md.
const sparePollerCPUs = 2

// askedPollers returns the poller mechanisms that the lanes ask for. If the lanes cannot have them,
// without has the reasons.
func (f *fit) askedPollers() (asked []string, without map[string]string) {
	n, insist := 0, false
	for i, l := range append([]intent.Lane{f.in.Default}, f.in.Lanes...) {
		if (i > 0 || l.Poller.Kind == intent.PollerThread) && asksThreads(&l) && len(asked) == 0 {
			asked = []string{ByNAPIThread, ByDeviceThread}
		}
		switch l.Poller.Kind {
		case intent.PollerBusy:
			insist = true
		case intent.PollerAuto:
			n += l.Poller.Count
		}
	}
	busy := []string{ByDriverPollers, ByIoUring, ByBusyThread}
	without = map[string]string{}
	online := f.usable()
	if insist || n > 0 && online-n >= sparePollerCPUs {
		return append(asked, busy...), without
	}
	if n > 0 {
		for _, name := range busy {
			without[name] = fmt.Sprintf("%d busy pollers would leave %d of %d processors to everything else, want "+
				"at least %d: "+
				"on a shared processor, P50 was 1.6 times that of softirq (poller: busy insists on "+
				"them)", n, max(online-n, 0),
				online, sparePollerCPUs)
		}
	}
	return asked, without
}

// usable returns the number of online processors that lanes can use. A processor that the host
// keeps free of work counts only if the file names it.
func (f *fit) usable() (n int) {
	for _, c := range f.st.CPUs {
		named := slices.ContainsFunc(f.in.Lanes, func(l intent.Lane) bool { return slices.Contains(l.CPUs, c.ID) })
		if c.Online && (c.Kept == "" || named) {
			n++
		}
	}
	return n
}

// kind returns what polls a lane's queues. It needs the chosen mechanisms.
func (f *fit) kind(l *deviceLane) intent.PollerKind {
	if l.Poller.Kind != intent.PollerAuto {
		return l.Poller.Kind
	}
	forced := f.in.Group.Force[string(device.PartPoller)] != ""
	can, _ := f.canThread()
	switch name := f.choice[device.PartPoller].Mechanism; {
	case busyMechanism(name) && (l.Poller.Count > 0 || forced && !l.isDefault):
		return intent.PollerBusy
	case l.isDefault || l.Poller.Count == 0 && l.sharing != "" && !(forced && !busyMechanism(name)):
	case name == ByNAPIThread, name == ByDeviceThread, busyMechanism(name) && can:
		return intent.PollerThread
	}
	return intent.PollerAuto
}

func busyMechanism(name string) bool {
	return name == ByIoUring || name == ByBusyThread || name == ByDriverPollers
}

func (f *fit) canThread() (bool, string) {
	return needs("", device.CapNAPIThread, device.CapQueueNAPI)(f.st, f.dev)
}

func (f *fit) checkPollers(lanes []*deviceLane) {
	choice := f.choice[device.PartPoller]
	for _, l := range lanes {
		switch kind := f.kind(l); kind {
		case intent.PollerAuto:
			if l.Poller.Count > 0 && !l.isDefault && choice.Mechanism == BySoftirq {
				f.failf(lanePath(l.Lane, "pollers"),
					"no polling threads on %s (%s); leave pollers out, or say poller: interrupt",
					f.dev.Name, f.reasons(choice))
			}
		case intent.PollerThread:
			if choice.Mechanism == BySoftirq || choice.Mechanism == "" {
				f.failf(lanePath(l.Lane, "poller"), "thread on %s: %s", f.dev.Name, f.reasons(choice))
			} else if ok, why := f.canThread(); !ok && choice.Mechanism != ByDeviceThread {
				f.failf(lanePath(l.Lane, "poller"), "thread on %s: %s", f.dev.Name, why)
			}
		case intent.PollerBusy:
			f.checkBusy(l, choice)
		}
	}
	f.checkDeviceThreads(lanes)
}

// deviceThreads tests whether a write to the device's file "threaded" may turn on threads for all
// its NAPIs. It must not if the threading of one NAPI differs from the file, because rollback
// could not restore that.
func deviceThreads(st *device.State, d *device.Device) (bool, string) {
	if ok, why := needs("", device.CapThreadedDev, device.CapQueueNAPI)(st, d); !ok {
		return false, why
	}
	path := "/sys/class/net/" + d.Name + "/threaded"
	for _, n := range d.NAPIs {
		if all, _ := d.ThreadsAll(st.Files[path]); all != n.Config.Threaded {
			return false, fmt.Sprintf("the threading of NAPI %d differs from the device's, and a write to %s "+
				"would change it",
				n.ID, path)
		}
	}
	return true, "a kernel thread for each NAPI of the device, the lanes' placed and prioritised"
}

// noDeviceThreads returns the reason why planning should not choose threads for the whole device
// by itself, "" if it may. If one lane wants no threads, that request must not fail only because
// another lane would get threads automatically.
func (f *fit) noDeviceThreads() string {
	if f.in.Group.Force[string(device.PartPoller)] != "" {
		return ""
	}
	why := ""
	for _, l := range f.in.Lanes {
		switch {
		case l.Poller.Kind == intent.PollerThread:
			return ""
		case l.Poller.Kind == intent.PollerInterrupt:
			why = fmt.Sprintf("lane %s asks for poller: interrupt, and these threads poll the whole device", l.Name)
		case l.Moderation.RxUsecs != nil:
			why = fmt.Sprintf("lane %s asks for rxusecs, and the NAPIs' own settings change with the device's threads",
				l.Name)
		}
	}
	return why
}

// checkDeviceThreads refuses settings that are not possible if all NAPIs of the device have
// threads.
func (f *fit) checkDeviceThreads(lanes []*deviceLane) {
	if !f.threadsAll() || !slices.ContainsFunc(lanes, func(l *deviceLane) bool {
		return l.each > 0 || f.kind(l) == intent.PollerThread
	}) {
		return
	}
	for _, l := range lanes {
		if l.Poller.Kind == intent.PollerInterrupt && !l.isDefault {
			hint := ""
			if can, _ := f.canThread(); can && f.madeThreads() {
				hint = "; after niclane rollback, apply makes threads for single queues"
			}
			f.failf(lanePath(l.Lane, "poller"), "interrupt on %s: another lane's threads poll the whole device (%s)%s",
				f.dev.Name, f.choice[device.PartPoller].Mechanism, hint)
		}
		if l.Moderation.RxUsecs != nil && f.uses(device.PartModeration, ByNAPIConfig) {
			f.failf(lanePath(l.Lane, "rxusecs"), "on %s: the NAPIs' own settings change with the device's threads "+
				"(%s); write poller: interrupt", f.dev.Name, f.choice[device.PartPoller].Mechanism)
		}
	}
}

// wantDeviceThreads makes a thread for every NAPI of the device. Before Linux 6.17, a single NAPI
// cannot have one.
func (f *fit) wantDeviceThreads(l *deviceLane) {
	path := "/sys/class/net/" + f.dev.Name + "/threaded"
	for _, w := range f.wants {
		if w.Key() == (device.File{Path: path}).Key() {
			return
		}
	}
	f.want(device.File{Path: path, Format: device.FileText, Value: "1"}, device.PartPoller, lanePath(l.Lane, "poller"),
		"a kernel thread for each NAPI of the device, in all lanes")
}

func (f *fit) checkBusy(l *deviceLane, choice Choice) {
	threads := l.pollers()
	switch choice.Mechanism {
	case ByDriverPollers:
		if l.isDefault {
			f.failf(lanePath(l.Lane, "poller"), "busy on %s: %s polls the queues of lanes, not of the default lane",
				f.dev.Name, ByDriverPollers)
		}
		if f.driverThreads == threadsNone {
			return // no thread has a processor
		}
	case ByIoUring:
		if most := (len(l.queues) + threads - 1) / threads; most > maxPollerQueues {
			f.failf(lanePath(l.Lane, "pollers"), "%d pollers for %d queues, and one can poll at most "+
				"%d", threads, len(l.queues),
				maxPollerQueues)
		}
	case ByBusyThread:
		if threads < len(l.queues) {
			f.failf(lanePath(l.Lane, "pollers"),
				"%d for %d queues on %s: %s has a thread for each NAPI; write %d, or leave it out (%s)",
				threads, len(l.queues), f.dev.Name, ByBusyThread, len(l.queues), f.reasons(choice))
		}
	default:
		f.failf(lanePath(l.Lane, "poller"), "busy on %s: %s", f.dev.Name, f.reasons(choice))
		return
	}
	if n := len(l.cpus); n < threads && !l.isDefault {
		f.notef("lane %s: %d busy pollers share processors %s: each leaves the others waiting", l.Name, threads,
			device.FormatCPUList(l.cpus))
	}
	if online := f.usable(); online-threads < sparePollerCPUs {
		f.notef("lane %s: its busy pollers leave %d of %d processors to everything else: latency can become worse "+
			"than without "+
			"(docs/mechanisms.md)", l.Name, max(online-threads, 0), online)
	}
}

// spinning returns the scheduling of a thread that polls without sleeping. It is SCHED_FIFO only
// if the file says so: under SCHED_FIFO, no other thread would get that processor.
func (p *deviceLane) spinning() (policy string, priority, nice int, how string) {
	if p.Poller.Policy == intent.PolicyFIFO {
		return p.scheduling()
	}
	return "other", 0, p.Poller.Nice, fmt.Sprintf("nice %d", p.Poller.Nice)
}

// wantOwnPollers adds niclane's own poller processes for a lane's queues to the plan.
func (f *fit) wantOwnPollers(l *deviceLane) {
	var pollers []device.Poller
	var how string
	for i, q := range l.queues {
		if _, ok := f.napi(l, q); !ok {
			return
		}
		if n := l.pollerOf(i); n == len(pollers) {
			p := device.Poller{Dev: f.dev.Name, CPUs: []int{l.cpuOf(i)}, Timeout: uint64(l.Poller.TimeoutUsecs) * 1000}
			if p.Timeout == 0 {
				p.Timeout = pollerTimeout
			}
			if l.isDefault {
				p.CPUs = l.cpus
			}
			p.Policy, p.Priority, p.Nice, how = l.spinning()
			pollers = append(pollers, p)
		}
		last := &pollers[len(pollers)-1]
		last.Queues = append(last.Queues, q)
	}
	for _, p := range pollers {
		f.want(p, device.PartPoller, lanePath(l.Lane, "poller"),
			fmt.Sprintf("a process of niclane's polls queues %s of lane %s on processors %s, %s",
				device.FormatCPUList(p.Queues), l.Name, device.FormatCPUList(p.CPUs), how))
	}
}

// wantDeferred keeps a queue's interrupt off between two polls of its poller. The poller was
// started before. If the poller ends, softirq polls at most pollerFlush after the last poll.
func (f *fit) wantDeferred(l *deviceLane, q int) {
	cfg, ok := f.napi(l, q)
	if !ok {
		return
	}
	if cfg.Threaded != "off" {
		f.wantUnthreaded(l, q)
	}
	cfg.Threaded, cfg.DeferHardIRQs, cfg.GROFlushTimeout = "off", 1, pollerFlush
	f.replace(cfg, device.PartPoller, lanePath(l.Lane, "poller"),
		fmt.Sprintf("queue %d of lane %s interrupts %d µs after its last poll at the earliest", q, l.Name,
			pollerFlush/1000))
}

// spun returns the processors of a lane's busy pollers, ascending.
func (f *fit) spun(l *deviceLane) []int {
	if f.kind(l) != intent.PollerBusy {
		return nil
	}
	var cpus []int
	for i := range l.queues {
		cpus = append(cpus, l.pollCPUs(i)...)
	}
	slices.Sort(cpus)
	return slices.Compact(cpus)
}
