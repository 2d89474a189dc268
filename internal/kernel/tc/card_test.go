// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

// TestMqprioChannel compares encodeMqprio's attributes with those that tc 6.1 sends for this
// command. tc fills the lists of rates up to sixteen with zeros; encodeMqprio does not.
//
//	... mqprio num_tc 2 map 0 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0 queues 2@0 2@2 hw 1 mode channel
//	shaper bw_rlimit min_rate 0bit 8mbit max_rate 0bit 80mbit
func TestMqprioChannel(t *testing.T) {
	q := device.Qdisc{
		Type: "mqprio", Map: "0 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0", Queues: "2@0 2@2", Mode: device.ModeChannel,
		MinRates: "0 8000000", MaxRates: "0 80000000",
	}
	b, err := encodeMqprio(q)
	must.Do(t, err)
	const attrs = "0600" + "0100" + "01000000" + "0600" + "0200" + "01000000" +
		"1c00" + "0380" + "0c00" + "0300" + "0000000000000000" + "0c00" + "0300" + "40420f0000000000" +
		"1c00" + "0480" + "0c00" + "0400" + "0000000000000000" + "0c00" + "0400" + "8096980000000000"
	if got := hex.EncodeToString(b[84:]); got != attrs || b[17] != 1 {
		t.Errorf("hw %d, %s\nwant hw 1, %s", b[17], got, attrs)
	}
	got := device.Qdisc{Type: "mqprio"}
	if err := decodeMqprio(&got, b); err != nil || got != q {
		t.Errorf("%+v, %v, want %+v", got, err, q)
	}
	b[84+4] = 0 // as a driver that does DCB may show it
	if err := decodeMqprio(&got, b); err != nil || got.Mode != device.ModeDCB {
		t.Errorf("mode %q, %v", got.Mode, err)
	}
	for _, bad := range []device.Qdisc{
		{Map: q.Map, Queues: q.Queues, Mode: device.ModeDCB},
		{Map: q.Map, Queues: q.Queues, MaxRates: "1 1"}, // a software mqprio has no rates
		{Map: q.Map, Queues: q.Queues, Mode: device.ModeChannel, MaxRates: "1 1 1"},
		{Map: q.Map, Queues: q.Queues, Mode: device.ModeChannel, MinRates: "1 x"},
	} {
		if _, err := encodeMqprio(bad); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%+v: %v, want EINVAL", bad, err)
		}
	}
}

// flowerReply returns the kernel's reply for a filter: the attributes of the request, and the
// flag that the filter is in the card.
func flowerReply(t *testing.T, f device.Flower, more func(*netlink.AttributeEncoder)) reply {
	t.Helper()
	_, protocol := flowerPref(f.Match)
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(flowerClassID, clsactMajor|minPriority+uint32(f.Class))
	ae.Uint32(flowerFlags, flowerSkipSW|4) // TCA_CLS_FLAGS_IN_HW
	ae.Uint32(flowerInHWCount, 1)
	encodeFlower(ae, f.Match, protocol)
	if more != nil {
		more(ae)
	}
	b, err := ae.Encode()
	must.Do(t, err)
	return reply{kind: "flower", options: b}
}

func TestFlower(t *testing.T) {
	for _, m := range []device.Match{
		{Family: 4, Protocol: "tcp", LocalPort: 11211},
		{Family: 4, Protocol: "udp", Local: "10.9.0.1/32", Remote: "10.0.0.0/9", RemotePort: 53},
		{Family: 6, Protocol: "tcp", Local: "fd09::/63", LocalPort: 443},
		{Family: 6, Protocol: "udp", Remote: "fd00::1/128", VLAN: 7},
		{Family: 4, Protocol: "tcp", VLAN: 4094, LocalPort: 1, RemotePort: 2},
	} {
		f := device.Flower{Dev: "d0", Match: m, Class: 2}
		got, ok := flowerOf("d0", flowerReply(t, f, nil))
		if diff := cmp.Diff(f, got); !ok || diff != "" {
			t.Errorf("%s: can be said %v (-want +got):\n%s", m, ok, diff)
		}
		if m.VLAN == 0 {
			continue
		}
		// The kernel shows the EtherType behind the tag in both EtherType attributes
		// (net/sched/cls_flower.c: fl_dump_key).
		inner := []byte{0x08, 0x00}
		if m.Family == 6 {
			inner = []byte{0x86, 0xdd}
		}
		got, ok = flowerOf("d0", flowerReply(t, f,
			func(ae *netlink.AttributeEncoder) { ae.Bytes(flowerEthType, inner) }))
		if diff := cmp.Diff(f, got); !ok || diff != "" {
			t.Errorf("%s, as the kernel shows it: can be said %v (-want +got):\n%s", m, ok, diff)
		}
	}
	f := device.Flower{Dev: "d0", Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80}, Class: 1}
	for name, more := range map[string]func(*netlink.AttributeEncoder){
		"an action":          func(ae *netlink.AttributeEncoder) { ae.Bytes(3, nil) },
		"another key":        func(ae *netlink.AttributeEncoder) { ae.Uint8(73, 1) },
		"a VLAN's priority":  func(ae *netlink.AttributeEncoder) { ae.Uint16(flowerVLANID, 7); ae.Uint8(24, 1) },
		"half a port":        func(ae *netlink.AttributeEncoder) { ae.Bytes(36, []byte{0xff, 0}) },
		"software looks too": func(ae *netlink.AttributeEncoder) { ae.Uint32(flowerFlags, 4) },
		"the default class": func(ae *netlink.AttributeEncoder) {
			ae.Uint32(flowerClassID,
				clsactMajor|minPriority)
		},
		"a class of something": func(ae *netlink.AttributeEncoder) { ae.Uint32(flowerClassID, 0x10002) },
	} {
		if got, ok := flowerOf("d0", flowerReply(t, f, more)); ok {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
	if _, ok := flowerOf("d0", reply{kind: "u32"}); ok {
		t.Error("a filter of another kind was read")
	}
}

// TestFlowerRequest compares flowerRequest's attributes with those that tc 6.1 sends, in another
// order, for this command:
//
//	tc filter add dev lo ingress protocol ip pref 28260 flower ip_proto udp dst_ip 10.9.0.1 dst_port 80 skip_sw hw_tc 2
func TestFlowerRequest(t *testing.T) {
	c, err := Open()
	if err != nil {
		t.Skip(err)
	}
	defer c.Close()
	r, err := c.flowerRequest(device.Flower{Dev: "lo",
		Match: device.Match{Family: 4, Protocol: "udp", Local: "10.9.0.1/32", LocalPort: 80}, Class: 2})
	must.Do(t, err)
	if r.info != 28260<<16|0x0008 || r.parent != 0xfffffff2 {
		t.Errorf("info %#x, parent %#x", r.info, r.parent)
	}
	m, err := r.message()
	must.Do(t, err)
	want := "08000100" + "e2ffffff" + "08001600" + "02000000" + "06000800" + "08000000" + "05000900" + "11000000" +
		"08000c00" + "0a090001" + "08000d00" + "ffffffff" + "06001500" + "00500000"
	if got := hex.EncodeToString(m.Data); !strings.HasSuffix(got, want) {
		t.Errorf("%s\ndoes not end with %s", got, want)
	}
	if r, err = c.flowerRequest(device.Flower{Dev: "lo", Match: device.Match{Family: 6, Protocol: "udp"}, Class: 1,
		Pref: 7}); err != nil || r.info != 7<<16|0xdd86 {
		t.Errorf("at somebody else's preference: info %#x, %v", r.info, err)
	}
	for _, bad := range []device.Flower{{Dev: "lo", Class: 1},
		{Dev: "lo", Match: device.Match{Family: 4, Protocol: "tcp"}},
		{Dev: "lo", Match: device.Match{Family: 4, Protocol: "tcp"}, Class: 16}} {
		if _, err := c.flowerRequest(bad); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%+v: %v, want EINVAL", bad, err)
		}
	}
}
