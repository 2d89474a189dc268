// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/device"
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
}

// ReadThread returns the scheduling of the NAPI thread pid, nil if pid is 0 or
// the thread is gone. Dev and Queue are left to the caller.
func ReadThread(pid int) (*device.Thread, error) {
	if ok, err := isNAPIThread(pid); !ok {
		return nil, err
	}
	attr, err := unix.SchedGetAttr(pid, 0)
	if err != nil {
		return gone(pid, "get scheduling", err)
	}
	cpus, err := affinity(pid)
	if err != nil {
		return gone(pid, "get affinity", err)
	}
	t := &device.Thread{Policy: strconv.Itoa(int(attr.Policy)), Priority: int(attr.Priority), Nice: int(attr.Nice), CPUs: cpus}
	for _, p := range policies {
		if p.number == attr.Policy {
			t.Policy = p.name
		}
	}
	return t, nil
}

func gone(pid int, what string, err error) (*device.Thread, error) {
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	return nil, fmt.Errorf("%s of thread %d: %w", what, pid, err)
}

// WriteThread sets the scheduling of the NAPI thread pid. nil means the
// kernel's defaults, and that a thread that is gone is no error.
func WriteThread(pid int, t *device.Thread) error {
	ok, err := isNAPIThread(pid)
	if err != nil {
		return err
	}
	if !ok {
		if t == nil {
			return nil
		}
		return fmt.Errorf("the NAPI has no thread: %w", unix.ESRCH)
	}
	if t == nil {
		cpus, err := defaultCPUs()
		if err != nil {
			return err
		}
		err = schedule(pid, device.Thread{Policy: "other", CPUs: cpus})
		if errors.Is(err, unix.ESRCH) {
			return nil // it ended meanwhile
		}
		return err
	}
	return schedule(pid, *t)
}

func schedule(pid int, t device.Thread) error {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Priority: uint32(t.Priority), Nice: int32(t.Nice)}
	found := false
	for _, p := range policies {
		if p.name == t.Policy {
			attr.Policy, found = p.number, true
		}
	}
	if !found {
		return fmt.Errorf("scheduling policy %q is not other, fifo, rr, batch or idle", t.Policy)
	}
	if err := unix.SchedSetAttr(pid, &attr, 0); err != nil {
		return fmt.Errorf("set scheduling of thread %d: %w", pid, err)
	}
	set := unix.NewCPUSet(maxCPUs)
	for _, cpu := range t.CPUs {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinityDynamic(pid, set); err != nil {
		return fmt.Errorf("set affinity of thread %d to CPUs %s: %w", pid, device.FormatCPUList(t.CPUs), err)
	}
	return nil
}

// isNAPIThread says whether pid is a NAPI's kernel thread. Kernels before 6.19
// give the PID of the initial PID namespace (netdev_nl_napi_fill_one), which
// in a container may be somebody else's; the name tells.
func isNAPIThread(pid int) (bool, error) {
	if pid <= 0 {
		return false, nil
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if name := strings.TrimSpace(string(b)); !strings.HasPrefix(name, "napi/") {
		return false, fmt.Errorf("process %d is %q, not a NAPI thread: its PID is of another PID namespace", pid, name)
	}
	return true, nil
}

// defaultCPUs are those of kthreadd, from which kernel threads get theirs: all
// but those taken away by isolcpus or nohz_full (kernel/kthread.c).
func defaultCPUs() ([]int, error) {
	const kthreadd = 2
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", kthreadd))
	if err == nil && strings.TrimSpace(string(b)) == "kthreadd" {
		return affinity(kthreadd)
	}
	b, err = os.ReadFile("/sys/devices/system/cpu/possible")
	if err != nil {
		return nil, err
	}
	return device.ParseCPUList(string(b))
}

func affinity(pid int) ([]int, error) {
	set := unix.NewCPUSet(maxCPUs)
	if err := unix.SchedGetaffinityDynamic(pid, set); err != nil {
		return nil, err
	}
	cpus := []int{}
	for cpu := range maxCPUs {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}
