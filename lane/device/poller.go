// SPDX-License-Identifier: Apache-2.0

package device

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// A Poller is a process of niclane (package poller) with one thread that busy-polls the NAPIs of
// one or more receive queues. Its settings end with the process.
type Poller struct {
	Dev string `json:"dev"`
	// Queues are the receive queues whose NAPIs the poller polls, ascending. The first one
	// identifies the poller.
	Queues []int `json:"queues"`
	// CPUs, Policy, Priority and Nice are those of the polling thread, as in Thread.
	CPUs     []int  `json:"cpus"`
	Policy   string `json:"policy"`
	Priority int    `json:"priority,omitempty"`
	Nice     int    `json:"nice,omitempty"`
	// Timeout is the time without a packet, in ns, after which the poller
	// sleeps until the next packet.
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
	// Only niclane has commands for its pollers: no other tool polls NAPIs like this.
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

// A PollerState is what a Poller process reports about itself.
type PollerState struct {
	Poller
	PID int `json:"pid"`
	// Thread is the polling thread's ID.
	Thread int `json:"thread"`
	// Doing is PollerPolling, PollerAsleep, PollerIdle or PollerHung. Of a hung poller, only its
	// start parameters are known.
	Doing string `json:"doing"`
	// NAPIs are the IDs of the NAPIs that the poller polls now, in the order of Queues.
	NAPIs []uint32 `json:"napis"`
	// Polls and Packets count the thread's work since the start. OthersPolls and OthersPackets count
	// the work of softirq on the same NAPIs, while the thread slept or did not run.
	Polls         uint64 `json:"polls"`
	Packets       uint64 `json:"packets"`
	OthersPolls   uint64 `json:"othersPolls"`
	OthersPackets uint64 `json:"othersPackets"`
	// Sleeps is the number of times that the poller went to sleep.
	Sleeps uint64 `json:"sleeps"`
	// Resolved is the number of times that the poller looked up the NAPIs of its queues and found
	// new ones.
	Resolved uint64 `json:"resolved"`
}

// The values of PollerState.Doing.
const (
	PollerPolling = "polling"
	PollerAsleep  = "asleep"   // no packet for Timeout
	PollerIdle    = "no NAPIs" // its queues have no NAPIs now: the device is down, or has fewer queues
	PollerHung    = "does not answer"
)

// PollerOf returns the poller of a receive queue, nil if there is none.
func (d *Device) PollerOf(queue int) *PollerState {
	for i := range d.Pollers {
		if slices.Contains(d.Pollers[i].Queues, queue) {
			return &d.Pollers[i]
		}
	}
	return nil
}
