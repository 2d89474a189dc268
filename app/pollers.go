// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"slices"

	"github.com/niclane/niclane/internal/traffic/napi"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// Limits of AdvisePoller. None is measured on a card: they follow from how the pollers work.
const (
	// spareIdle is the share of idle time from which on a processor counts as free.
	spareIdle = 0.9
	// busyPolls is the number of polls of a queue per second from which on a busy poller rarely
	// leaves the queue to softirq: one in the 200 µs that the interrupt stays off after a poll.
	busyPolls = 5000
	// busySpare is the number of processors that busy pollers leave to everything else (lane/plan).
	busySpare = 2
)

// A PollerSample is what was measured of a host for some seconds.
type PollerSample struct {
	Seconds float64
	// Idle has the share of idle time of each online processor, 0 to 1 (/proc/stat).
	Idle map[int]float64
	// Polls has the polls of the lane's NAPIs. NoPolls says why they are not known; "" if they are.
	Polls   []napi.Count
	NoPolls string
}

// AdvisePoller says which poller would pay for a lane, by what was measured: a poller other than
// interrupts needs processors that were idle and that are not the lane's.
func AdvisePoller(l Lane, cpus []device.CPU, s PollerSample) Advice {
	a := Advice{Application: "poller", Source: "docs/mechanisms.md, Poller: who polls a lane's queues"}
	var packets, polls, threads, busy uint64
	for _, c := range s.Polls {
		packets, polls, threads, busy = packets+c.Packets, polls+c.Polls, threads+c.Thread, busy+c.Busy
	}
	rate := float64(polls) / s.Seconds / float64(max(l.Queues(), 1))
	var spare, used []int
	for _, c := range cpus {
		idle, known := s.Idle[c.ID]
		switch {
		case !known || c.Kept != "":
		case slices.Contains(l.CPUs(), c.ID):
			used = append(used, c.ID)
			a.Why = append(a.Why, fmt.Sprintf("the lane's processor %d was idle for %.0f %% of %.1f s", c.ID, 100*idle,
				s.Seconds))
		case idle >= spareIdle:
			spare = append(spare, c.ID)
		}
	}
	if s.NoPolls != "" {
		a.Cautions = append(a.Cautions, "the polls of its queues are not known: "+s.NoPolls)
	} else {
		a.Why = append(a.Why, fmt.Sprintf("its %s were polled %.0f times a second each, with %.1f packets a poll; "+
			"threads made %.0f %% of the polls", count(l.Queues(), "queue"), rate,
			float64(packets)/float64(max(polls, 1)), 100*float64(threads+busy)/float64(max(polls, 1))))
	}
	need := max(l.Queues(), 1)
	kind := intent.PollerInterrupt
	switch {
	case s.NoPolls == "" && packets == 0:
		a.Cautions = append(a.Cautions, "no packet of the lane arrived: measure again under load")
	case len(spare) < need:
		a.Why = append(a.Why, fmt.Sprintf("%s would need %s that are idle and not the lane's, and there are %d: on a "+
			"shared processor a thread costs more than interrupts", count(need, "polling thread"),
			count(need, "processor"), len(spare)))
	case rate >= busyPolls && len(spare) >= need+busySpare:
		kind = intent.PollerBusy
		a.Why = append(a.Why, fmt.Sprintf("packets come so often that a busy poller would rarely sleep, and the "+
			"processors %s were idle", device.FormatCPUList(spare)))
	default:
		kind = intent.PollerThread
		a.Why = append(a.Why, fmt.Sprintf("the processors %s were idle: threads there leave the lane's processors "+
			"(%s) to the application", device.FormatCPUList(spare), device.FormatCPUList(used)))
	}
	a.Settings = []string{"poller: " + string(kind)}
	if kind != intent.PollerInterrupt {
		a.Settings = append(a.Settings, "cpus: "+device.FormatCPUList(spare[:need]))
		a.Cautions = append(a.Cautions, "cpus also moves the lane's cgroup there: leave cgroup out, or name further "+
			"processors for it", "what this gains is not known: niclane bench run experiments/pollers.yaml measures it")
	}
	return a
}
