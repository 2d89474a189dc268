// SPDX-License-Identifier: Apache-2.0

// Package sched reads and sets the scheduling of kernel threads: policy, priority and nice
// value (sched(7)), and affinity. It starts and ends no thread. It does not check the owner of
// a thread: callers check its name.
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

// maxCPUs is the kernel's largest NR_CPUS.
const maxCPUs = 8192

// policies are the scheduling policies of sched(7) that a kernel thread may have.
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
// sched_setattr(2) overwrites. The flags of utilisation clamps are not among them: without
// these flags, the kernel keeps the clamps.
const keptFlags = unix.SCHED_FLAG_RESET_ON_FORK | unix.SCHED_FLAG_RECLAIM | unix.SCHED_FLAG_DL_OVERRUN

// A Policy is the scheduling of a thread.
type Policy struct {
	Name     string // "other", "fifo", "rr", "batch", "idle", "deadline", "ext", or a number for any other
	Priority int    // 1-99 with fifo and rr
	Nice     int    // -20 to 19 with other and batch
	device.SchedAttr
}

// Get returns a thread's policy, or ESRCH if the thread is gone.
func Get(pid int) (Policy, error) {
	attr, err := unix.SchedGetAttr(pid, 0)
	if err != nil {
		return Policy{}, fmt.Errorf("get scheduling of thread %d: %w", pid, err)
	}
	p := Policy{Name: strconv.Itoa(int(attr.Policy)), Priority: int(attr.Priority), Nice: int(attr.Nice),
		SchedAttr: device.SchedAttr{Runtime: attr.Runtime, Deadline: attr.Deadline, Period: attr.Period,
			SchedFlags: attr.Flags & keptFlags}}
	if attr.Policy != unix.SCHED_DEADLINE { // since Linux 6.12, other policies have a slice in Runtime
		p.Runtime, p.Deadline, p.Period = 0, 0, 0
	}
	for _, known := range policies {
		if known.number == attr.Policy {
			p.Name = known.name
		}
	}
	return p, nil
}

// Set gives a thread a policy. The error is ESRCH if the thread is gone. For "deadline" it is
// EPERM if the thread's CPUs are restricted, and EBUSY if the CPUs cannot keep the deadlines.
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

// Affinity returns the CPUs on which a thread may run, or ESRCH if it is gone. pid 0 is the
// calling thread.
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

// SetAffinity restricts a thread to CPUs; pid 0 is the calling thread. The error is EINVAL if
// the kernel has bound the thread to one CPU.
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

// DefaultCPUs returns the CPUs of kthreadd, which kernel threads inherit: all except those
// excluded by isolcpus or nohz_full (kernel/kthread.c).
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

// Name returns a thread's name. A kernel thread's name is complete: since Linux 5.17,
// /proc/PID/comm does not cut it to 15 characters (d6986ce24fc0). The error is ESRCH if the
// thread is gone.
func Name(pid int) (string, error) {
	b, err := read(fmt.Sprintf("/proc/%d/comm", pid), 128)
	return strings.TrimSuffix(string(b), "\n"), err
}

// read reads a small file of /proc. Unlike os.ReadFile, it does not use the poller of Go's
// run-time, which costs more than the read. Callers read several files for each thread.
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

// gone turns ENOENT into ESRCH. /proc answers ENOENT at the open if the thread has ended, and
// ESRCH at the read if the thread has ended since the open.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", unix.ESRCH, err)
	}
	return err
}
