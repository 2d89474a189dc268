// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

// onThread runs f on a thread of its own, which ends with f.
func onThread(f func(tid int)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f(unix.Gettid())
	}()
	<-done
}

// none is a PID above the largest possible one (PID_MAX_LIMIT).
const none = 1<<22 + 1

func TestPolicy(t *testing.T) {
	onThread(func(tid int) {
		for _, want := range []Policy{
			{Name: "other", Nice: 5}, {Name: "batch", Nice: 7}, {Name: "other"},
			{Name: "fifo", Priority: 1}, {Name: "rr", Priority: 2}, {Name: "other", Nice: -3},
			{Name: "fifo", Priority: 3, SchedAttr: device.SchedAttr{SchedFlags: unix.SCHED_FLAG_RESET_ON_FORK}},
			{Name: "deadline", SchedAttr: device.SchedAttr{Runtime: 1e6, Deadline: 50e6, Period: 100e6,
				SchedFlags: unix.SCHED_FLAG_RECLAIM}},
			{Name: "other"},
		} {
			err := Set(tid, want)
			if errors.Is(err, unix.EPERM) {
				t.Skip(err)
			}
			if want.Name == "deadline" && errors.Is(err, unix.EBUSY) {
				continue // other tasks have all the deadline bandwidth
			}
			got, gerr := Get(tid)
			if err != nil || gerr != nil || got != want {
				t.Errorf("set %+v: %v; got %+v, %v", want, err, got, gerr)
			}
		}
		if err := Set(tid, Policy{Name: "quick"}); err == nil {
			t.Error("set the policy quick")
		}
		must.Refuse(t, "fifo 100", Set(tid, Policy{Name: "fifo", Priority: 100}), unix.EINVAL)
	})
}

func TestAffinity(t *testing.T) {
	onThread(func(tid int) {
		all, err := Affinity(tid)
		if err != nil || len(all) == 0 {
			t.Fatalf("%v, %v", all, err)
		}
		one := all[len(all)-1:]
		must.Do(t, SetAffinity(tid, one))
		if got, err := Affinity(tid); err != nil || !slices.Equal(got, one) {
			t.Errorf("got %v, %v, want %v", got, err, one)
		}
	})
	if cpus, err := DefaultCPUs(); err != nil || len(cpus) == 0 {
		t.Errorf("default CPUs %v, %v", cpus, err)
	}
}

func TestGone(t *testing.T) {
	_, err1 := Get(none)
	_, err2 := Affinity(none)
	_, err3 := Name(none)
	for _, err := range []error{err1, err2, err3, Set(none, Policy{Name: "other"}), SetAffinity(none, []int{0})} {
		if !errors.Is(err, unix.ESRCH) {
			t.Errorf("%v, want ESRCH", err)
		}
	}
	if ok, err := IsKernelThread(none, "x"); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
}

// TestFind: Find finds a kernel thread that every machine has. It does not find a process that
// has taken the name of a kernel thread.
func TestFind(t *testing.T) {
	const kthreadd = 2
	if name, err := Name(kthreadd); err != nil || name != "kthreadd" {
		t.Skipf("process 2 is %q, %v: not the first PID namespace", name, err)
	}
	const fake = "cpumap/0/map:1"
	onThread(func(tid int) {
		must.Do(t, os.WriteFile(fmt.Sprintf("/proc/self/task/%d/comm", unix.Getpid()), []byte(fake), 0))
		name, err := Name(unix.Getpid())
		if err != nil || name != fake {
			t.Fatalf("this process is %q, %v", name, err)
		}
		got, err := Find("kthreadd", fake, "no such thread")
		if err != nil || len(got) != 1 || got["kthreadd"] != kthreadd {
			t.Errorf("found %v, %v", got, err)
		}
		if ok, err := IsKernelThread(unix.Getpid(), fake); ok || err != nil {
			t.Errorf("this process is a kernel thread: %v, %v", ok, err)
		}
		if ok, err := IsKernelThread(kthreadd, "kthreadd"); !ok || err != nil {
			t.Errorf("kthreadd is a kernel thread: %v, %v", ok, err)
		}
		if ok, err := IsKernelThread(kthreadd, fake); ok || err != nil {
			t.Errorf("kthreadd is %s: %v, %v", fake, ok, err)
		}
	})
}

// TestKernelThreads: the list of kernelThreads is shorter than that of all processes, and a
// search finds the same thread in both.
func TestKernelThreads(t *testing.T) {
	all, err := processes()
	must.Do(t, err)
	const name = "ksoftirqd/0"
	want, err := among(all, []string{name})
	must.Do(t, err)
	if want[name] == 0 {
		t.Skip("no kernel threads here: not the first PID namespace")
	}
	for range 20 { // a process may end during a try
		few, err := kernelThreads()
		must.Do(t, err)
		if few == nil {
			continue
		}
		if got, err := among(few, []string{name}); err != nil || got[name] != want[name] {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
		if len(few) >= len(all) {
			t.Errorf("%d kernel threads of %d processes", len(few), len(all))
		}
		return
	}
	t.Skip("this kernel does not list children (CONFIG_PROC_CHILDREN)")
}

func TestParseStat(t *testing.T) {
	rest := " S 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 44123 0 0"
	for _, name := range []string{"cpumap/0/map:7", "a b", "a) S 1 (", ""} {
		flags, start, err := parseStat([]byte("123 (" + name + ")" + rest))
		if err != nil || flags != 2129984 || start != 44123 {
			t.Errorf("%q: %d, %d, %v", name, flags, start, err)
		}
	}
	for _, bad := range []string{"", "1 (x)", "1 (x) S 2", strings.Replace("1 (x)"+rest, "44123", "-1", 1),
		strings.Replace("1 (x)"+rest, "2129984", "x", 1)} {
		if _, _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0"))
	f.Fuzz(func(t *testing.T, b []byte) { _, _, _ = parseStat(b) })
}
