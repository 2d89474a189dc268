// SPDX-License-Identifier: Apache-2.0

// Package sched reads and sets the scheduling of kernel threads: policy,
// priority and nice value (sched(7)), and affinity. It starts and ends no
// thread, and does not know whose a thread is: callers make sure of that by
// its name.
package sched

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// maxCPUs is more than the kernel's largest NR_CPUS (8192).
const maxCPUs = 8192

// policies of sched(7) that a kernel thread may have been given.
var policies = [...]struct {
	name   string
	number uint32
}{
	{"other", unix.SCHED_NORMAL},
	{"fifo", unix.SCHED_FIFO},
	{"rr", unix.SCHED_RR},
	{"batch", unix.SCHED_BATCH},
	{"idle", unix.SCHED_IDLE},
	{"deadline", unix.SCHED_DEADLINE},
	{"ext", 7}, // SCHED_EXT, Linux 6.12
}

// keptFlags are the SCHED_FLAG_* (linux/sched.h) that sched_getattr(2) returns and
// sched_setattr(2) sets to what it is given. Clamps of the utilisation stay as
// they are unless their own flags are given.
const keptFlags = unix.SCHED_FLAG_RESET_ON_FORK | unix.SCHED_FLAG_RECLAIM | unix.SCHED_FLAG_DL_OVERRUN

// A Policy is how a thread is scheduled.
type Policy struct {
	Name     string // "other", "fifo", "rr", "batch", "idle", "deadline", "ext"; another's number
	Priority int    // 1-99 with fifo and rr
	Nice     int    // -20 to 19 with other and batch
	device.SchedAttr
}

// Get returns a thread's policy, ESRCH if it is gone.
func Get(pid int) (Policy, error) {
	attr, err := unix.SchedGetAttr(pid, 0)
	if err != nil {
		return Policy{}, fmt.Errorf("get scheduling of thread %d: %w", pid, err)
	}
	p := Policy{Name: strconv.Itoa(int(attr.Policy)), Priority: int(attr.Priority), Nice: int(attr.Nice),
		SchedAttr: device.SchedAttr{Runtime: attr.Runtime, Deadline: attr.Deadline, Period: attr.Period,
			SchedFlags: attr.Flags & keptFlags}}
	if attr.Policy != unix.SCHED_DEADLINE { // since Linux 6.12 the others have a slice there
		p.Runtime, p.Deadline, p.Period = 0, 0, 0
	}
	for _, known := range policies {
		if known.number == attr.Policy {
			p.Name = known.name
		}
	}
	return p, nil
}

// Set gives a thread a policy; ESRCH if it is gone. A thread that is confined to
// some processors is refused "deadline" (EPERM), and one beyond what the
// processors can keep EBUSY.
func Set(pid int, p Policy) error {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Priority: uint32(p.Priority), Nice: int32(p.Nice),
		Flags: p.SchedFlags & keptFlags, Runtime: p.Runtime, Deadline: p.Deadline, Period: p.Period}
	found := false
	for _, known := range policies {
		if known.name == p.Name {
			attr.Policy, found = known.number, true
		}
	}
	if n, err := strconv.ParseUint(p.Name, 10, 32); err == nil {
		attr.Policy, found = uint32(n), true
	}
	if !found {
		return fmt.Errorf("scheduling policy %q is not other, fifo, rr, batch, idle, deadline, ext or a number", p.Name)
	}
	if err := unix.SchedSetAttr(pid, &attr, 0); err != nil {
		return fmt.Errorf("set scheduling of thread %d: %w", pid, err)
	}
	return nil
}

// Affinity returns the processors that a thread may run on, ESRCH if it is
// gone; 0 is the calling one.
func Affinity(pid int) ([]int, error) {
	set := unix.NewCPUSet(maxCPUs)
	if err := unix.SchedGetaffinityDynamic(pid, set); err != nil {
		return nil, fmt.Errorf("get affinity of thread %d: %w", pid, err)
	}
	cpus := []int{}
	for cpu := range maxCPUs {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// SetAffinity confines a thread, 0 the calling one, to processors. Threads that the kernel has
// bound to one refuse it (EINVAL).
func SetAffinity(pid int, cpus []int) error {
	set := unix.NewCPUSet(maxCPUs)
	for _, cpu := range cpus {
		if cpu < 0 || cpu >= maxCPUs {
			return fmt.Errorf("set affinity of thread %d: CPU %d: want 0 to %d: %w", pid, cpu, maxCPUs-1, unix.EINVAL)
		}
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinityDynamic(pid, set); err != nil {
		return fmt.Errorf("set affinity of thread %d to CPUs %s: %w", pid, device.FormatCPUList(cpus), err)
	}
	return nil
}

// DefaultCPUs are those of kthreadd, from which kernel threads get theirs: all
// but those taken away by isolcpus or nohz_full (kernel/kthread.c).
func DefaultCPUs() ([]int, error) {
	const kthreadd = 2
	if name, err := Name(kthreadd); err == nil && name == "kthreadd" {
		return Affinity(kthreadd)
	}
	b, err := os.ReadFile("/sys/devices/system/cpu/possible")
	if err != nil {
		return nil, err
	}
	return device.ParseCPUList(string(b))
}

// Name returns a thread's name, of a kernel thread all of it: since Linux 5.17
// /proc/PID/comm is not cut to 15 characters there (d6986ce24fc0). A
// thread that is gone is ESRCH.
func Name(pid int) (string, error) {
	b, err := read(fmt.Sprintf("/proc/%d/comm", pid), 128)
	return strings.TrimSuffix(string(b), "\n"), err
}

// read is for files that are read several times for each thread: os.ReadFile's
// way through the run-time's poller costs more than the reading.
func read(path string, size int) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, gone(&fs.PathError{Op: "open", Path: path, Err: err})
	}
	defer unix.Close(fd)
	b := make([]byte, size)
	n, err := unix.Read(fd, b)
	if err != nil {
		return nil, gone(&fs.PathError{Op: "read", Path: path, Err: err})
	}
	return b[:n], nil
}

// gone is one error for what /proc says of a thread before it is opened and
// after.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", unix.ESRCH, err)
	}
	return err
}
