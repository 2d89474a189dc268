// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/sched"
	"github.com/niclane/niclane/lane/device"
)

// cpuQueue is struct bpf_cpumap_val.
type cpuQueue struct {
	Size    uint32
	Program uint32 // always 0: niclane sets no program there
}

// maxQueueSize is the largest size that cpumap accepts (cpu_map_update_elem).
const maxQueueSize = 16384

// queue returns a CPU's queue, or nil if it has none.
func (m *xdpMaps) queue(cpu int) (*device.CPUQueue, error) {
	if cpu < 0 || cpu >= int(m.cpus.MaxEntries()) {
		return nil, nil
	}
	var v cpuQueue
	err := m.cpus.Lookup(uint32(cpu), &v)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("queue of CPU %d on %s: %w", cpu, m.dev, err)
	}
	return &device.CPUQueue{Dev: m.dev, CPU: cpu, Size: int(v.Size)}, nil
}

func (c *Client) readCPUQueue(q device.CPUQueue) (device.Object, error) {
	m, err := c.openXDP(q.Dev)
	if m == nil || err != nil {
		return nil, err
	}
	return objectOf(m.queue(q.CPU))
}

func (c *Client) writeCPUQueue(old, next device.Object, q device.CPUQueue) error {
	m, err := c.haveXDP(q.Dev)
	if err != nil {
		return err
	}
	present, err := m.queue(q.CPU)
	switch {
	case err != nil:
		return err
	case old == nil && present != nil:
		return unix.EEXIST // Update would replace the queue
	case old != nil && present == nil:
		return unix.ENOENT
	case next == nil:
		return m.cpus.Delete(uint32(q.CPU))
	case q.CPU < 0 || q.CPU >= int(m.cpus.MaxEntries()):
		return fmt.Errorf("%w: CPU %d: this machine has 0 to %d", unix.EINVAL, q.CPU, m.cpus.MaxEntries()-1)
	case q.Size < 1 || q.Size > maxQueueSize:
		return fmt.Errorf("%w: size %d: want 1 to %d", unix.EINVAL, q.Size, maxQueueSize)
	}
	if err := online(q.CPU); err != nil {
		return err
	}
	// If the size changes, the kernel makes a new queue with a new thread. The thread's
	// scheduling is another object (device.CPUThread) and must not change here, so the new
	// thread gets the scheduling of the old one.
	var policy *sched.Policy
	if old != nil {
		t, err := c.cpuThread(m, q.CPU)
		if err != nil {
			return err
		}
		if t != nil {
			policy = &sched.Policy{Name: t.Policy, Priority: t.Priority, Nice: t.Nice, SchedAttr: t.SchedAttr}
		}
	}
	if err := m.cpus.Update(uint32(q.CPU), cpuQueue{Size: uint32(q.Size)}, ebpf.UpdateAny); err != nil {
		return err
	}
	delete(c.threads, m.threadName(q.CPU))
	if policy == nil {
		return nil
	}
	pid, err := c.findThread(m, q.CPU)
	if err != nil {
		return err
	}
	return sched.Set(pid, *policy)
}

// online returns an error if a CPU is offline. The map accepts such a CPU, but its
// thread would run on another CPU.
func online(cpu int) error {
	const path = "/sys/devices/system/cpu/online"
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	list, err := device.ParseCPUList(string(b))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if !slices.Contains(list, cpu) {
		return fmt.Errorf("%w: CPU %d is offline: want one of %s", unix.EINVAL, cpu, device.FormatCPUList(list))
	}
	return nil
}

// queues returns all queues, by CPU.
func (m *xdpMaps) queues() ([]device.CPUQueue, error) {
	return present(0, int(m.cpus.MaxEntries()), m.queue)
}

// present returns the values that get finds for the numbers from first to end-1.
func present[T any](first, end int, get func(int) (*T, error)) ([]T, error) {
	var out []T
	for n := first; n < end; n++ {
		v, err := get(n)
		if err != nil {
			return nil, err
		}
		if v != nil {
			out = append(out, *v)
		}
	}
	return out, nil
}
