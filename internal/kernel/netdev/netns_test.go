// SPDX-License-Identifier: Apache-2.0

package netdev_test

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/kernel/netdev"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

const queues = 4

// open makes clients in the calling thread's namespace. It turns on the veth's GRO, without
// which the veth has no NAPI.
func open(t *testing.T) (*netdev.Client, *ethtool.Client) {
	t.Helper()
	et, err := ethtool.Open()
	must.Do(t, err)
	t.Cleanup(func() { et.Close() })
	must.Do(t, et.SetFeature(device.Feature{Dev: vethtest.Dev, Name: "rx-gro", On: true}))
	c, err := netdev.Open(et)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no netdev-genl in this kernel")
	}
	must.Do(t, err)
	t.Cleanup(func() { c.Close() })
	return c, et
}

func mustRead(t *testing.T, c *netdev.Client, o device.Object) device.Object {
	t.Helper()
	got, err := c.Read(o)
	if err != nil {
		t.Fatalf("Read(%s): %v", o.Key(), err)
	}
	return got
}

func mustWrite(t *testing.T, c *netdev.Client, old, next device.Object) {
	t.Helper()
	if err := c.Write(old, next); err != nil {
		t.Fatalf("Write: %v", err)
	}
}

func TestNAPIConfigRoundTrip(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		c, _ := open(t)
		if _, err := c.Conn.SetPolicy(); errors.Is(err, os.ErrNotExist) {
			t.Skip("no napi-set in this kernel")
		}
		before := mustRead(t, c, device.NAPIConfig{Dev: vethtest.Dev, Queue: 2})
		want := device.NAPIConfig{
			Dev: vethtest.Dev, Queue: 2, Threaded: "off", DeferHardIRQs: 7,
			GROFlushTimeout: 5_000_000_000, IRQSuspendTimeout: 20000, // one value above 32 bits
		}
		mustWrite(t, c, before, want)
		if diff := cmp.Diff(device.Object(want), mustRead(t, c, want)); diff != "" {
			t.Errorf("after writing (-want +got):\n%s", diff)
		}
		for _, q := range []int{0, 1, 3} {
			other := mustRead(t, c, device.NAPIConfig{Dev: vethtest.Dev, Queue: q}).(device.NAPIConfig)
			if other.DeferHardIRQs != 0 {
				t.Errorf("queue %d was changed too: %+v", q, other)
			}
		}
		mustWrite(t, c, want, before)
		if diff := cmp.Diff(before, mustRead(t, c, want)); diff != "" {
			t.Errorf("after writing back (-want +got):\n%s", diff)
		}
		mustWrite(t, c, before, want)
		mustWrite(t, c, want, nil)
		if diff := cmp.Diff(before, mustRead(t, c, want)); diff != "" {
			t.Errorf("after writing nil (-want +got):\n%s", diff)
		}
	})
}

func TestThreadRoundTrip(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		c, _ := open(t)
		if p, err := c.Conn.SetPolicy(); err != nil || !p.Threaded {
			t.Skipf("napi-set takes no threaded in this kernel (%v)", err)
		}
		id := device.Thread{Dev: vethtest.Dev, Queue: 1}
		if got := mustRead(t, c, id); got != nil {
			t.Fatalf("a NAPI that is not threaded has thread %v", got)
		}
		if err := c.Write(id, nil); err != nil {
			t.Errorf("removing a thread that does not exist: %v", err)
		}
		if err := c.Write(nil, device.Thread{Dev: vethtest.Dev, Queue: 1, Policy: "other"}); !errors.Is(err,
			unix.ESRCH) {
			t.Errorf("scheduling a thread that does not exist: %v, want ESRCH", err)
		}

		off := mustRead(t, c, device.NAPIConfig{Dev: vethtest.Dev, Queue: 1}).(device.NAPIConfig)
		on := off
		on.Threaded = "on"
		mustWrite(t, c, off, on)
		before := mustRead(t, c, id)
		if before == nil {
			t.Fatal("a threaded NAPI has no thread")
		}
		if got := before.(device.Thread); got.Policy != "other" || got.Nice != 0 || len(got.CPUs) == 0 {
			t.Errorf("a new thread is %+v, want policy other, nice 0 and CPUs", got)
		}
		wants := []device.Thread{
			{Dev: vethtest.Dev, Queue: 1, Policy: "fifo", Priority: 10, CPUs: []int{0}},
			{Dev: vethtest.Dev, Queue: 1, Policy: "other", Nice: -5, CPUs: []int{0}},
		}
		if runtime.NumCPU() > 1 {
			wants[0].CPUs = []int{1}
		}
		for _, want := range wants {
			mustWrite(t, c, before, want)
			if diff := cmp.Diff(device.Object(want), mustRead(t, c, id)); diff != "" {
				t.Errorf("after writing (-want +got):\n%s", diff)
			}
		}
		mustWrite(t, c, wants[1], nil)
		if diff := cmp.Diff(before, mustRead(t, c, id)); diff != "" {
			t.Errorf("after writing nil (-want +got):\n%s", diff)
		}
		mustWrite(t, c, on, off)
		if got := mustRead(t, c, id); got != nil {
			t.Errorf("thread %v after threading was switched off", got)
		}
	})
}

func TestAbsent(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		c, et := open(t)
		for _, tt := range []struct {
			name string
			o    device.Object
		}{
			{"no such device", device.NAPIConfig{Dev: "nosuch0", Queue: 0}},
			{"no such queue", device.NAPIConfig{Dev: vethtest.Dev, Queue: queues}},
			{"thread of no such device", device.Thread{Dev: "nosuch0", Queue: 0}},
		} {
			vethtest.Absent(t, tt.name+": Read", c, tt.o)
			must.Refuse(t, tt.name+": Write", c.Write(nil, tt.o), unix.ENOENT)
		}
		must.Do(t, et.SetFeature(device.Feature{Dev: vethtest.Dev, Name: "rx-gro", On: false}))
		if got := mustRead(t, c, device.NAPIConfig{Dev: vethtest.Dev, Queue: 0}); got != nil {
			t.Errorf("NAPI %v without GRO", got)
		}
	})
}

func TestMapDown(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		c, _ := open(t)
		vethtest.SetUp(t, vethtest.Dev, false)
		m, err := c.Map(vethtest.Dev)
		must.Do(t, err)
		if len(m.Queues) != 0 || len(m.NAPIs) != 0 {
			t.Errorf("a device that is down has %d queues and %d NAPIs: the kernel changed, see napis in package "+
				"observe", len(m.Queues), len(m.NAPIs))
		}
	})
}

func TestXDPFeatures(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		c, et := open(t)
		index, err := et.Index(vethtest.Dev)
		must.Do(t, err)
		const basic, redirect = 1, 2
		if got, err := c.Conn.XDPFeatures(index); err != nil || got&basic == 0 || got&redirect == 0 {
			t.Errorf("XDPFeatures(veth): 0x%x, %v; want XDP and redirect", got, err)
		}
		if _, err := c.Conn.XDPFeatures(1 << 20); !errors.Is(err, unix.ENODEV) {
			t.Errorf("XDPFeatures(no such interface): %v, want ENODEV", err)
		}
	})
}
