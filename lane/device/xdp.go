// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"slices"
)

// An XDP is the program in a device's XDP slot. A device has only one slot, and niclane uses it
// only if no other program is in it.
type XDP struct {
	Dev string `json:"dev"`
	// Mode is "native" (the driver runs the program) or "generic" (the stack
	// runs it, after it has made an skb).
	Mode string `json:"mode"`
	// Program is its name: "niclane_ingress", or that of another program.
	Program string `json:"program"`
}

// Kind implements Object.
func (XDP) Kind() string { return "xdp" }

// Key implements Object.
func (x XDP) Key() string { return "xdp/" + x.Dev }

// Brief implements Object.
func (x XDP) Brief() string { return x.Program + " (" + x.Mode + ")" }

func (x XDP) commands(c Change) []string {
	mode := map[string]string{"native": "xdpdrv", "generic": "xdpgeneric"}[x.Mode]
	if c.New == nil {
		return one(fmt.Sprintf("ip link set dev %s %s off", x.Dev, mode))
	}
	return one(fmt.Sprintf("ip link set dev %s %s object niclane.o section xdp", x.Dev, mode))
}

// putXDP sets or removes the XDP program. It also removes the contents of the program's maps.
func (d *Device) putXDP(x XDP, next Object) {
	d.Programs = slices.DeleteFunc(slices.Clone(d.Programs), func(p Program) bool {
		return p.Attach == AttachXDP || p.Attach == AttachXDPGeneric
	})
	d.CPUQueues, d.CPUThreads, d.CPULanes, d.XDPEntries = nil, nil, nil, nil
	d.Tunnels = slices.DeleteFunc(slices.Clone(d.Tunnels), func(t Tunnels) bool { return t.Filter == x.Key() })
	if x, ok := next.(XDP); ok {
		attach := AttachXDP
		if x.Mode == "generic" {
			attach = AttachXDPGeneric
		}
		d.Programs = append(d.Programs, Program{Attach: attach, Name: x.Program})
	}
}

func (d *Device) xdps(yield func(Object)) {
	if x, ok := d.XDP(); ok {
		yield(x)
	}
}

// A CPUQueue is an entry of the XDP program's cpumap: a packet queue for one processor, with a
// kernel thread there that empties it.
type CPUQueue struct {
	Dev string `json:"dev"`
	CPU int    `json:"cpu"`
	// Size is the queue's length in packets (struct bpf_cpumap_val, qsize; at most 16384).
	Size int `json:"size"`
}

// Kind implements Object.
func (CPUQueue) Kind() string { return "cpu-queue" }

// Key implements Object.
func (q CPUQueue) Key() string { return fmt.Sprintf("cpuqueue/%s/%d", q.Dev, q.CPU) }

// Brief implements Object.
func (q CPUQueue) Brief() string { return fmt.Sprintf("%d packets", q.Size) }

func (q CPUQueue) commands(c Change) []string {
	if c.New == nil {
		return one(fmt.Sprintf("bpftool map delete id <cpumap of %s> key %d", q.Dev, q.CPU))
	}
	return one(fmt.Sprintf("bpftool map update id <cpumap of %s> key %d value <qsize %d>", q.Dev, q.CPU, q.Size))
}

func (q CPUQueue) standsOn() []string { return []string{XDP{Dev: q.Dev}.Key()} }

// putCPUQueue makes, changes or removes a queue, and makes or removes the queue's thread.
func (d *Device) putCPUQueue(q CPUQueue, next Object) {
	replace(&d.CPUQueues, q, next)
	var fresh Object = CPUThread{Dev: q.Dev, CPU: q.CPU, Policy: "other"}
	has := slices.ContainsFunc(d.CPUThreads, func(t CPUThread) bool { return t.CPU == q.CPU })
	switch {
	case next == nil:
		replace(&d.CPUThreads, fresh, nil)
	case !has:
		replace(&d.CPUThreads, fresh, fresh)
	}
}

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

// Brief implements Object.
func (t CPUThread) Brief() string { return scheduled(t.Policy, t.Priority, t.Nice, t.SchedAttr) }

func (t CPUThread) commands(_ Change) []string {
	return chrtLines(t.Policy, t.Priority, t.Nice, t.SchedAttr, fmt.Sprintf("<PID of cpumap/%d of %s>", t.CPU, t.Dev))
}

func (t CPUThread) standsOn() []string {
	return []string{CPUQueue{Dev: t.Dev, CPU: t.CPU}.Key(), XDP{Dev: t.Dev}.Key()}
}

// putCPUThread changes a thread. It never removes a thread, because a thread lives as long as its
// queue.
func (d *Device) putCPUThread(t CPUThread, next Object) {
	if next != nil {
		replace(&d.CPUThreads, t, next)
	}
}

// A CPULane is a lane in the XDP program: a list of processors. A hash of the flow chooses one of
// them. Each processor needs a CPUQueue.
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

// Brief implements Object.
func (l CPULane) Brief() string { return "processors " + FormatCPUList(l.CPUs) }

func (l CPULane) commands(c Change) []string {
	if c.New == nil {
		return one(fmt.Sprintf("bpftool map update id <lanes of %s> key %d value <none>", l.Dev, l.Lane))
	}
	return one(fmt.Sprintf("bpftool map update id <lanes of %s> key %d value <processors %s>", l.Dev, l.Lane,
		FormatCPUList(l.CPUs)))
}

func (l CPULane) standsOn() []string { return []string{XDP{Dev: l.Dev}.Key()} }

// An XDPEntry is one entry in the map of the XDP program: matching packets
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

// Brief implements Object.
func (e XDPEntry) Brief() string { return fmt.Sprintf("lane %d", e.Lane) }

func (e XDPEntry) commands(c Change) []string {
	if c.New == nil {
		return one(fmt.Sprintf("bpftool map delete id <flows of %s> key <%s>", e.Dev, e.Match))
	}
	return one(fmt.Sprintf("bpftool map update id <flows of %s> key <%s> value <lane %d>", e.Dev, e.Match, e.Lane))
}

func (e XDPEntry) standsOn() []string { return []string{XDP{Dev: e.Dev}.Key()} }

func (e XDPEntry) match() Match { return e.Match }

func (e XDPEntry) equal(o Object) bool {
	b, ok := o.(XDPEntry)
	return ok && e == b
}

// XDP returns the program in the device's XDP slot, false if the slot is empty.
func (d *Device) XDP() (XDP, bool) {
	for _, p := range d.Programs {
		switch p.Attach {
		case AttachXDP:
			return XDP{Dev: d.Name, Mode: "native", Program: p.Name}, true
		case AttachXDPGeneric:
			return XDP{Dev: d.Name, Mode: "generic", Program: p.Name}, true
		}
	}
	return XDP{}, false
}
