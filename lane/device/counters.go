// SPDX-License-Identifier: Apache-2.0

package device

// Counters are a device's counters at one moment. They only increase until the
// device is reset or removed.
type Counters struct {
	Device string `json:"device"`
	// Mono is the CLOCK_MONOTONIC time at which the counters were read, in ns.
	Mono int64 `json:"monoNs"`
	// Source is the origin of the counters: "emulated card"; "" if the device
	// has no counters per queue.
	Source string `json:"source"`
	// Rx and Tx have one entry per queue, ascending.
	Rx []QueueCounter `json:"rx,omitempty"`
	Tx []QueueCounter `json:"tx,omitempty"`
	// Polled are the receive packets that Intel's own ice driver counts by what polled them, ascending by
	// queue. Only a driver that was built with ADQ_PERF_COUNTERS has these counters.
	Polled []PolledCounter `json:"polled,omitempty"`
	// Classes are the HTB classes, in the kernel's order.
	Classes []ClassCounter `json:"classes,omitempty"`
	// Departures are the lanes that share the link by departure times, by number.
	Departures []Departures `json:"departures,omitempty"`
}

// Departures count what a FilterShare did to packets since its filter was attached. GSO packets count
// as one.
type Departures struct {
	Lane int `json:"lane"` // as in FilterShare
	// Waited counts the packets that had to wait, and WaitNs for how long, together, in ns.
	Waited uint64 `json:"waited"`
	WaitNs uint64 `json:"waitNs"`
	// Marked counts packets that got an ECN mark, and Dropped those that would have waited too long.
	Marked  uint64 `json:"marked"`
	Dropped uint64 `json:"dropped"`
}

// A QueueCounter counts one receive or transmit queue.
type QueueCounter struct {
	Queue   int    `json:"queue"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	Drops   uint64 `json:"drops"`
}

// A PolledCounter counts the packets of one receive queue by what polled them.
type PolledCounter struct {
	Queue int `json:"queue"`
	// BusyPoll are those that a socket's busy poll took (pkt_busy_poll), NAPI all others, including those
	// of the driver's pollers (pkt_not_busy_poll).
	BusyPoll uint64 `json:"busyPoll"`
	NAPI     uint64 `json:"napi"`
}

// A ClassCounter counts one HTB class.
type ClassCounter struct {
	ID      string `json:"id"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	Drops   uint64 `json:"drops"`
	// Backlog is the number of bytes that wait in the class.
	Backlog uint64 `json:"backlogBytes"`
}
