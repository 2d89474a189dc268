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
	"github.com/niclane/niclane/internal/testing/must"
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
		vethtest.Absent(t, o.Key()+" at first", c, o)
	}
	for _, o := range []device.Object{queue0, lane1, e} {
		must.Refuse(t, o.Key()+" without a program", c.Write(nil, o), unix.ENOENT)
	}
	must.Refuse(t, thread.Key()+" without a program", c.Write(nil, thread), unix.ESRCH)
	vethtest.Write(t, c, nil, x)
	must.Refuse(t, "attaching twice", c.Write(nil, x), unix.EBUSY)
	must.Refuse(t, "lane without a queue", c.Write(nil, lane1), unix.ENOENT)
	vethtest.Write(t, c, nil, queue0)
	id, err := c.CPUMap("v0")
	must.Do(t, err)
	name := fmt.Sprintf("cpumap/0/map:%d", id)
	if found, err := sched.Find(name); err != nil || len(found) != 1 {
		t.Errorf("threads %v, %v", found, err)
	}
	must.Refuse(t, "queue twice", c.Write(nil, queue0), unix.EEXIST)
	if got, err := c.Read(thread); err != nil || !device.Equal(got, thread) {
		t.Errorf("thread of a new queue: %+v, %v", got, err)
	}
	fifo := device.CPUThread{Dev: "v0", CPU: 0, Policy: "fifo", Priority: 7}
	vethtest.Write(t, c, thread, fifo)
	nice := device.CPUThread{Dev: "v0", CPU: 0, Policy: "other", Nice: -5}
	vethtest.Write(t, c, fifo, nice)
	// If the queue's size changes, it gets a new thread with the same scheduling.
	longer := queue0
	longer.Size = 1024
	vethtest.Write(t, c, queue0, longer)
	if got, err := c.Read(nice); err != nil || !device.Equal(got, nice) {
		t.Errorf("thread of a queue of another size: %+v, %v", got, err)
	}
	if err := c.Write(nice, nil); err != nil {
		t.Error(err)
	}
	if got, err := c.Read(nice); err != nil || !device.Equal(got, thread) {
		t.Errorf("thread at the end: %+v, %v", got, err)
	}
	vethtest.Write(t, c, nil, lane1)
	two := lane1
	two.CPUs = []int{0, 0}
	vethtest.Write(t, c, lane1, two)
	vethtest.Write(t, c, nil, e)
	e2 := e
	e2.Lane = 63
	vethtest.Write(t, c, e, e2)

	got, err := c.Look("v0").Contents()
	same(t, err, &bpf.Contents{
		CPUQueues: []device.CPUQueue{longer}, CPUThreads: []device.CPUThread{thread},
		CPULanes: []device.CPULane{two}, XDPEntries: []device.XDPEntry{e2},
	}, got)
	all := []device.Object{x, longer, thread, two, e2, lane1, device.CPULane{Dev: "v0", Lane: 2}}
	many, err := c.ReadMany(all)
	found := []device.Object{x, longer, thread, two, e2, two, nil}
	same(t, err, found, many)
	many, err = c.ReadMany(slices.Repeat(all, 2)) // enough objects that ReadMany lists the entries
	same(t, err, slices.Repeat(found, 2), many)

	vethtest.Write(t, c, e2, nil)
	vethtest.Write(t, c, two, nil)
	vethtest.Write(t, c, longer, nil)
	vethtest.Write(t, c, nil, queue0) // again, before its thread has ended
	vethtest.Write(t, c, x, nil)
	vethtest.Absent(t, "queue of a removed program", c, queue0)
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

// TestReplacedBehindOurBack: a read returns the program that is attached now, even if another
// process has replaced niclane's.
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

// TestAnew: after Anew, the client does not write into a program that is no longer
// attached.
func TestAnew(t *testing.T) {
	withXDP(t, 1, func(t *testing.T, c *bpf.Client) {
		steer(t, c, generic, 0, someEntries[0].Match)
		vethtest.Command(t, "ip link set v0 xdpgeneric off")
		c.Anew()
		next := xdpEntry(1, device.Match{Family: 4, Protocol: "udp", LocalPort: 4000})
		must.Refuse(t, "an entry of a program that is gone", c.Write(nil, next), unix.ENOENT)
	})
}

func TestRefused(t *testing.T) {
	withXDP(t, 1, func(t *testing.T, c *bpf.Client) {
		lo := native
		lo.Dev = "lo"
		must.Refuse(t, "native mode on lo", c.Write(nil, lo), unix.EOPNOTSUPP)
		must.Refuse(t, "detaching from an empty slot", c.Write(native, nil), unix.ENOENT)
		vethtest.Write(t, c, nil, generic)
		must.Refuse(t, "another mode", c.Write(generic, native), unix.EOPNOTSUPP)
		vethtest.Write(t, c, nil, queue0)
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
			must.Refuse(t, name, c.Write(nil, o), unix.EINVAL)
		}
		for _, o := range []device.Object{lane1, xdpEntry(1, someEntries[0].Match),
			device.CPUQueue{Dev: "v0", CPU: 1, Size: 64}} {
			must.Refuse(t, "changing "+o.Key()+", which does not exist", c.Write(o, o), unix.ENOENT)
			must.Refuse(t, "removing "+o.Key()+", which does not exist", c.Write(o, nil), unix.ENOENT)
		}
	})
}

// TestXDPKilled: a process that is killed between two writes leaves objects; the next
// process finds and removes them.
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
					if o == fifo && n == 2 { // its thread exists with its queue
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
