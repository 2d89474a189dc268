// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/genetlink/genltest"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

// The recordings in testdata are the kernel's replies on Linux 6.18, x86-64, for a veth pair
// with four queues and GRO on, and a virtio_net device with one queue.

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	must.Do(t, err)
	return b
}

// A call is a request as the kernel gets it: the command and the attributes after the
// header.
type call struct {
	Cmd   uint8
	Attrs string
}

// fakeKernel answers each command with a reply or an errno, and records the requests.
func fakeKernel(t *testing.T, reply map[uint8][]byte, errno map[uint8]unix.Errno) (*Client, *[]call) {
	t.Helper()
	var calls []call
	family := genetlink.Family{ID: 21, Name: unix.ETHTOOL_GENL_NAME, Version: 1}
	conn := genltest.Dial(genltest.ServeFamily(family,
		func(m genetlink.Message, nm netlink.Message) ([]genetlink.Message, error) {
			cmd := m.Header.Command
			calls = append(calls, call{cmd, describe(t, m.Data)})
			if e, ok := errno[cmd]; ok {
				return nil, genltest.Error(int(e))
			}
			if nm.Header.Flags&netlink.Acknowledge != 0 {
				return nil, genltest.Error(0)
			}
			return []genetlink.Message{{Header: m.Header, Data: reply[cmd]}}, nil
		}))
	c, err := New(conn)
	must.Do(t, err)
	t.Cleanup(func() { c.Close() })
	return c, &calls
}

// describe returns the attributes of a request as text: "v0 6:2" is the device's name, and
// attribute 6 with the four-byte value 2.
func describe(t *testing.T, b []byte) string {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		t.Error(err)
		return ""
	}
	var s string
	for ad.Next() {
		if ad.Type() != headerAttr {
			s += fmt.Sprintf(" %d:%x", ad.Type(), ad.Bytes())
			continue
		}
		ad.Nested(func(h *netlink.AttributeDecoder) error {
			for h.Next() {
				if h.Type() == unix.ETHTOOL_A_HEADER_DEV_NAME {
					s += h.String()
				}
			}
			return h.Err()
		})
	}
	if err := ad.Err(); err != nil {
		t.Error(err)
	}
	return s
}

func TestRead(t *testing.T) {
	c, _ := fakeKernel(t, map[uint8][]byte{
		unix.ETHTOOL_MSG_CHANNELS_GET:  recorded(t, "veth-channels.bin"),
		unix.ETHTOOL_MSG_RINGS_GET:     recorded(t, "virtio-rings.bin"),
		unix.ETHTOOL_MSG_COALESCE_GET:  recorded(t, "virtio-coalesce.bin"),
		unix.ETHTOOL_MSG_FEATURES_GET:  recorded(t, "veth-features.bin"),
		unix.ETHTOOL_MSG_LINKMODES_GET: recorded(t, "veth-linkmodes.bin"),
		unix.ETHTOOL_MSG_PRIVFLAGS_GET: flagsMessage(t, map[string]bool{"rx-gro": true}),
	}, nil)
	tests := []struct {
		name string
		id   device.Object
		want device.Object
	}{
		{"channels", device.Channels{Dev: "v0"}, device.Channels{Dev: "v0", RX: 4, TX: 4}},
		{"ring", device.Ring{Dev: "v0"}, device.Ring{Dev: "v0", RX: 256, TX: 256}},
		{"coalesce", device.Coalesce{Dev: "v0", Queue: -1}, device.Coalesce{Dev: "v0", Queue: -1}},
		{"feature on", device.Feature{Dev: "v0", Name: "rx-gro"}, device.Feature{Dev: "v0", Name: "rx-gro", On: true}},
		{"feature off", device.Feature{Dev: "v0", Name: "rx-gro-list"}, device.Feature{Dev: "v0", Name: "rx-gro-list"}},
		{"private flag on", device.PrivFlag{Dev: "v0", Name: "rx-gro"},
			device.PrivFlag{Dev: "v0", Name: "rx-gro", On: true}},
		{"no such private flag", device.PrivFlag{Dev: "v0", Name: "nosuch"}, nil},
		{"no such feature", device.Feature{Dev: "v0", Name: "nosuch"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := c.Read(tt.id)
			must.Do(t, err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got, err := c.Speed("v0"); err != nil || got != 10e9 {
		t.Errorf("Speed(veth) = %d, %v, want 10 Gbit/s", got, err)
	}
	if got, err := decodeSpeed(recorded(t, "virtio-linkmodes.bin")); err != nil || got != 0 {
		t.Errorf("speed of virtio_net = %d, %v, want 0: it says unknown", got, err)
	}
	if _, most, err := c.Channels("v0"); err != nil || most != (device.Channels{Dev: "v0", RX: 4, TX: 4}) {
		t.Errorf("maximum channels = %+v, %v", most, err)
	}
}

// flagsMessage returns a PRIVFLAGS_GET reply in the layout of privflags_fill_reply
// (net/ethtool/privflags.c): names and values of all flags, without a mask.
func flagsMessage(t *testing.T, flags map[string]bool) []byte {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	for name, on := range flags {
		encodeBit(ae, unix.ETHTOOL_A_PRIVFLAGS_FLAGS, name, on)
	}
	b, err := ae.Encode()
	must.Do(t, err)
	return b
}

func TestFeatures(t *testing.T) {
	got, err := decodeFeatures(recorded(t, "veth-features.bin"))
	must.Do(t, err)
	// As `ethtool -k` printed them at the time of the recording.
	want := map[string]device.Setting{
		"rx-gro":                 {On: true},
		"tx-checksum-ip-generic": {On: true},
		"tx-scatter-gather":      {On: true},
		"hw-tc-offload":          {Fixed: true},
		"rx-ntuple-filter":       {Fixed: true},
		"rx-gro-list":            {},
	}
	for name, w := range want {
		if g, ok := got[name]; !ok || g != w {
			t.Errorf("%s: got %+v (there: %v), want %+v", name, g, ok, w)
		}
	}
	if len(got) < 50 {
		t.Errorf("%d features, want more than 50", len(got))
	}
}

func TestWrite(t *testing.T) {
	tests := []struct {
		name string
		new  device.Object
		want []call
	}{
		{
			"channels: only what differs", device.Channels{Dev: "v0", RX: 2, TX: 4},
			[]call{{unix.ETHTOOL_MSG_CHANNELS_GET, "v0"}, {unix.ETHTOOL_MSG_CHANNELS_SET, "v0 6:02000000"}},
		},
		{
			"ring: both", device.Ring{Dev: "v0", RX: 512, TX: 128},
			[]call{{unix.ETHTOOL_MSG_RINGS_GET, "v0"}, {unix.ETHTOOL_MSG_RINGS_SET, "v0 6:00020000 9:80000000"}},
		},
		{
			"coalesce: adaptive is one byte", device.Coalesce{Dev: "v0", Queue: -1, RxUsecs: 50, TxAdapt: true},
			[]call{{unix.ETHTOOL_MSG_COALESCE_GET, "v0"}, {unix.ETHTOOL_MSG_COALESCE_SET, "v0 2:32000000 12:01"}},
		},
		{
			"feature: by name", device.Feature{Dev: "v0", Name: "rx-gro", On: true},
			[]call{{unix.ETHTOOL_MSG_FEATURES_SET, "v0 3:18000380" + "14000180" + "0b000200" + "72782d67726f0000" +
				"04000300"}, {unix.ETHTOOL_MSG_FEATURES_GET, "v0"}},
		},
		{
			"private flag: by name", device.PrivFlag{Dev: "v0", Name: "rx-gro", On: true},
			[]call{{unix.ETHTOOL_MSG_PRIVFLAGS_SET, "v0 2:18000380" + "14000180" + "0b000200" + "72782d67726f0000" +
				"04000300"}},
		},
		{
			"feature: one that did not change is wished away first", device.Feature{Dev: "v0", Name: "rx-gro"},
			[]call{
				{unix.ETHTOOL_MSG_FEATURES_SET, "v0 3:14000380" + "10000180" + "0b000200" + "72782d67726f0000"},
				{unix.ETHTOOL_MSG_FEATURES_GET, "v0"},
				{unix.ETHTOOL_MSG_FEATURES_SET, "v0 3:18000380" + "14000180" + "0b000200" + "72782d67726f0000" +
					"04000300"},
				{unix.ETHTOOL_MSG_FEATURES_SET, "v0 3:14000380" + "10000180" + "0b000200" + "72782d67726f0000"},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, calls := fakeKernel(t, map[uint8][]byte{
				unix.ETHTOOL_MSG_CHANNELS_GET: recorded(t, "veth-channels.bin"),
				unix.ETHTOOL_MSG_RINGS_GET:    recorded(t, "virtio-rings.bin"),
				unix.ETHTOOL_MSG_COALESCE_GET: recorded(t, "virtio-coalesce.bin"),
				unix.ETHTOOL_MSG_FEATURES_GET: recorded(t, "veth-features.bin"),
			}, nil)
			must.Do(t, c.Write(nil, tt.new))
			if diff := cmp.Diff(tt.want, *calls); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	everything := []uint8{unix.ETHTOOL_MSG_CHANNELS_GET, unix.ETHTOOL_MSG_CHANNELS_SET}
	tests := []struct {
		errno      unix.Errno
		readAbsent bool
	}{
		{unix.EOPNOTSUPP, true},
		{unix.ENODEV, true},
		{unix.EPERM, false},
		{unix.EBUSY, false},
	}
	for _, tt := range tests {
		t.Run(tt.errno.Error(), func(t *testing.T) {
			errno := map[uint8]unix.Errno{}
			for _, cmd := range everything {
				errno[cmd] = tt.errno
			}
			c, _ := fakeKernel(t, nil, errno)
			got, err := c.Read(device.Channels{Dev: "v0"})
			if got != nil || tt.readAbsent != (err == nil) || err != nil && !errors.Is(err, tt.errno) {
				t.Errorf("Read: %v, %v", got, err)
			}
			must.Refuse(t, "Write", c.Write(nil, device.Channels{Dev: "v0", RX: 1}), tt.errno)
			must.Refuse(t, "CanSetChannels", c.CanSetChannels("v0"), tt.errno)
		})
	}
	t.Run("removal", func(t *testing.T) {
		c, calls := fakeKernel(t, nil, nil)
		if err := c.Write(device.Channels{Dev: "v0"}, nil); err == nil {
			t.Error("a device's channels were removed")
		}
		if len(*calls) != 0 {
			t.Errorf("requests sent: %v", *calls)
		}
	})
}

// rssMessage returns an RSS_GET reply in the layout of rss_fill_reply (net/ethtool/rss.c).
// The tests build it, because no driver with a table was there to record one.
func rssMessage(t testing.TB, context uint32, queues ...uint32) []byte {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	ae.Nested(headerAttr, func(h *netlink.AttributeEncoder) error {
		h.Uint32(unix.ETHTOOL_A_HEADER_DEV_INDEX, 2)
		h.String(unix.ETHTOOL_A_HEADER_DEV_NAME, "v0")
		return nil
	})
	if context != 0 {
		ae.Uint32(rssContext, context)
	}
	ae.Uint32(3, 1) // hash function
	ae.Do(rssIndir, func() ([]byte, error) {
		var b []byte
		for _, q := range queues {
			b = append(b, byte(q), byte(q>>8), byte(q>>16), byte(q>>24))
		}
		return b, nil
	})
	ae.Bytes(5, make([]byte, 40)) // key
	b, err := ae.Encode()
	must.Do(t, err)
	return b
}

func TestDecodeRSS(t *testing.T) {
	tests := []struct {
		name string
		in   []byte
		want device.RSSTable
	}{
		{"default context", rssMessage(t, 0, 0, 1, 2, 3, 0, 1), device.RSSTable{Queues: []int{0, 1, 2, 3, 0, 1}}},
		{"another", rssMessage(t, 3, 300, 301), device.RSSTable{Context: 3, Queues: []int{300, 301}}},
		{"no table", rssMessage(t, 0), device.RSSTable{Queues: []int{}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decodeRSS(tt.in)
			must.Do(t, err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefaultTable(t *testing.T) {
	tests := []struct {
		queues []int
		rings  int
		want   bool
	}{
		{[]int{0, 1, 2, 0, 1, 2, 0, 1}, 3, true},
		{[]int{0, 1, 2, 0, 1, 2, 0, 1}, 4, false},
		{[]int{0, 1, 0, 1}, 3, false},
		{[]int{0, 0, 0, 0}, 1, true},
		{nil, 4, true},
		{[]int{0}, 0, false},
	}
	for _, tt := range tests {
		if got := defaultTable(tt.queues, tt.rings); got != tt.want {
			t.Errorf("defaultTable(%v, %d) = %v", tt.queues, tt.rings, got)
		}
	}
}
