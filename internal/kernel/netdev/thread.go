// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/sched"
	"github.com/niclane/niclane/lane/device"
)

// ReadThread returns the scheduling of the NAPI thread pid, or nil if pid is 0 or the thread
// is gone. The caller fills in Dev and Queue.
func ReadThread(pid int) (*device.Thread, error) {
	if ok, err := isNAPIThread(pid); !ok {
		return nil, err
	}
	p, err := sched.Get(pid)
	var cpus []int
	if err == nil {
		cpus, err = sched.Affinity(pid)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &device.Thread{Policy: p.Name, Priority: p.Priority, Nice: p.Nice, SchedAttr: p.SchedAttr, CPUs: cpus}, nil
}

// WriteThread sets the scheduling of the NAPI thread pid. If t is nil, it sets the kernel's
// defaults, and a thread that is gone is no error.
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
		cpus, err := sched.DefaultCPUs()
		if err != nil {
			return err
		}
		err = schedule(pid, device.Thread{Policy: "other", CPUs: cpus})
		if errors.Is(err, unix.ESRCH) {
			return nil // the thread has ended meanwhile
		}
		return err
	}
	return schedule(pid, *t)
}

func schedule(pid int, t device.Thread) error {
	p := sched.Policy{Name: t.Policy, Priority: t.Priority, Nice: t.Nice, SchedAttr: t.SchedAttr}
	if t.Policy == "deadline" {
		// The kernel gives the deadline policy only to a thread that may run on all CPUs. It
		// refuses to restrict the CPUs of a thread that has this policy (sched_setattr(2),
		// dl_task_check_affinity).
		if err := sched.SetAffinity(pid, t.CPUs); err != nil && !errors.Is(err, unix.EBUSY) {
			return err
		}
		return sched.Set(pid, p)
	}
	if err := sched.Set(pid, p); err != nil {
		return err
	}
	return sched.SetAffinity(pid, t.CPUs)
}

// isNAPIThread reports whether pid is a NAPI's kernel thread. Kernels before 6.19 report the
// thread's PID in the initial PID namespace (netdev_nl_napi_fill_one). In a container, another
// process may have the same PID, so isNAPIThread checks the name.
func isNAPIThread(pid int) (bool, error) {
	if pid <= 0 {
		return false, nil
	}
	name, err := sched.Name(pid)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !strings.HasPrefix(name, "napi/") {
		return false, fmt.Errorf("process %d is %q, not a NAPI thread: its PID is of another PID namespace", pid, name)
	}
	return true, nil
}
