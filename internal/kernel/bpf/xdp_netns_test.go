// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/sched"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

var (
	generic = device.XDP{Dev: "v0", Mode: "generic", Program: bpf.IngressProgram}
	native  = device.XDP{Dev: "v0", Mode: "native", Program: bpf.IngressProgram}
	queue0  = device.CPUQueue{Dev: "v0", CPU: 0, Size: 192}
	lane1   = device.CPULane{Dev: "v0", Lane: 1, CPUs: []int{0}}
)

func xdpEntry(lane int, m device.Match) device.XDPEntry {
	return device.XDPEntry{Dev: "v0", Match: m, Lane: lane}
}

// withXDP runs f on a veth.
func withXDP[T testing.TB](t T, queues int, f func(t T, c *bpf.Client)) {
	t.Helper()
	withClients(t, queues, func(t T, _ *tc.Client, c *bpf.Client) { f(t, c) })
}

func TestXDPObjectsReadBack(t *testing.T) {
	for _, x := range []device.XDP{generic, native} {
		t.Run(x.Mode, func(t *testing.T) {
			withXDP(t, 2, func(t *testing.T, c *bpf.Client) { readBack(t, c, x) })
		})
	}
}

func readBack(t *testing.T, c *bpf.Client, x device.XDP) {
	thread := device.CPUThread{Dev: "v0", CPU: 0, Policy: "other"}
	e := xdpEntry(1, device.Match{Family: 4, Protocol: "tcp", LocalPort: 11211})
	for _, o := range []device.Object{x, queue0, thread, lane1, e} {
		if got, err := c.Read(o); got != nil || err != nil {
			t.Fatalf("%s at first: %v, %v", o.Key(), got, err)
		}
	}
	for _, o := range []device.Object{queue0, lane1, e} {
		if err := c.Write(nil, o); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s without a program: %v, want ENOENT", o.Key(), err)
		}
	}
	if err := c.Write(nil, thread); !errors.Is(err, unix.ESRCH) {
		t.Errorf("%s without a program: %v, want ESRCH", thread.Key(), err)
	}
	write(t, c, nil, x)
	if err := c.Write(nil, x); !errors.Is(err, unix.EBUSY) {
		t.Errorf("attaching twice: %v, want EBUSY", err)
	}
	if err := c.Write(nil, lane1); !errors.Is(err, unix.ENOENT) {
		t.Errorf("lane without a queue: %v, want ENOENT", err)
	}
	write(t, c, nil, queue0)
	id, err := c.CPUMap("v0")
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("cpumap/0/map:%d", id)
	if found, err := sched.Find(name); err != nil || len(found) != 1 {
		t.Errorf("threads %v, %v", found, err)
	}
	if err := c.Write(nil, queue0); !errors.Is(err, unix.EEXIST) {
		t.Errorf("queue twice: %v, want EEXIST", err)
	}
	if got, err := c.Read(thread); err != nil || !device.Equal(got, thread) {
		t.Errorf("thread of a new queue: %+v, %v", got, err)
	}
	fifo := device.CPUThread{Dev: "v0", CPU: 0, Policy: "fifo", Priority: 7}
	write(t, c, thread, fifo)
	nice := device.CPUThread{Dev: "v0", CPU: 0, Policy: "other", Nice: -5}
	write(t, c, fifo, nice)
	// Another size is another thread, with the same scheduling.
	longer := queue0
	longer.Size = 1024
	write(t, c, queue0, longer)
	if got, err := c.Read(nice); err != nil || !device.Equal(got, nice) {
		t.Errorf("thread of a queue of another size: %+v, %v", got, err)
	}
	if err := c.Write(nice, nil); err != nil {
		t.Error(err)
	}
	if got, err := c.Read(nice); err != nil || !device.Equal(got, thread) {
		t.Errorf("thread at the end: %+v, %v", got, err)
	}
	write(t, c, nil, lane1)
	two := lane1
	two.CPUs = []int{0, 0}
	write(t, c, lane1, two)
	write(t, c, nil, e)
	e2 := e
	e2.Lane = 63
	write(t, c, e, e2)

	got, err := c.Look("v0").Contents()
	same(t, err, &bpf.Contents{
		CPUQueues: []device.CPUQueue{longer}, CPUThreads: []device.CPUThread{thread},
		CPULanes: []device.CPULane{two}, XDPEntries: []device.XDPEntry{e2},
	}, got)
	all := []device.Object{x, longer, thread, two, e2, lane1, device.CPULane{Dev: "v0", Lane: 2}}
	many, err := c.ReadMany(all)
	found := []device.Object{x, longer, thread, two, e2, two, nil}
	same(t, err, found, many)
	many, err = c.ReadMany(slices.Repeat(all, 2)) // so many that entries are listed
	same(t, err, slices.Repeat(found, 2), many)

	write(t, c, e2, nil)
	write(t, c, two, nil)
	write(t, c, longer, nil)
	write(t, c, nil, queue0) // and again, before its thread has ended
	write(t, c, x, nil)
	if got, err := c.Read(queue0); got != nil || err != nil {
		t.Errorf("queue of a removed program: %v, %v", got, err)
	}
	vethtest.Until(t, "the thread ends with its program", func() bool {
		found, err := sched.Find(name)
		return err == nil && len(found) == 0
	})
	vethtest.Until(t, "the map ends with its program", func() bool {
		m, err := ebpf.NewMapFromID(id)
		if err == nil {
			m.Close()
		}
		return errors.Is(err, os.ErrNotExist)
	})
	gone := x
	gone.Dev = "v9"
	if _, err := c.Read(gone); !errors.Is(err, unix.ENODEV) {
		t.Errorf("on a device that does not exist: %v, want ENODEV", err)
	}
}

func same[T any](t *testing.T, err error, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestReplacedBehindOurBack: who observes sees the program that is there now.
func TestReplacedBehindOurBack(t *testing.T) {
	withXDP(t, 1, func(t *testing.T, c *bpf.Client) {
		steer(t, c, generic, 0, someEntries[0].Match)
		vethtest.Command(t, "ip link set v0 xdpgeneric off")
		all, err := c.Look("v0").Contents()
		same(t, err, &bpf.Contents{}, all)
		counters, err := c.XDPCounters("v0")
		same(t, err, nil, counters)
		if got, err := c.Read(generic); got != nil || err != nil {
			t.Errorf("read %v, %v", got, err)
		}
		steer(t, c, generic, 0, someEntries[0].Match)
	})
}

// TestAnew: who says that others may have changed things since does not write where no
// packet comes any more.
func TestAnew(t *testing.T) {
	withXDP(t, 1, func(t *testing.T, c *bpf.Client) {
		steer(t, c, generic, 0, someEntries[0].Match)
		vethtest.Command(t, "ip link set v0 xdpgeneric off")
		c.Anew()
		next := xdpEntry(1, device.Match{Family: 4, Protocol: "udp", LocalPort: 4000})
		if err := c.Write(nil, next); !errors.Is(err, unix.ENOENT) {
			t.Errorf("an entry of a program that is gone: %v, want ENOENT", err)
		}
	})
}

func TestRefused(t *testing.T) {
	withXDP(t, 1, func(t *testing.T, c *bpf.Client) {
		lo := native
		lo.Dev = "lo"
		if err := c.Write(nil, lo); !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("native mode on lo: %v, want EOPNOTSUPP", err)
		}
		if err := c.Write(native, nil); !errors.Is(err, unix.ENOENT) {
			t.Errorf("detaching from an empty slot: %v, want ENOENT", err)
		}
		write(t, c, nil, generic)
		if err := c.Write(generic, native); !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("another mode: %v, want EOPNOTSUPP", err)
		}
		write(t, c, nil, queue0)
		for name, o := range map[string]device.Object{
			"mode":            device.XDP{Dev: "v1", Mode: "offload", Program: bpf.IngressProgram},
			"program":         device.XDP{Dev: "v1", Mode: "generic", Program: bpf.EgressProgram},
			"queue size 0":    device.CPUQueue{Dev: "v0", CPU: 1},
			"queue too long":  device.CPUQueue{Dev: "v0", CPU: 1, Size: 16385},
			"CPU too high":    device.CPUQueue{Dev: "v0", CPU: 1 << 20, Size: 64},
			"CPU negative":    device.CPUQueue{Dev: "v0", CPU: -1, Size: 64},
			"lane 0":          device.CPULane{Dev: "v0", Lane: 0, CPUs: []int{0}},
			"lane 64":         device.CPULane{Dev: "v0", Lane: 64, CPUs: []int{0}},
			"lane of no CPUs": device.CPULane{Dev: "v0", Lane: 1},
			"lane of 65 CPUs": device.CPULane{Dev: "v0", Lane: 1, CPUs: make([]int, 65)},
			"entry of lane 0": xdpEntry(0, someEntries[0].Match),
		} {
			if err := c.Write(nil, o); !errors.Is(err, unix.EINVAL) {
				t.Errorf("%s: %v, want EINVAL", name, err)
			}
		}
		for _, o := range []device.Object{lane1, xdpEntry(1, someEntries[0].Match),
			device.CPUQueue{Dev: "v0", CPU: 1, Size: 64}} {
			if err := c.Write(o, o); !errors.Is(err, unix.ENOENT) {
				t.Errorf("changing %s, which does not exist: %v, want ENOENT", o.Key(), err)
			}
			if err := c.Write(o, nil); !errors.Is(err, unix.ENOENT) {
				t.Errorf("removing %s, which does not exist: %v, want ENOENT", o.Key(), err)
			}
		}
	})
}

// TestXDPKilled: whoever comes after a process that was killed between two
// writes finds what that one made, and removes it.
func TestXDPKilled(t *testing.T) {
	withXDP(t, 1, func(t *testing.T, _ *bpf.Client) {
		anew := func(f func(c *bpf.Client)) {
			c := bpf.New(nil) // no filters here
			f(c)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		fifo := device.CPUThread{Dev: "v0", CPU: 0, Policy: "fifo", Priority: 3}
		steps := []device.Object{generic, queue0, fifo, lane1, xdpEntry(1, someEntries[0].Match),
			xdpEntry(1, someEntries[4].Match)}
		for n := range len(steps) + 1 {
			for i, o := range steps[:n] {
				anew(func(c *bpf.Client) {
					if err := c.Write(nil, o); err != nil {
						t.Fatalf("step %d of %d: %v", i, n, err)
					}
				})
			}
			anew(func(c *bpf.Client) {
				got, err := c.ReadMany(steps)
				want := append([]device.Object{}, steps[:n]...)
				for _, o := range steps[n:] {
					if o == fifo && n == 2 { // it is there with its queue
						o = device.CPUThread{Dev: "v0", CPU: 0, Policy: "other"}
					} else {
						o = nil
					}
					want = append(want, o)
				}
				same(t, err, want, got)
			})
			for i := n - 1; i >= 0; i-- {
				anew(func(c *bpf.Client) {
					if err := c.Write(steps[i], nil); err != nil {
						t.Fatalf("undoing step %d of %d: %v", i, n, err)
					}
				})
			}
			anew(func(c *bpf.Client) {
				got, err := c.ReadMany(steps)
				same(t, err, make([]device.Object, len(steps)), got)
			})
		}
	})
}
