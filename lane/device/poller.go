// SPDX-License-Identifier: Apache-2.0

package device

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// A Poller is a process of niclane's own, one thread of which busy-polls the
// NAPIs of one or more receive queues (package poller). It lives no longer than
// its process; nothing else of it is kept.
type Poller struct {
	Dev string `json:"dev"`
	// Queues are those whose NAPIs it polls, ascending; the first is its name.
	Queues []int `json:"queues"`
	// CPUs, Policy, Priority and Nice are the polling thread's, as in Thread.
	CPUs     []int  `json:"cpus"`
	Policy   string `json:"policy"`
	Priority int    `json:"priority,omitempty"`
	Nice     int    `json:"nice,omitempty"`
	// Timeout is how long it polls without a packet before it sleeps until
	// the next one; ns.
	Timeout uint64 `json:"timeout"`
}

// Kind implements Object.
func (Poller) Kind() string { return "poller" }

// Key implements Object.
func (p Poller) Key() string {
	first := 0
	if len(p.Queues) > 0 {
		first = p.Queues[0]
	}
	return fmt.Sprintf("poller/%s/%d", p.Dev, first)
}

// Brief implements Object.
func (p Poller) Brief() string {
	how := scheduled(p.Policy, p.Priority, p.Nice, SchedAttr{})
	return fmt.Sprintf("queues %s, CPUs %s, %s, sleeps after %v", FormatCPUList(p.Queues), FormatCPUList(p.CPUs), how,
		time.Duration(p.Timeout))
}

func (p Poller) commands(c Change) []string {
	// They are the process's own: no other tool polls NAPIs so.
	if c.New == nil {
		return one(fmt.Sprintf("kill <PID of %s>", p.Key()))
	}
	b, err := json.Marshal(p)
	if err != nil {
		return nil
	}
	return one(fmt.Sprintf("niclane internal-poller '%s'", b))
}

func (p Poller) standsOn() []string {
	return []string{NAPIConfig{Dev: p.Dev, Queue: p.Queues[0]}.Key()}
}

func (d *Device) putPoller(p Poller, next Object) {
	replaceBy(&d.Pollers, p, next, func(next Object) PollerState { return PollerState{Poller: next.(Poller)} })
}

func (d *Device) pollers(yield func(Object)) {
	for _, p := range d.Pollers {
		yield(p.Poller)
	}
}

// A PollerState is what a Poller says of itself.
type PollerState struct {
	Poller
	PID int `json:"pid"`
	// Thread is the polling thread's ID.
	Thread int `json:"thread"`
	// Doing is PollerPolling, PollerAsleep, PollerIdle or PollerHung; of a
	// hung one only what it was started as is known.
	Doing string `json:"doing"`
	// NAPIs are the IDs that it polls now, in the order of Queues.
	NAPIs []uint32 `json:"napis"`
	// Polls and Packets are those of its thread since it began, Others of
	// whoever else polled the same NAPIs: softirq, while it slept or was not
	// let run.
	Polls         uint64 `json:"polls"`
	Packets       uint64 `json:"packets"`
	OthersPolls   uint64 `json:"othersPolls"`
	OthersPackets uint64 `json:"othersPackets"`
	// Sleeps is how often it went to sleep.
	Sleeps uint64 `json:"sleeps"`
	// Resolved is how often it looked up the NAPIs of its queues and found
	// others than before.
	Resolved uint64 `json:"resolved"`
}

// What a Poller is doing.
const (
	PollerPolling = "polling"
	PollerAsleep  = "asleep"   // no packet for Timeout
	PollerIdle    = "no NAPIs" // its queues have none now: the device is down, or has fewer
	PollerHung    = "does not answer"
)

// PollerOf returns the one that polls a receive queue, nil if there is none.
func (d *Device) PollerOf(queue int) *PollerState {
	for i := range d.Pollers {
		if slices.Contains(d.Pollers[i].Queues, queue) {
			return &d.Pollers[i]
		}
	}
	return nil
}
