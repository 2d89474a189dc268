// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"slices"
	"strings"
)

// A NAPIConfig is the configuration of a receive queue's NAPI (netdev-genl
// napi-set; Linux 6.13, threaded 6.17). The queue identifies it, because NAPI
// IDs change.
type NAPIConfig struct {
	Dev   string `json:"dev"`
	Queue int    `json:"queue"`
	// Threaded is "off", "on" or "busy" (6.19).
	Threaded          string `json:"threaded"`
	DeferHardIRQs     uint32 `json:"deferHardIRQs"`
	GROFlushTimeout   uint64 `json:"groFlushTimeout"`   // ns
	IRQSuspendTimeout uint64 `json:"irqSuspendTimeout"` // ns
}

// Kind implements Object.
func (NAPIConfig) Kind() string { return "napi" }

// Key implements Object.
func (n NAPIConfig) Key() string { return fmt.Sprintf("napi/%s/%d", n.Dev, n.Queue) }

// Brief implements Object.
func (n NAPIConfig) Brief() string {
	return fmt.Sprintf("threaded %s, defer-hard-irqs %d, gro-flush-timeout %d ns", n.Threaded, n.DeferHardIRQs,
		n.GROFlushTimeout)
}

func (n NAPIConfig) commands(_ Change) []string {
	return one(fmt.Sprintf(`ynl --family netdev --do napi-set --json '{"id": <NAPI of %s rx-%d>, `+
		`"threaded": "%s", "defer-hard-irqs": %d, `+
		`"gro-flush-timeout": %d, "irq-suspend-timeout": %d}'`,
		n.Dev, n.Queue, map[string]string{"off": "disabled", "on": "enabled", "busy": "busy-poll"}[n.Threaded],
		n.DeferHardIRQs, n.GROFlushTimeout, n.IRQSuspendTimeout))
}

func (n NAPIConfig) queue() int { return n.Queue }

func (s *State) putNAPI(c NAPIConfig, next Object) {
	d := s.Device(c.Dev)
	if d == nil {
		return
	}
	i := d.napi(c.Queue)
	now, there := next.(NAPIConfig)
	switch {
	case there && i < 0: // the NAPI of a new channel
		d.NAPIs = append(slices.Clone(d.NAPIs), NAPI{})
		i = len(d.NAPIs) - 1
	case !there && i >= 0 && d.NAPIs[i].ID == 0:
		d.NAPIs = slices.Delete(slices.Clone(d.NAPIs), i, i+1)
		return
	case !there:
		return
	}
	n := &d.NAPIs[i]
	n.Config = now
	switch {
	case now.Threaded == "off":
		n.Thread, n.PID = nil, 0
	case n.Thread == nil:
		n.Thread = s.freshThread(now)
	}
}

func (s *State) napis(yield func(Object)) {
	for _, d := range s.Devices {
		for _, n := range d.NAPIs {
			if n.Config.Queue >= 0 && n.Config.Queue < d.RxQueues {
				yield(n.Config)
			}
		}
	}
}

// A Thread is the scheduling of a NAPI's kernel thread. The thread exists while the NAPI is
// threaded. The kernel assigns its PID.
type Thread struct {
	Dev   string `json:"dev"`
	Queue int    `json:"queue"`
	// Policy is "other" or "fifo" if niclane wrote it. niclane may also find
	// "rr", "batch", "idle", "deadline", "ext" or a number.
	Policy   string `json:"policy"`
	Priority int    `json:"priority,omitempty"` // 1-99 with fifo and rr
	Nice     int    `json:"nice,omitempty"`     // -20 to 19 with other and batch
	SchedAttr
	CPUs []int `json:"cpus"`
}

// Kind implements Object.
func (Thread) Kind() string { return "thread" }

// Key implements Object.
func (t Thread) Key() string { return fmt.Sprintf("thread/%s/%d", t.Dev, t.Queue) }

// Brief implements Object.
func (t Thread) Brief() string {
	return "CPUs " + FormatCPUList(t.CPUs) + ", " + scheduled(t.Policy, t.Priority, t.Nice, t.SchedAttr)
}

func (t Thread) commands(c Change) []string {
	if c.New == nil {
		return nil // the kernel removes it when the NAPI is no longer threaded
	}
	pid := fmt.Sprintf("<PID of the thread of %s rx-%d>", t.Dev, t.Queue)
	return []string{
		fmt.Sprintf("taskset -p -c %s %s", FormatCPUList(t.CPUs), pid),
		strings.Join(chrtLines(t.Policy, t.Priority, t.Nice, t.SchedAttr, pid), "; "),
	}
}

func (t Thread) standsOn() []string { return []string{NAPIConfig{Dev: t.Dev, Queue: t.Queue}.Key()} }

// freshThread returns the thread that the kernel makes for a NAPI: default scheduling, all online
// processors.
func (s *State) freshThread(n NAPIConfig) *Thread {
	return &Thread{Dev: n.Dev, Queue: n.Queue, Policy: "other", CPUs: s.OnlineCPUs()}
}

func (s *State) putThread(t Thread, next Object) {
	d := s.Device(t.Dev)
	if d == nil {
		return
	}
	i := d.napi(t.Queue)
	if i < 0 || d.NAPIs[i].Thread == nil {
		return
	}
	if now, there := next.(Thread); there {
		d.NAPIs[i].Thread = &now
		return
	}
	// The thread ends only with its NAPI's threaded mode. Here, it gets the default scheduling back.
	d.NAPIs[i].Thread = s.freshThread(d.NAPIs[i].Config)
}

func (s *State) threads(yield func(Object)) {
	for _, d := range s.Devices {
		for _, n := range d.NAPIs {
			if n.Thread != nil && n.Config.Queue >= 0 && n.Config.Queue < d.RxQueues {
				yield(*n.Thread)
			}
		}
	}
}

// napi returns the index of the NAPI that polls a receive queue, -1 if there is
// none.
func (d *Device) napi(queue int) int {
	return slices.IndexFunc(d.NAPIs, func(n NAPI) bool { return n.Config.Queue == queue })
}
