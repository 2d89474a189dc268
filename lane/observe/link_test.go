// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

// recordedLinks returns RTM_NEWLINK messages of Linux 6.18, x86-64: a bridge with an enslaved
// veth, a macvlan, and a virtio_net device. The veth has an XDP program, and its peer is in
// another namespace.
func recordedLinks(t testing.TB) [][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/links.hex")
	must.Do(t, err)
	var msgs [][]byte
	for _, line := range strings.Fields(string(text)) {
		b, err := hex.DecodeString(line)
		must.Do(t, err)
		msgs = append(msgs, b)
	}
	return msgs
}

func mac(t *testing.T, s string) net.HardwareAddr {
	t.Helper()
	m, err := net.ParseMAC(s)
	must.Do(t, err)
	return m
}

func TestChoose(t *testing.T) {
	all := []iface{
		{index: 1, name: "lo"},
		{index: 2, name: "eth0", master: 10},
		{index: 3, name: "eth1", master: 10},
		{index: 4, name: "eth2"},
		{index: 5, name: "veth5", kind: "veth", lower: 4},                        // a peer, not a lower device
		{index: 6, name: "mv6", kind: "macvlan", lower: 4, lowerElsewhere: true}, // lower is in another namespace
		{index: 10, name: "bond0", kind: "bond"},
		{index: 11, name: "bond0.100", kind: "vlan", lower: 10, vlan: 100},
	}
	tests := []struct {
		ask  []string
		want string
	}{
		{nil, "bond0 bond0.100 eth0 eth1 eth2 lo mv6 veth5"},
		{[]string{"eth2"}, "eth2"},
		{[]string{"eth1"}, "bond0 eth0 eth1"},
		{[]string{"bond0"}, "bond0 eth0 eth1"},
		{[]string{"bond0.100"}, "bond0 bond0.100 eth0 eth1"},
		{[]string{"veth5", "mv6"}, "mv6 veth5"},
		{[]string{"eth2", "eth2"}, "eth2"},
	}
	for _, tt := range tests {
		got, err := choose(all, tt.ask)
		must.Do(t, err)
		var names []string
		for _, l := range got {
			names = append(names, l.name)
		}
		if diff := cmp.Diff(tt.want, strings.Join(names, " ")); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.ask, diff)
		}
	}
	if _, err := choose(all, []string{"eth0", "eth9"}); !errors.Is(err, unix.ENODEV) ||
		!strings.Contains(err.Error(), "eth9") {
		t.Errorf("%v, want ENODEV for eth9", err)
	}
}

func TestDecodeLink(t *testing.T) {
	up := uint32(unix.IFF_UP | unix.IFF_BROADCAST | unix.IFF_RUNNING | unix.IFF_MULTICAST | unix.IFF_LOWER_UP)
	idle := uint32(unix.IFF_BROADCAST | unix.IFF_MULTICAST)
	queue := 1000
	want := []iface{
		{index: 1, name: "lo", flags: unix.IFF_LOOPBACK, mac: mac(t, "00:00:00:00:00:00"), mtu: 65536, qlen: &queue,
			carrier: true},
		{
			index: 2, name: "v0", kind: "veth", flags: up, mac: mac(t, "6e:57:fa:a3:07:cf"), mtu: 1500, qlen: &queue,
			carrier: true,
			lower:   2, lowerElsewhere: true, xdp: []xdpProgram{{"xdp", 360}},
		},
		{index: 3, name: "br0", kind: "bridge", flags: idle, mac: mac(t, "fa:f3:8b:88:dc:17"), mtu: 1500, qlen: &queue},
		{
			index: 4, name: "w0", kind: "veth", flags: idle, mac: mac(t, "fa:f3:8b:88:dc:17"), mtu: 1500, qlen: &queue,
			master: 3, lower: 3, lowerElsewhere: true,
		},
		{index: 5, name: "mv0", kind: "macvlan", flags: idle, mac: mac(t, "9a:95:38:ec:c4:c4"), mtu: 1500, qlen: &queue,
			lower: 3},
		{index: 4, name: "eth0", flags: up, mac: mac(t, "02:fc:00:00:00:01"), permMAC: mac(t, "02:fc:00:00:00:01"),
			mtu: 1400, qlen: &queue, carrier: true, parent: "virtio2"},
	}
	for i := range want {
		want[i].gso = &device.GSOLimit{Dev: want[i].name, Max: 65536, MaxIPv4: 65536}
	}
	var got []iface
	for _, b := range recordedLinks(t) {
		l, err := decodeLink(b)
		must.Do(t, err)
		got = append(got, l)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(iface{}, xdpProgram{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	tun := recordedLinks(t)[0]
	binary.NativeEndian.PutUint16(tun[2:], unix.ARPHRD_NONE)
	if l, err := decodeLink(tun); err != nil || l.linkType != "none" {
		t.Errorf("link type of a tun: %q, %v", l.linkType, err)
	}
	if _, err := decodeLink(recordedLinks(t)[0][:15]); err == nil {
		t.Error("a message shorter than its header was decoded")
	}
}

// vlanMessage returns the message of a VLAN in the format of vlan_fill_info
// (net/8021q/vlan_netlink.c), because the kernel of the recorded messages had no VLANs.
func vlanMessage(t testing.TB, id uint16) []byte {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	ae.String(unix.IFLA_IFNAME, "eth0.100")
	ae.Uint32(unix.IFLA_LINK, 4)
	ae.Nested(unix.IFLA_LINKINFO, func(info *netlink.AttributeEncoder) error {
		info.String(unix.IFLA_INFO_KIND, "vlan")
		info.Nested(unix.IFLA_INFO_DATA, func(data *netlink.AttributeEncoder) error {
			data.Uint16(5, 0x0081) // protocol 802.1Q
			data.Uint16(vlanID, id)
			data.Bytes(2, make([]byte, 8)) // flags
			return nil
		})
		return nil
	})
	b, err := ae.Encode()
	must.Do(t, err)
	head := make([]byte, ifinfomsgLen)
	binary.NativeEndian.PutUint16(head[2:], unix.ARPHRD_ETHER)
	return append(head, b...)
}

func TestDecodeVLAN(t *testing.T) {
	got, err := decodeLink(vlanMessage(t, 100))
	must.Do(t, err)
	want := iface{name: "eth0.100", kind: "vlan", lower: 4, vlan: 100}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(iface{}, xdpProgram{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !got.isUpper() {
		t.Error("a VLAN does not lie on top of its device")
	}
}

// slaveMessage returns the message of a bond's slave in the format of bond_fill_slave_info
// (drivers/net/bonding/bond_netlink.c), because the kernel of the recorded messages had no bonds.
func slaveMessage(t testing.TB, master string, state, link uint8) []byte {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	ae.String(unix.IFLA_IFNAME, "eth0")
	ae.Uint32(unix.IFLA_MASTER, 7)
	ae.Uint8(unix.IFLA_CARRIER, 1)
	ae.Nested(unix.IFLA_LINKINFO, func(info *netlink.AttributeEncoder) error {
		info.String(unix.IFLA_INFO_SLAVE_KIND, master)
		info.Nested(unix.IFLA_INFO_SLAVE_DATA, func(data *netlink.AttributeEncoder) error {
			data.Uint8(unix.IFLA_BOND_SLAVE_STATE, state)
			data.Uint8(unix.IFLA_BOND_SLAVE_MII_STATUS, link)
			data.Uint32(unix.IFLA_BOND_SLAVE_LINK_FAILURE_COUNT, 1)
			return nil
		})
		return nil
	})
	b, err := ae.Encode()
	must.Do(t, err)
	return append(make([]byte, ifinfomsgLen), b...)
}

func TestDecodeSlave(t *testing.T) {
	for name, c := range map[string]struct {
		master      string
		state, link uint8
		want        bool
	}{
		"sends":                    {"bond", 0, 0, false},
		"backup, other aggregator": {"bond", 1, 0, true},
		"link is failing":          {"bond", 0, 1, true},
		"link is down":             {"bond", 0, 2, true},
		"link comes back":          {"bond", 0, 3, true},
		"a bridge's":               {"bridge", 3, 3, false},
	} {
		got, err := decodeLink(slaveMessage(t, c.master, c.state, c.link))
		must.Do(t, err)
		if got.idle != c.want || got.master != 7 {
			t.Errorf("%s: idle %v, want %v; master %d", name, got.idle, c.want, got.master)
		}
	}
}

func FuzzDecodeLink(f *testing.F) {
	for _, b := range recordedLinks(f) {
		f.Add(b)
	}
	f.Add(vlanMessage(f, 100))
	f.Add(slaveMessage(f, "bond", 1, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decodeLink(b)
		if err != nil {
			return
		}
		if l.vlan != 0 && l.kind != "vlan" {
			t.Errorf("VLAN %d on kind %q", l.vlan, l.kind)
		}
		if l.isUpper() && l.kind == "veth" {
			t.Error("a veth on top of its peer")
		}
	})
}
