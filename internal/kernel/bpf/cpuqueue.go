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
	Program uint32 // niclane has none there
}

// maxQueueSize is the largest that cpumap takes (cpu_map_update_elem).
const maxQueueSize = 16384

// queue returns a CPU's queue, nil if it has none.
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
		return unix.EEXIST // the map would replace it
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
	// Another size is another queue with another thread, which gets the
	// scheduling of the one before: that is an object of its own.
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

// online checks that a CPU is: the map takes one that is not, and its thread
// would run elsewhere.
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

// queues returns all that there are, by CPU.
func (m *xdpMaps) queues() ([]device.CPUQueue, error) {
	return present(0, int(m.cpus.MaxEntries()), m.queue)
}

// present returns what get finds of numbers from first on, below end.
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
