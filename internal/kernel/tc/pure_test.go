// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

func TestHandles(t *testing.T) {
	for s, want := range map[string]uint32{"1:": 0x10000, "1:10": 0x10010, "ffff:": 0xffff0000, ":a": 0xa,
		"ffff:ffff": 0xffffffff} {
		got, err := ParseHandle(s)
		if err != nil || got != want {
			t.Errorf("ParseHandle(%q) = %#x, %v, want %#x", s, got, err, want)
		}
	}
	for _, s := range []string{"", "1", "10000:", "1:10000", "x:", "1:2:3", "-1:", "0x1:"} {
		if got, err := ParseHandle(s); err == nil {
			t.Errorf("ParseHandle(%q) = %#x, want an error", s, got)
		}
	}
}

func FuzzHandle(f *testing.F) {
	for _, s := range []string{"1:", "1:10", ":", "ffff:ffff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHandle(s)
		if err != nil {
			return
		}
		if back, err := ParseHandle(FormatHandle(h)); err != nil || back != h {
			t.Errorf("%q is %#x, formatted %q, parsed %#x, %v", s, h, FormatHandle(h), back, err)
		}
	})
}

// FuzzTicks checks that the conversion from bytes to ticks and the one from ticks to bytes agree.
func FuzzTicks(f *testing.F) {
	f.Add(uint64(125_000_000), uint32(12_500))
	f.Add(uint64(15_625), uint32(1))
	f.Add(uint64(50_000_000_000), uint32(1<<32-1))
	f.Fuzz(func(t *testing.T, rate uint64, burst uint32) {
		rate = rate%(1<<40) + 1_000
		n := device.BurstTicks(rate, burst)
		if d := device.BurstBytes(rate, n); n < 1<<32-1 && d < burst {
			t.Errorf("rate %d: %d bytes are %d ticks, which hold only %d", rate, burst, n, d)
		}
		if rate < 15_625 || n == 1<<32-1 || device.BurstBytes(rate, n) == 1<<32-1 {
			return
		}
		if back := device.BurstTicks(rate, device.BurstBytes(rate, n)); back != n {
			t.Errorf("rate %d: %d ticks hold %d bytes, which are %d ticks", rate, n, device.BurstBytes(rate, n), back)
		}
	})
}

func TestSameClass(t *testing.T) {
	c := device.Class{Dev: "d0", ID: "1:10", Parent: "1:", Rate: 1_000_000_000, Ceil: 1_000_000_000, Burst: 12_500,
		CBurst: 12_500, Quantum: 1514}
	shut := c
	shut.Burst, shut.Rate = 12_497, 1_000_000_003
	if !device.Equal(c, shut) {
		t.Errorf("%+v and %+v are the same to the kernel", c, shut)
	}
	for name, change := range map[string]func(*device.Class){
		"rate":    func(c *device.Class) { c.Rate += 8 },
		"ceil":    func(c *device.Class) { c.Ceil += 8 },
		"burst":   func(c *device.Class) { c.Burst += 8 },
		"cburst":  func(c *device.Class) { c.CBurst += 8 },
		"quantum": func(c *device.Class) { c.Quantum++ },
		"prio":    func(c *device.Class) { c.Prio++ },
		"parent":  func(c *device.Class) { c.Parent = "1:1" },
	} {
		other := c
		change(&other)
		if device.Equal(c, other) {
			t.Errorf("%s differs but was taken as the same", name)
		}
	}
}

// FuzzDecode feeds the decoders input that no kernel sends.
func FuzzDecode(f *testing.F) {
	for _, r := range []request{
		{kind: "htb", options: func(ae *netlink.AttributeEncoder) {
			ae.Bytes(attrHTBInit,
				make([]byte, sizeofHTBGlob))
		}},
		{kind: "htb", handle: 0x10010, parent: handleRoot, options: func(ae *netlink.AttributeEncoder) {
			ae.Bytes(attrHTBParms, make([]byte, sizeofHTBOpt))
			ae.Uint64(attrHTBRate64, 1<<40)
		}},
		{kind: "bpf", info: filterInfo(7), options: func(ae *netlink.AttributeEncoder) {
			ae.String(attrBPFName, "x")
			ae.Uint32(attrBPFID, 9)
		}},
		{kind: "pfifo"},
	} {
		m, err := r.message()
		must.Do(f, err)
		f.Add(m.Data)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			return
		}
		if q, err := qdiscOf("d0", r); err == nil && q.Type != r.kind {
			t.Errorf("qdisc of kind %q read as %q", r.kind, q.Type)
		}
		if c, err := classOf("d0", r); err == nil && c.ID != FormatHandle(r.handle) {
			t.Errorf("class %#x read as %s", r.handle, c.ID)
		}
		if s, err := filterOf("d0", "egress", r); err == nil && s.Handle != r.handle {
			t.Errorf("filter %#x read as %#x", r.handle, s.Handle)
		}
	})
}

// TestClassBeyond32Bits reads a class whose rates do not fit struct tc_ratespec.
func TestClassBeyond32Bits(t *testing.T) {
	want := device.Class{Dev: "d0", ID: "1:10", Parent: "1:", Rate: 40_000_000_000, Ceil: 80_000_000_000, Burst: 65_600,
		CBurst: 640, Quantum: 3000, Prio: 3}
	opt := make([]byte, sizeofHTBOpt)
	for off, v := range map[int]uint32{offRate + offRate32: 0xffffffff, offCeil + offRate32: 0xffffffff, offBuffer: 205,
		offCBuffer: 1, offQuantum: 3000, offPrio: 3} {
		binary.NativeEndian.PutUint32(opt[off:], v)
	}
	m, err := request{kind: "htb", handle: 0x10010, parent: handleRoot, options: func(ae *netlink.AttributeEncoder) {
		ae.Uint64(attrHTBRate64, 5_000_000_000)
		ae.Uint64(attrHTBCeil64, 10_000_000_000)
		ae.Bytes(attrHTBParms, opt)
	}}.message()
	must.Do(t, err)
	r, err := decode(m.Data)
	must.Do(t, err)
	got, err := classOf("d0", r)
	must.Do(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("class (-want +got):\n%s", diff)
	}
}

// TestMqprioOptions compares encodeMqprio's result with the bytes that tc 6.1 sends for this
// command:
//
//	tc qdisc add dev d0 root handle 1: mqprio num_tc 3 map 0 0 0 0 0 0 0 0 1 2 0 0 0 0 0 0 queues 2@0 1@2 1@3 hw 0
func TestMqprioOptions(t *testing.T) {
	q := device.Qdisc{Type: "mqprio", Map: "0 0 0 0 0 0 0 0 1 2 0 0 0 0 0 0", Queues: "2@0 1@2 1@3"}
	want := make([]byte, 84)
	want[0] = 3
	want[1+8], want[1+9] = 1, 2
	for i, v := range []uint16{2, 1, 1} {
		binary.NativeEndian.PutUint16(want[18+2*i:], v)
	}
	for i, v := range []uint16{0, 2, 3} {
		binary.NativeEndian.PutUint16(want[50+2*i:], v)
	}
	b, err := encodeMqprio(q)
	if err != nil || !bytes.Equal(b, want) {
		t.Errorf("%v, %v\nwant %v", b, err, want)
	}
	got := device.Qdisc{Type: "mqprio"}
	if err := decodeMqprio(&got, b); err != nil || got != q {
		t.Errorf("%+v, %v, want %+v", got, err, q)
	}
	b[17] = 1
	if err := decodeMqprio(&got, b); err != nil || got == q {
		t.Errorf("one of the card's reads as one of software: %+v, %v", got, err)
	}
	must.Refuse(t, "short", decodeMqprio(&got, b[:81]), unix.EBADMSG)
	for _, bad := range []device.Qdisc{
		{Map: q.Map}, {Queues: q.Queues}, {Map: q.Map, Queues: "2@0 1@2"}, {Map: q.Map, Queues: "2@0 1@2 0@3"},
		{Map: q.Map, Queues: "2@0 1@2 1"}, {Map: q.Map, Queues: "2@0 1@2 65536@3"},
		{Map: q.Map + " 0", Queues: q.Queues},
		{Map: q.Map, Queues: strings.Repeat("1@0 ", 17)}, {Map: "-1" + q.Map[1:], Queues: q.Queues},
	} {
		if _, err := encodeMqprio(bad); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%+v: %v, want EINVAL", bad, err)
		}
	}
}

// TestOffload: the client reads an HTB in the card (offload) back as it requested it. It refuses
// settings that such an HTB does not accept, before it asks the kernel.
func TestOffload(t *testing.T) {
	c, err := Open()
	must.Do(t, err)
	defer c.Close()
	back := func(r request) reply {
		t.Helper()
		m, err := r.message()
		must.Do(t, err)
		rep, err := decode(m.Data)
		must.Do(t, err)
		return rep
	}
	for _, offload := range []bool{true, false} {
		want := device.Qdisc{Dev: "lo", Parent: "root", Type: "htb", Handle: "1:", DefaultClass: 2, Offload: offload}
		r, err := c.qdiscRequest(want)
		must.Do(t, err)
		if got, err := qdiscOf("lo", back(r)); err != nil || got.Qdisc != want {
			t.Errorf("qdisc: got %+v, %v, want %+v", got.Qdisc, err, want)
		}
	}
	want := device.Class{Dev: "lo", ID: "1:10", Parent: "1:1", Rate: 4e9, Ceil: 8e9, Burst: 65600, CBurst: 65600,
		Offload: true}
	r, err := c.classRequest(want)
	must.Do(t, err)
	request := r.options
	r.options = func(ae *netlink.AttributeEncoder) { // as the kernel shows it
		request(ae)
		ae.Flag(attrHTBOffload, true)
	}
	if got, err := classOf("lo", back(r)); err != nil || !device.Equal(got, want) {
		t.Errorf("class: got %+v, %v, want %+v", got, err, want)
	}
	for _, wrong := range []device.Class{{Quantum: 1500}, {Prio: 1}} {
		x := want
		x.Quantum, x.Prio = wrong.Quantum, wrong.Prio
		if _, err := c.classRequest(x); !errors.Is(err, unix.EINVAL) {
			t.Errorf("quantum %d, prio %d: %v", x.Quantum, x.Prio, err)
		}
	}
}
