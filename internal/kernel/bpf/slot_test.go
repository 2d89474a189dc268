// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
)

// TestExpected: setSlot fails if another process has exchanged the program since niclane read
// the slot.
func TestExpected(t *testing.T) {
	vethtest.Run(t, 1, func(t *testing.T) {
		c := New(nil)
		defer c.Close()
		var theirs, ours *ebpf.Program
		for _, p := range []**ebpf.Program{&theirs, &ours} {
			var err error
			if *p, err = PassProgram("pass"); err != nil {
				t.Fatal(err)
			}
			defer (*p).Close()
		}
		must.Do(t, c.setSlot(vethtest.Dev, "generic", theirs.FD(), -1))
		before, err := c.slots(vethtest.Dev)
		if err != nil || len(before) != 1 {
			t.Fatalf("slots %v, %v", before, err)
		}
		for what, err := range map[string]error{
			"removing what is not there":  c.setSlot(vethtest.Dev, "generic", -1, ours.FD()),
			"replacing what is not there": c.setSlot(vethtest.Dev, "generic", ours.FD(), ours.FD()),
			"adding":                      c.setSlot(vethtest.Dev, "generic", ours.FD(), -1),
			"adding in another mode":      c.setSlot(vethtest.Dev, "native", ours.FD(), -1),
		} {
			if !isTaken(err) {
				t.Errorf("%s: %v, want EBUSY or EEXIST", what, err)
			}
		}
		if after, err := c.slots(vethtest.Dev); err != nil || !slices.Equal(after, before) {
			t.Errorf("slots %v, then %v, %v", before, after, err)
		}
		if err := c.setSlot(vethtest.Dev, "offload", ours.FD(), -1); err == nil {
			t.Error("veth took a program for the hardware")
		}
		must.Refuse(t, "mode fast", c.setSlot(vethtest.Dev, "fast", ours.FD(), -1), unix.EINVAL)
	})
}

// links are RTM_NEWLINK messages from ifinfomsg on, with IFLA_XDP as the only attribute.
var links = map[string]struct {
	hex  string
	want []slot
}{
	// Recorded from a veth on Linux 6.18.
	"none": {"00000100030000004310010000000000" + "0c002b000500020000000000", nil},
	"generic": {"00000100030000004310010000000000" + "1c002b0008000600c9980000050002000200000008000400c9980000",
		[]slot{{"generic", 0x98c9}}},
	"native": {"00000100030000004310010000000000" + "1c002b0008000500ca980000050002000100000008000400ca980000",
		[]slot{{"native", 0x98ca}}},
	// Not recorded, because no device with both modes was there. Built as rtnl_xdp_fill does
	// it, which leaves out IFLA_XDP_PROG_ID if there are several programs.
	"two": {"00000100030000004310010000000000" + "1c002b0008000500ca98000008000700cb9800000500020004000000",
		[]slot{{"native", 0x98ca}, {"offload", 0x98cb}}},
}

func TestDecodeSlots(t *testing.T) {
	for name, tt := range links {
		b, err := hex.DecodeString(tt.hex)
		must.Do(t, err)
		got, err := decodeSlots(b)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, tt.want)
		}
	}
}

func FuzzDecodeSlots(f *testing.F) {
	for _, tt := range links {
		b, err := hex.DecodeString(tt.hex)
		must.Do(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bytes.Clone(b)
		got, err := decodeSlots(b)
		if err == nil && len(b) < unix.SizeofIfInfomsg {
			t.Errorf("%x is too short: %v", b, got)
		}
		for _, s := range got {
			if modeFlag(s.mode) == 0 || s.program == 0 {
				t.Errorf("%x: slot %+v", b, s)
			}
		}
		if !bytes.Equal(in, b) {
			t.Error("the message was changed")
		}
	})
}
