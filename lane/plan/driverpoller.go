// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// The driver's pollers are NAPIs of Intel's own ice driver. In a traffic class, the first of every
// qps_per_poller queues leads: its NAPI polls them all, and does not end its poll until
// poller_timeout has passed without packets (ice_main.c: ice_ch_vsi_map_rings_to_vecs,
// ice_txrx.c: ice_napi_poll; release 2.6.6). Such a NAPI needs a kernel thread. Without one,
// softirq hands the poll to ksoftirqd, on the processor of the interrupt.

// maxDriverTimeout is the largest poller_timeout of the driver, in jiffies (ice_devlink.c:
// MAX_POLLER_TIMEOUT).
const maxDriverTimeout = 10000

// Where the threads of the driver's pollers come from.
const (
	threadsNone   = ""       // the driver does not poll, or there are no threads
	threadsDevice = "device" // the device's file "threaded": a thread for every NAPI
	threadsNAPI   = "napi"   // one NAPI at a time, for the lanes' queues only
)

// settleDriverPollers decides how the driver's pollers share a lane's queues, and where their
// threads come from. It needs the chosen mechanisms.
func (f *fit) settleDriverPollers(lanes []*deviceLane) {
	if !f.uses(device.PartPoller, ByDriverPollers) {
		return
	}
	var polled, soft string
	for _, l := range lanes[1:] {
		switch kind := f.kind(l); kind {
		case intent.PollerBusy:
			asked := l.pollerOf(len(l.queues)-1) + 1
			l.each = (len(l.queues) + asked - 1) / asked
			if are := l.pollers(); are < asked {
				f.notef("lane %s: %d pollers asked for; the driver makes %d, because each polls %d queues", l.Name,
					asked, are, l.each)
			}
			if n := l.Poller.TimeoutUsecs; n > maxDriverTimeout {
				f.failf(lanePath(l.Lane, "poller-timeout"), "%d, and the driver of %s takes at most %d: it counts "+
					"jiffies of the kernel, not µs", n, f.dev.Name, maxDriverTimeout)
			}
			polled = l.Name
		case intent.PollerInterrupt:
			soft = l.Name
		}
	}
	if polled == "" {
		return
	}
	ok, why := deviceThreads(f.st, f.dev)
	switch can, _ := f.canThread(); {
	case ok && (soft == "" || f.madeThreads()):
		f.driverThreads = threadsDevice
	case can:
		f.driverThreads = threadsNAPI
	case ok:
		f.driverThreads = threadsDevice // checkDeviceThreads refuses lane soft
	default:
		f.notef("lane %s: its pollers have no kernel threads (%s): they run in ksoftirqd, on the processors of the "+
			"interrupts, among all other softirqs", polled, why)
	}
}

// threadsAll reports whether all NAPIs of the device get threads, if any lane has one.
func (f *fit) threadsAll() bool {
	return f.uses(device.PartPoller, ByDeviceThread) || f.driverThreads == threadsDevice || f.madeThreads()
}

// madeThreads reports whether niclane has made threads for all NAPIs of the device. As long as a lane
// wants a thread, they stay: the end of the device's threads would also end those of single NAPIs.
func (f *fit) madeThreads() bool {
	_, ours := f.owned[device.File{Path: "/sys/class/net/" + f.dev.Name + "/threaded"}.Key()]
	return ours
}

// pollers returns the number of pollers that the lane's queues have.
func (p *deviceLane) pollers() int { return p.pollerOf(len(p.queues)-1) + 1 }

// pollCPUs returns the processors on which the lane's i-th queue is polled. A driver's poller may run
// on all of the lane's if these are more than its pollers, as in the paper on Traffic Server
// (taskset -c 0-7 for each of 4 pollers), and if no application is to have the rest. Otherwise it
// has one, as with adqsetup.
func (p *deviceLane) pollCPUs(i int) []int {
	if p.each > 0 && len(p.cpus) > p.pollers() && !p.runsMembers() {
		return p.cpus
	}
	return []int{p.cpuOf(i)}
}

// runsMembers reports whether the lane's processors also run a member.
func (p *deviceLane) runsMembers() bool {
	return slices.ContainsFunc(p.Members,
		func(m intent.Member) bool { return m.Cgroup != "" && len(m.CgroupCPUs) == 0 })
}

// wantDriverPollers makes the driver poll the queues of lanes that ask for it. The driver makes
// new queues for that, so everything that belongs to these queues comes later. If a class belongs
// to one application, connections are received on the queue that sends (inline_fd), as adqsetup
// does.
func (f *fit) wantDriverPollers(lanes []*deviceLane) {
	for i, l := range lanes {
		if l.each == 0 {
			continue
		}
		timeout := cmp.Or(l.Poller.TimeoutUsecs, maxDriverTimeout)
		param := func(name, value, why string) {
			p := device.DriverParam{Dev: f.dev.Name, Name: fmt.Sprintf("tc%d_%s", i, name), Value: value}
			if _, there := f.present[p.Key()]; there || f.dev.ClassParam(name) {
				f.want(p, device.PartPoller, lanePath(l.Lane, "pollers"),
					fmt.Sprintf("traffic class %d of lane %s: %s", i, l.Name, why))
			}
		}
		if l.Mode != intent.Shared {
			param("inline_fd", "true", "packets of a connection arrive on the queue that it sends on")
		}
		param("qps_per_poller", strconv.Itoa(l.each), fmt.Sprintf("%d pollers of the driver, %d queues each",
			l.pollers(), l.each))
		param("poller_timeout", strconv.Itoa(timeout), fmt.Sprintf("they stop after %d jiffies without packets",
			timeout))
	}
}

// wantDriverQueues sets the affinity of the interrupts of a lane's leading queues, and places and
// schedules the threads of all its queues. The driver frees the interrupts of the other queues
// (ice_main.c: ice_vsi_req_single_irq_msix). Their threads sleep; adqsetup places them too.
func (f *fit) wantDriverQueues(l *deviceLane) {
	for i := 0; i < len(l.queues); i += l.each {
		f.wantIRQ(l, i, l.queues[i])
	}
	if f.driverThreads == threadsNone {
		return
	}
	for i, q := range l.queues {
		first := i - i%l.each
		led := device.FormatCPUList(l.queues[first:min(first+l.each, len(l.queues))])
		what := fmt.Sprintf("a kernel thread for the driver's poller of queues %s of lane %s", led, l.Name)
		if first != i {
			what = fmt.Sprintf("the idle thread of queue %d beside that of queues %s", q, led)
		}
		f.wantNAPIThread(l, intent.PollerBusy, i, q, what)
	}
}
