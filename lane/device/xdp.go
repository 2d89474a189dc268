// SPDX-License-Identifier: Apache-2.0

package device

import "fmt"

// An XDP is the program in a device's XDP slot. There is one slot for each
// device; niclane takes it only while it is empty.
type XDP struct {
	Dev string `json:"dev"`
	// Mode is "native" (the driver runs it) or "generic" (the stack does,
	// after it has made an skb).
	Mode string `json:"mode"`
	// Program is its name: "niclane_ingress", or somebody else's.
	Program string `json:"program"`
}

// Kind implements Object.
func (XDP) Kind() string { return "xdp" }

// Key implements Object.
func (x XDP) Key() string { return "xdp/" + x.Dev }

// A CPUQueue is an entry of the program's cpumap: the queue to one processor
// and the kernel thread that empties it there.
type CPUQueue struct {
	Dev string `json:"dev"`
	CPU int    `json:"cpu"`
	// Size in packets (struct bpf_cpumap_val, qsize; at most 16384).
	Size int `json:"size"`
}

// Kind implements Object.
func (CPUQueue) Kind() string { return "cpu-queue" }

// Key implements Object.
func (q CPUQueue) Key() string { return fmt.Sprintf("cpuqueue/%s/%d", q.Dev, q.CPU) }

// A CPUThread is the scheduling of a CPUQueue's kernel thread, which is bound
// to its processor. It comes and goes with the queue.
type CPUThread struct {
	Dev string `json:"dev"`
	CPU int    `json:"cpu"`
	// Policy, Priority, Nice and SchedAttr are as in Thread.
	Policy   string `json:"policy"`
	Priority int    `json:"priority,omitempty"`
	Nice     int    `json:"nice,omitempty"`
	SchedAttr
}

// Kind implements Object.
func (CPUThread) Kind() string { return "cpu-thread" }

// Key implements Object.
func (t CPUThread) Key() string { return fmt.Sprintf("cputhread/%s/%d", t.Dev, t.CPU) }

// A CPULane is a lane as the XDP program knows it: the processors among which
// its flows are spread by hash. Each needs a CPUQueue.
type CPULane struct {
	Dev string `json:"dev"`
	// Lane is niclane's number of the lane, 1 to 63.
	Lane int   `json:"lane"`
	CPUs []int `json:"cpus"` // 1 to 64, in order
}

// Kind implements Object.
func (CPULane) Kind() string { return "cpu-lane" }

// Key implements Object.
func (l CPULane) Key() string { return fmt.Sprintf("cpulane/%s/%d", l.Dev, l.Lane) }

// An XDPEntry is one entry in the map of the XDP program: packets that match
// belong to a CPULane.
type XDPEntry struct {
	Dev   string `json:"dev"`
	Match Match  `json:"match"`
	Lane  int    `json:"lane"`
}

// Kind implements Object.
func (XDPEntry) Kind() string { return "xdp-entry" }

// Key implements Object.
func (e XDPEntry) Key() string {
	var b [128]byte
	return string(e.Match.AppendTo(append(append(append(b[:0], "xdpentry/"...), e.Dev...), '/')))
}
