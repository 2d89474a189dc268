// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/genetlink/genltest"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

// recorded returns the messages of a dump, one per line. They are the kernel's replies on
// Linux 6.18, x86-64, for a veth pair with four queues, GRO on and one configured NAPI, and
// for a virtio_net device with one queue.
func recorded(t testing.TB, name string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	must.Do(t, err)
	var msgs [][]byte
	for _, line := range strings.Fields(string(text)) {
		b, err := hex.DecodeString(line)
		must.Do(t, err)
		msgs = append(msgs, b)
	}
	return msgs
}

const familyID = 23

// fakeKernel answers each command with a dump or an errno, and records requests that change
// something.
func fakeKernel(t *testing.T, reply map[uint8][][]byte, errno map[uint8]unix.Errno) (*Conn, *[]string) {
	t.Helper()
	var sets []string
	family := genetlink.Family{ID: familyID, Name: Family, Version: 1}
	conn := genltest.Dial(genltest.ServeFamily(family,
		func(m genetlink.Message, nm netlink.Message) ([]genetlink.Message, error) {
			cmd := m.Header.Command
			if e, ok := errno[cmd]; ok {
				return nil, genltest.Error(int(e))
			}
			if nm.Header.Flags&netlink.Acknowledge != 0 {
				sets = append(sets, describe(t, m.Data))
				return nil, genltest.Error(0)
			}
			dump := nm.Header.Flags&netlink.Dump != 0
			var out []genetlink.Message
			for _, b := range reply[cmd] {
				if !dump && cmd == cmdNAPIGet && !slices.Equal(attr(t, b, attrNAPIID), attr(t, m.Data, attrNAPIID)) {
					continue
				}
				out = append(out, genetlink.Message{Header: m.Header, Data: b})
			}
			if !dump && len(out) == 0 {
				return nil, genltest.Error(int(unix.ENOENT))
			}
			return out, nil
		}))
	c, err := New(conn)
	must.Do(t, err)
	t.Cleanup(func() { c.Close() })
	return c, &sets
}

// attr returns the content of an attribute.
func attr(t *testing.T, b []byte, typ uint16) (found []byte) {
	t.Helper()
	if err := each(b, func(at uint16, data []byte) error {
		if at == typ {
			found = data
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	return found
}

// describe returns the attributes of a request as text.
func describe(t *testing.T, b []byte) string {
	var s []string
	err := each(b, func(typ uint16, data []byte) error {
		s = append(s, fmt.Sprintf("%d:%x", typ, data))
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return strings.Join(s, " ")
}

func TestNAPIs(t *testing.T) {
	c, _ := fakeKernel(t, map[uint8][][]byte{cmdNAPIGet: recorded(t, "veth-napis.hex")}, nil)
	got, err := c.NAPIs(2)
	must.Do(t, err)
	want := []NAPI{
		{ID: 309, HasThreaded: true, HasConfig: true, Ifindex: 2},
		{
			ID: 308, PID: 11310, DeferHardIRQs: 3, GROFlushTimeout: 5_000_000_000, IRQSuspendTimeout: 20000,
			Threaded: ThreadedOn, HasThreaded: true, HasConfig: true, Ifindex: 2,
		},
		{ID: 307, HasThreaded: true, HasConfig: true, Ifindex: 2},
		{ID: 306, HasThreaded: true, HasConfig: true, Ifindex: 2},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

type links struct{ driver string }

func (l links) Index(dev string) (int, error) {
	if dev != "eth0" {
		return 0, unix.ENODEV
	}
	return 2, nil
}

func (l links) Driver(string) (string, error) { return l.driver, nil }

func TestMap(t *testing.T) {
	tests := []struct {
		name, driver, release string
		files                 string
		want                  string
		quirk                 bool
	}{
		{"veth by quirk", "veth", "6.18.44", "veth", "rx0=306 rx1=307 rx2=308 rx3=309 tx0=0 tx1=0 tx2=0 tx3=0", true},
		{"veth before NAPIs with GRO", "veth", "5.12.0", "veth", "rx0=0 rx1=0 rx2=0 rx3=0 tx0=0 tx1=0 tx2=0 tx3=0",
			false},
		{"another driver", "nosuch", "6.18.44", "veth", "rx0=0 rx1=0 rx2=0 rx3=0 tx0=0 tx1=0 tx2=0 tx3=0", false},
		{"the driver says", "virtio_net", "6.18.44", "virtio", "rx0=257 tx0=0", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conn, _ := fakeKernel(t, map[uint8][][]byte{
				cmdQueueGet: recorded(t, tt.files+"-queues.hex"), cmdNAPIGet: recorded(t, tt.files+"-napis.hex"),
			}, nil)
			c := &Client{Conn: conn, Links: links{tt.driver}, Release: tt.release}
			m, err := c.Map("eth0")
			must.Do(t, err)
			var got []string
			for _, q := range m.Queues {
				got = append(got, fmt.Sprintf("%s%d=%d", q.Type, q.ID, q.NAPI))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (m.Quirk != nil) != tt.quirk {
				t.Errorf("quirk %v, want one: %v", m.Quirk, tt.quirk)
			}
		})
	}
}

func TestWriteNAPIConfig(t *testing.T) {
	base := device.NAPIConfig{Dev: "eth0", Queue: 2, Threaded: "on", DeferHardIRQs: 3, GROFlushTimeout: 5_000_000_000,
		IRQSuspendTimeout: 20000}
	with := func(f func(*device.NAPIConfig)) device.NAPIConfig { v := base; f(&v); return v }
	tests := []struct {
		name string
		new  device.Object
		want []string
	}{
		{"nothing differs", base, nil},
		{"threaded", with(func(v *device.NAPIConfig) { v.Threaded = "off" }), []string{"2:34010000 8:00000000"}},
		{"busy", with(func(v *device.NAPIConfig) { v.Threaded = "busy" }), []string{"2:34010000 8:02000000"}},
		{"defer", with(func(v *device.NAPIConfig) { v.DeferHardIRQs = 100 }), []string{"2:34010000 5:64000000"}},
		{"below 32 bits", with(func(v *device.NAPIConfig) { v.GROFlushTimeout = 200000 }),
			[]string{"2:34010000 6:400d0300"}},
		{"above 32 bits", with(func(v *device.NAPIConfig) { v.IRQSuspendTimeout = 1 << 32 }),
			[]string{"2:34010000 7:0000000001000000"}},
		{"removed", nil, []string{"2:34010000 5:00000000 6:00000000 7:00000000 8:00000000"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conn, sets := fakeKernel(t, map[uint8][][]byte{
				cmdQueueGet: recorded(t, "veth-queues.hex"), cmdNAPIGet: recorded(t, "veth-napis.hex"),
			}, nil)
			c := &Client{Conn: conn, Links: links{"veth"}, Release: "6.18.44"}
			must.Do(t, c.Write(base, tt.new))
			if diff := cmp.Diff(tt.want, *sets); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("not a way of threading", func(t *testing.T) {
		conn, sets := fakeKernel(t, map[uint8][][]byte{
			cmdQueueGet: recorded(t, "veth-queues.hex"), cmdNAPIGet: recorded(t, "veth-napis.hex"),
		}, nil)
		c := &Client{Conn: conn, Links: links{"veth"}, Release: "6.18.44"}
		if err := c.Write(base, with(func(v *device.NAPIConfig) { v.Threaded = "maybe" })); err == nil ||
			len(*sets) != 0 {
			t.Errorf("error %v, requests %v", err, *sets)
		}
	})
}

// TestNAPIsMadeAgain: the client finds a queue's NAPI again after the driver has recreated it
// with a new ID.
func TestNAPIsMadeAgain(t *testing.T) {
	reply := map[uint8][][]byte{cmdQueueGet: recorded(t, "veth-queues.hex"), cmdNAPIGet: recorded(t, "veth-napis.hex")}
	conn, _ := fakeKernel(t, reply, nil)
	c := &Client{Conn: conn, Links: links{"veth"}, Release: "6.18.44"}
	deferred := func() uint32 {
		t.Helper()
		o, err := c.Read(device.NAPIConfig{Dev: "eth0", Queue: 2})
		if err != nil || o == nil {
			t.Fatalf("%v, %v", o, err)
		}
		return o.(device.NAPIConfig).DeferHardIRQs
	}
	if got := deferred(); got != 3 {
		t.Fatalf("defer-hard-irqs %d, want 3", got)
	}
	for i, b := range reply[cmdNAPIGet] {
		for id := byte(306 & 0xff); id <= 309&0xff; id++ {
			b = bytes.Replace(b, []byte{8, 0, attrNAPIID, 0, id, 1}, []byte{8, 0, attrNAPIID, 0, id, 2}, 1)
		}
		reply[cmdNAPIGet][i] = b
	}
	if got := deferred(); got != 3 {
		t.Errorf("after it was made again: defer-hard-irqs %d, want 3", got)
	}
	// The NAPI belongs to another device now.
	for i, b := range reply[cmdNAPIGet] {
		reply[cmdNAPIGet][i] = bytes.Replace(b, []byte{8, 0, attrNAPIIfindex, 0, 2},
			[]byte{8, 0, attrNAPIIfindex, 0, 7}, 1)
	}
	if n, err := c.Conn.NAPI(2, 308+256); !errors.Is(err, unix.ENOENT) {
		t.Errorf("%+v, %v; want ENOENT: it is another device's", n, err)
	}
}

// TestThreadedBefore617: before Linux 6.17, napi-get does not return threaded, and napi-set
// does not accept it.
func TestThreadedBefore617(t *testing.T) {
	strip := func(b []byte) []byte {
		ae := netlink.NewAttributeEncoder()
		each(b, func(typ uint16, data []byte) error {
			if typ != attrNAPIThreaded {
				ae.Bytes(typ, data)
			}
			return nil
		})
		out, err := ae.Encode()
		must.Do(t, err)
		return out
	}
	var napis [][]byte
	for _, b := range recorded(t, "veth-napis.hex") {
		napis = append(napis, strip(b))
	}
	conn, sets := fakeKernel(t, map[uint8][][]byte{cmdQueueGet: recorded(t, "veth-queues.hex"), cmdNAPIGet: napis}, nil)
	c := &Client{Conn: conn, Links: links{"veth"}, Release: "6.14.0"}
	read := func(q int) device.NAPIConfig {
		o, err := c.Read(device.NAPIConfig{Dev: "eth0", Queue: q})
		must.Do(t, err)
		return o.(device.NAPIConfig)
	}
	threaded, plain := read(2), read(1)
	if threaded.Threaded != "on" || plain.Threaded != "off" {
		t.Errorf("threaded %q and %q, want on (it has a thread) and off", threaded.Threaded, plain.Threaded)
	}
	threaded.DeferHardIRQs = 9
	if err := c.Write(nil, threaded); err != nil {
		t.Errorf("a timer of a threaded NAPI: %v", err)
	}
	plain.Threaded = "on"
	must.Refuse(t, "threaded", c.Write(nil, plain), unix.EOPNOTSUPP)
	if err := c.Write(threaded, nil); err != nil {
		t.Errorf("defaults of a threaded NAPI: %v", err)
	}
	wants := []string{"2:34010000 5:09000000", "2:34010000 5:00000000 6:00000000 7:00000000"}
	if diff := cmp.Diff(wants, *sets); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestErrnoKept(t *testing.T) {
	conn, _ := fakeKernel(t, map[uint8][][]byte{
		cmdQueueGet: recorded(t, "veth-queues.hex"), cmdNAPIGet: recorded(t, "veth-napis.hex"),
	}, map[uint8]unix.Errno{cmdNAPISet: unix.ERANGE})
	c := &Client{Conn: conn, Links: links{"veth"}, Release: "6.18.44"}
	err := c.Write(nil, device.NAPIConfig{Dev: "eth0", Queue: 0, Threaded: "busy"})
	if !errors.Is(err, unix.ERANGE) || !strings.Contains(err.Error(), "napi/eth0/0") {
		t.Errorf("%v, want ERANGE and the object", err)
	}
}

func TestDecodeSetPolicy(t *testing.T) {
	all := recorded(t, "policy.hex")
	// The policy of Linux 6.19 differs only in the maximum, which is 2.
	busy := slices.Clone(all)
	busy[5] = bytes.Replace(busy[5], []byte{0x0c, 0, 5, 0, 1}, []byte{0x0c, 0, 5, 0, 2}, 1)
	tests := []struct {
		name string
		in   [][]byte
		want SetPolicy
		bad  bool
	}{
		{"6.18", all, SetPolicy{Threaded: true, MaxThreaded: 1}, false},
		{"6.19", busy, SetPolicy{Threaded: true, MaxThreaded: 2}, false},
		{"without threaded, 6.13", withoutAttr(t, all, attrNAPIThreaded), SetPolicy{}, false},
		{"no policy", all[1:], SetPolicy{}, true},
		{"nothing", nil, SetPolicy{}, true},
		{"cut off", [][]byte{all[0][:6]}, SetPolicy{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decodeSetPolicy(tt.in)
			if (err != nil) != tt.bad || got != tt.want {
				t.Errorf("got %+v, %v, want %+v, error %v", got, err, tt.want, tt.bad)
			}
		})
	}
}

// withoutAttr removes the messages of a policy dump that describe an attribute.
func withoutAttr(t *testing.T, msgs [][]byte, attr uint16) [][]byte {
	var out [][]byte
	for _, b := range msgs {
		keep := true
		err := each(b, func(typ uint16, b []byte) error {
			if typ != ctrlPolicy {
				return nil
			}
			return each(b, func(_ uint16, b []byte) error {
				return each(b, func(number uint16, _ []byte) error {
					keep = keep && number != attr
					return nil
				})
			})
		})
		must.Do(t, err)
		if keep {
			out = append(out, b)
		}
	}
	return out
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"veth-napis.hex", "veth-queues.hex", "veth-dev.hex", "policy.hex",
		"virtio-queues.hex"} {
		for _, b := range recorded(f, name) {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		decodeQueue(b)
		decodeXDP(b)
		decodeSetPolicy([][]byte{b, b})
		n, err := decodeNAPI(b)
		if err != nil {
			return
		}
		if c := n.Config("eth0", 0); c.Threaded != "off" && c.Threaded != "on" && c.Threaded != "busy" {
			t.Errorf("threaded %q", c.Threaded)
		}
	})
}
