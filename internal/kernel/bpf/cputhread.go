// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/sched"
	"github.com/niclane/niclane/lane/device"
)

// threadName returns the name that the kernel gives the thread of a CPU's queue
// (__cpu_map_entry_alloc). It contains the map's ID, which is unique while the map
// exists. The kernel reuses an ID only after all others (idr_alloc_cyclic in
// bpf_map_alloc_id). A process can take such a name, but not the flag of kernel threads.
func (m *xdpMaps) threadName(cpu int) string {
	return fmt.Sprintf("cpumap/%d/map:%d", cpu, m.cpusID)
}

// findThread returns the PID of the thread of a CPU that has a queue.
func (c *Client) findThread(m *xdpMaps, cpu int) (int, error) {
	name := m.threadName(cpu)
	if pid, ok := c.threads[name]; ok {
		if same, err := sched.IsKernelThread(pid, name); same || err != nil {
			return pid, err
		}
	}
	if err := c.findThreads(m, cpu); err != nil {
		return 0, err
	}
	pid, ok := c.threads[name]
	if !ok {
		return 0, fmt.Errorf("%w: no kernel thread %s: is this another PID namespace than the machine's?", unix.ESRCH,
			name)
	}
	return pid, nil
}

// findThreads finds the threads of several CPUs in one search.
func (c *Client) findThreads(m *xdpMaps, cpus ...int) error {
	var names []string
	for _, cpu := range cpus {
		names = append(names, m.threadName(cpu))
	}
	found, err := sched.Find(names...)
	if err != nil {
		return fmt.Errorf("look for %s: %w", names, err)
	}
	if c.threads == nil {
		c.threads = map[string]int{}
	}
	for _, name := range names {
		delete(c.threads, name)
		if pid, ok := found[name]; ok {
			c.threads[name] = pid
		}
	}
	return nil
}

// cpuThread returns the scheduling of the thread of a CPU's queue, or nil if the CPU
// has no queue.
func (c *Client) cpuThread(m *xdpMaps, cpu int) (*device.CPUThread, error) {
	q, err := m.queue(cpu)
	if q == nil || err != nil {
		return nil, err
	}
	pid, err := c.findThread(m, cpu)
	if err != nil {
		return nil, err
	}
	p, err := sched.Get(pid)
	if err != nil {
		return nil, err
	}
	return &device.CPUThread{Dev: m.dev, CPU: cpu, Policy: p.Name, Priority: p.Priority, Nice: p.Nice,
		SchedAttr: p.SchedAttr}, nil
}

func (c *Client) readCPUThread(t device.CPUThread) (device.Object, error) {
	m, err := c.openXDP(t.Dev)
	if m == nil || err != nil {
		return nil, err
	}
	got, err := objectOf(c.cpuThread(m, t.CPU))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Key(), err)
	}
	return got, nil
}

// writeCPUThread sets the scheduling of a thread. If next is nil, it sets the kernel's
// default. If the CPU has no queue, and so no thread, a nil next is no error.
func (c *Client) writeCPUThread(next device.Object, t device.CPUThread) error {
	m, err := c.openXDP(t.Dev)
	if err != nil {
		return err
	}
	var q *device.CPUQueue
	if m != nil {
		if q, err = m.queue(t.CPU); err != nil {
			return err
		}
	}
	switch {
	case q == nil && next == nil:
		return nil
	case q == nil:
		return fmt.Errorf("%w: CPU %d has no queue in %s's cpumap, and so no thread", unix.ESRCH, t.CPU, t.Dev)
	case next == nil:
		t = device.CPUThread{Policy: "other"}
	}
	pid, err := c.findThread(m, q.CPU)
	if err == nil {
		err = sched.Set(pid, sched.Policy{Name: t.Policy, Priority: t.Priority, Nice: t.Nice, SchedAttr: t.SchedAttr})
	}
	if next == nil && errors.Is(err, unix.ESRCH) {
		return nil // the thread has ended meanwhile
	}
	return err
}

// cpuThreadsOf returns the scheduling of the threads of niclane's XDP program on a
// device, or none if the program is not attached.
func (c *Client) cpuThreadsOf(dev string) ([]device.CPUThread, error) {
	m, err := c.openXDP(dev)
	if m == nil || err != nil {
		return nil, err
	}
	queues, err := m.queues()
	if err != nil {
		return nil, err
	}
	return c.threadsOf(m, queues)
}

// threadsOf returns the scheduling of the queues' threads, ordered by CPU.
func (c *Client) threadsOf(m *xdpMaps, queues []device.CPUQueue) ([]device.CPUThread, error) {
	if len(queues) == 0 {
		return nil, nil
	}
	var cpus []int
	for _, q := range queues {
		cpus = append(cpus, q.CPU)
	}
	if err := c.findThreads(m, cpus...); err != nil {
		return nil, err
	}
	var out []device.CPUThread
	for _, cpu := range cpus {
		t, err := c.cpuThread(m, cpu)
		if err != nil {
			return nil, err
		}
		if t != nil {
			out = append(out, *t)
		}
	}
	return out, nil
}
