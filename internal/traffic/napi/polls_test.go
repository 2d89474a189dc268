// SPDX-License-Identifier: Apache-2.0

package napi_test

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/internal/traffic/napi"
)

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

// hasBTF reports whether the kernel has BTF, the description of its types. If it has,
// ErrNotSupported is a failure.
func hasBTF() bool {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	return err == nil
}

func open(t *testing.T, device string) *napi.Counter {
	t.Helper()
	link := vethtest.Interface(t, device)
	c, err := napi.Open(link.Index)
	if errors.Is(err, ebpf.ErrNotSupported) && !hasBTF() {
		t.Skip(err)
	}
	must.Do(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// send sends n frames of an unused protocol on a device.
func send(t *testing.T, device string, n int) {
	t.Helper()
	frame := make([]byte, 60)
	copy(frame, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	frame[12], frame[13] = 0x88, 0xb5 // IEEE 802 local experimental
	vethtest.SendFrame(t, device, 0, n, frame)
}

func sum(t *testing.T, c *napi.Counter) (s napi.Count) {
	t.Helper()
	all, err := c.Read()
	must.Do(t, err)
	for _, x := range all {
		if x.NAPI == 0 && x.Polls > 0 && x.Packets > x.Polls*64 {
			t.Errorf("%+v", x)
		}
		s.Polls, s.Packets, s.Empty, s.Full, s.Thread, s.Busy = s.Polls+x.Polls, s.Packets+x.Packets, s.Empty+x.Empty,
			s.Full+x.Full, s.Thread+x.Thread, s.Busy+x.Busy
	}
	return s
}

// TestPolls: Packets of a NAPI counts every packet that the NAPI took. The counter does not
// count polls of other devices. It counts polls by a NAPI's own thread separately.
func TestPolls(t *testing.T) {
	vethtest.Run(t, 2, func(t *testing.T) {
		// veth uses NAPI if GRO is on at one end and TSO is off at the other
		// (veth_skb_is_eligible_for_gro). Otherwise it gives packets to the backlog.
		for _, d := range []string{vethtest.Dev, vethtest.Peer} {
			vethtest.Command(t, "ethtool -K "+d+" gro on tso off")
		}
		vethtest.SetUp(t, vethtest.Dev, true)
		vethtest.SetUp(t, vethtest.Peer, true)
		c := open(t, vethtest.Dev)
		before := sum(t, c)
		send(t, vethtest.Dev, 50) // arrives at the peer
		send(t, vethtest.Peer, 200)
		var got napi.Count
		vethtest.Until(t, "200 packets were polled", func() bool {
			got = sum(t, c)
			return got.Packets-before.Packets >= 200
		})
		if n := got.Packets - before.Packets; n > 220 {
			t.Errorf("%d packets, want 200 and what the kernel itself may send", n)
		}
		if got.Polls == 0 || got.Thread != 0 || got.Busy != 0 {
			t.Errorf("in softirq: %+v", got)
		}
		// A /sys mounted by this thread shows this namespace's devices.
		if err := errors.Join(
			unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("sysfs", "/sys", "sysfs", 0, ""),
		); err != nil {
			t.Fatal(err)
		}
		must.Do(t, os.WriteFile("/sys/class/net/"+vethtest.Dev+"/threaded", []byte("1"), 0))
		send(t, vethtest.Peer, 100)
		vethtest.Until(t, "a thread has polled", func() bool {
			s := sum(t, c)
			return s.Thread > 0 && s.Packets-got.Packets >= 100
		})
	})
}

// TestBusyPollBit: the bit number NAPI_STATE_IN_BUSY_POLL in polls.c is that of the running
// kernel. CO-RE cannot find the number.
func TestBusyPollBit(t *testing.T) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil && !hasBTF() {
		t.Skip(err)
	}
	must.Do(t, err)
	for typ, err := range kernel.All() {
		must.Do(t, err)
		e, ok := typ.(*btf.Enum)
		if !ok || e.Name != "" {
			continue
		}
		for _, v := range e.Values {
			if v.Name == "NAPI_STATE_IN_BUSY_POLL" {
				if v.Value != 6 {
					t.Errorf("it is %d, c/polls.c says 6", v.Value)
				}
				return
			}
		}
	}
	t.Error("the kernel's BTF has no NAPI_STATE_IN_BUSY_POLL")
}

func TestOpenOfNothing(t *testing.T) {
	vethtest.Run(t, 1, func(t *testing.T) {
		c := open(t, "lo") // lo has no NAPI
		if s := sum(t, c); s.Polls != 0 {
			t.Errorf("%+v", s)
		}
	})
}
