// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

func addTunnels(t testing.TB, m *ebpf.Map) {
	t.Helper()
	v, err := flow.EncodeTunnels([]device.Tunnel{{Protocol: "vxlan", Port: vxlanPort},
		{Protocol: "geneve", Port: genevePort}})
	must.Do(t, err)
	must.Do(t, m.Update(uint32(0), v, ebpf.UpdateAny))
}

// udp returns a UDP header and what follows it. Its length and checksum are 0, which no program reads.
func udp(source, destination uint16, rest ...[]byte) []byte {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, source), destination)
	return append(append(b, 0, 0, 0, 0), bytes.Join(rest, nil)...)
}

// The nodes between which the tests' tunnels are.
const node, node2 = "192.0.2.1", "192.0.2.2"

// vxlan returns an inner frame as a VXLAN packet.
func vxlan(inner []byte) []byte {
	return frame(0x800, ipv4(17, node, node2, 0, 0, vxlanUDP(8, 0, inner)))
}

// vxlanUDP returns a VXLAN packet from its UDP header on. flags is the first byte of its VXLAN header,
// next the fourth.
func vxlanUDP(flags, next byte, inner []byte) []byte {
	return udp(40000, vxlanPort, []byte{flags, 0, 0, next, 0, 0, 7, 0}, inner)
}

// geneve returns a Geneve packet with options of the given number of words.
func geneve(options int, protocol uint16, inner []byte) []byte {
	return frame(0x800, ipv4(17, node, node2, 0, 0, geneveUDP(byte(options), protocol, inner)))
}

func geneveUDP(first byte, protocol uint16, inner []byte) []byte {
	header := binary.BigEndian.AppendUint16([]byte{first, 0}, protocol)
	return udp(40000, genevePort, header, make([]byte, 4+int(first&63)*4), inner)
}

// tunnelFrames are frames with packets in tunnels. arrive is as in frames.
func tunnelFrames(arrive bool) map[string]named {
	port := func(local, remote uint16) []byte {
		if arrive {
			local, remote = remote, local
		}
		return ports(local, remote)
	}
	in4 := func(proto byte, local string, fragment uint16, payload []byte) []byte {
		if arrive {
			return ipv4(proto, node2, local, fragment, 0, payload)
		}
		return ipv4(proto, local, node2, fragment, 0, payload)
	}
	in6 := func(local string, payload []byte) []byte {
		if arrive {
			return ipv6(6, "2001:db8::1", local, payload)
		}
		return ipv6(6, local, "2001:db8::1", payload)
	}
	mc := port(11211, 4000)
	tcp4, tcp6 := in4(6, four, 0, mc), in6(six, mc)
	whole := vxlan(frame(0x800, tcp4))
	over6 := func(l4 []byte) []byte { return frame(0x86dd, ipv6(17, "2001:db8::1", "2001:db8::2", l4)) }
	fragmented := func(fragment uint16) []byte {
		return frame(0x800, ipv4(17, node, node2, fragment, 0, vxlanUDP(8, 0, frame(0x800, tcp4))))
	}
	tagged := func(outer, inner uint16, local uint16) []byte {
		in := frame(0x8100, tag(inner, 0x800), in4(6, four, 0, port(local, 1)))
		return frame(0x8100, tag(outer, 0x800), ipv4(17, node, node2, 0, 0, vxlanUDP(8, 0, in)))
	}
	in := frame(0x800, tcp4)
	gpe := func(next byte, inner []byte) []byte {
		return frame(0x800, ipv4(17, node, node2, 0, 0, vxlanUDP(12, next, inner)))
	}
	return map[string]named{
		"VXLAN":                               {whole, "1:10"},
		"VXLAN, options of the outer header":  {frame(0x800, ipv4(17, node, node2, 0, 40, vxlanUDP(8, 0, in))), "1:10"},
		"VXLAN, IPv6 inside":                  {vxlan(frame(0x86dd, tcp6)), "1:11"},
		"VXLAN over IPv6":                     {over6(vxlanUDP(8, 0, in)), "1:10"},
		"VXLAN over IPv6, IPv6 inside":        {over6(vxlanUDP(8, 0, frame(0x86dd, tcp6))), "1:11"},
		"VXLAN, extension inside":             {vxlan(frame(0x86dd, extended(arrive, mc))), "1:11"},
		"VXLAN, another port":                 {vxlan(frame(0x800, in4(6, four, 0, port(1, 2)))), ""},
		"VXLAN, another address":              {vxlan(frame(0x800, in4(6, "10.9.0.3", 0, mc))), ""},
		"VXLAN, lane without addresses":       {vxlan(frame(0x800, in4(17, "10.9.0.3", 0, mc))), ""},
		"VXLAN, fragment inside":              {vxlan(frame(0x800, in4(6, four, 0x2000, mc))), ""},
		"VXLAN, first fragment":               {fragmented(0x2000), ""},
		"VXLAN, later fragment":               {fragmented(0x0010), ""},
		"VXLAN, no valid VNI":                 {frame(0x800, ipv4(17, node, node2, 0, 0, vxlanUDP(0, 0, in))), ""},
		"VXLAN in VXLAN":                      {vxlan(whole), ""},
		"VXLAN, ARP inside":                   {vxlan(frame(0x806, make([]byte, 46))), ""},
		"VXLAN, inner header cut off":         {whole[:len(whole)-30], ""},
		"VXLAN header cut off":                {whole[:14+20+8+3], ""},
		"VXLAN, inner tag":                    {vxlan(frame(0x8100, tag(9, 0x800), tcp4)), "1:10"},
		"VXLAN, the outer tag counts":         {tagged(7, 9, 81), "1:20"},
		"VXLAN, the inner tag does not":       {tagged(9, 7, 81), ""},
		"VXLAN-GPE, IPv4":                     {gpe(1, tcp4), "1:10"},
		"VXLAN-GPE, IPv6":                     {gpe(2, tcp6), "1:11"},
		"VXLAN-GPE, Ethernet":                 {gpe(3, in), "1:10"},
		"VXLAN-GPE, NSH":                      {gpe(4, in), ""},
		"a packet from VXLAN's port":          {frame(0x800, ipv4(17, node, node2, 0, 0, udp(vxlanPort, 1, []byte{8, 0, 0, 0, 0, 0, 0, 0}, in))), ""},
		"TCP to VXLAN's port":                 {frame(0x800, ipv4(6, node, node2, 0, 0, vxlanUDP(8, 0, in))), ""},
		"Geneve":                              {geneve(0, 0x6558, in), "1:10"},
		"Geneve with options":                 {geneve(5, 0x6558, in), "1:10"},
		"Geneve with the most options":        {geneve(63, 0x6558, in), "1:10"},
		"Geneve, IPv4 without Ethernet":       {geneve(1, 0x0800, tcp4), "1:10"},
		"Geneve, IPv6 without Ethernet":       {geneve(1, 0x86dd, tcp6), "1:11"},
		"Geneve over IPv6":                    {over6(geneveUDP(3, 0x6558, in)), "1:10"},
		"Geneve of another version":           {geneve(0x40, 0x6558, in), ""},
		"Geneve, options longer than written": {frame(0x800, ipv4(17, node, node2, 0, 0, append(geneveUDP(0, 0x6558, nil)[:8], append([]byte{63, 0, 0x65, 0x58, 0, 0, 0, 0}, in...)...))), ""},
	}
}

func extended(arrive bool, payload []byte) []byte {
	if arrive {
		return ipv6(0, "2001:db8::1", six, ext(6, 0, 8), payload)
	}
	return ipv6(0, six, "2001:db8::1", ext(6, 0, 8), payload)
}

// TestInnerOfThisHost: the classifier looks only into packets that this host has made. Otherwise a pod
// could put its packets into another pod's lane.
func TestInnerOfThisHost(t *testing.T) {
	objs, m := load(t)
	fill(t, m)
	b := vxlan(frame(0x800, ipv4(6, four, node2, 0, 0, ports(11211, 4000))))
	for ifindex, want := range map[uint32]string{0: "1:10", 1: "0:"} {
		in, out := skb{}, skb{}
		in.Rest[0] = ifindex // ingress_ifindex
		_, err := objs.NiclaneEgress.Run(&ebpf.RunOptions{Data: b, DataOut: make([]byte, len(b)), Context: in,
			ContextOut: &out})
		must.Do(t, err)
		if got := tc.FormatHandle(out.Priority); got != want {
			t.Errorf("from the link %d: priority %s, want %s", ifindex, got, want)
		}
	}
}

// TestOuterFirst: a lane of the outer packet has precedence over a lane of the packet inside.
func TestOuterFirst(t *testing.T) {
	objs, m := load(t)
	fill(t, m)
	b := vxlan(frame(0x800, ipv4(6, four, node2, 0, 0, ports(11211, 4000))))
	binary.BigEndian.PutUint16(b[34:], 30720)
	if got := tc.FormatHandle(classify(t, objs.NiclaneEgress, b, 0)); got != "1:18" {
		t.Errorf("priority %s, want 1:18", got)
	}
}

// TestUnshapedInside: packets to an unshaped network are of no lane inside a tunnel too.
func TestUnshapedInside(t *testing.T) {
	objs, m := load(t)
	fill(t, m)
	for remote, inside := range map[string]string{"10.2.0.1": "10.2.0.0/16", "2001:db8::1": "2001:db8::/64"} {
		b, family, lane := vxlan(frame(0x800, ipv4(6, four, remote, 0, 0, ports(11211, 4000)))), 4, "1:10"
		if strings.Contains(remote, ":") {
			b, family, lane = vxlan(frame(0x86dd, ipv6(6, six, remote, ports(11211, 4000)))), 6, "1:11"
		}
		if got := tc.FormatHandle(classify(t, objs.NiclaneEgress, b, 0)); got != lane {
			t.Errorf("%s: priority %s, want %s", remote, got, lane)
		}
		put(t, m, device.FilterEntry{Match: device.Match{Family: family, Remote: inside}})
		if got := tc.FormatHandle(classify(t, objs.NiclaneEgress, b, 0)); got != "0:" {
			t.Errorf("%s, unshaped: priority %s, want none", remote, got)
		}
	}
}

// TestNoTunnels: without tunnels, the programs look into no packet.
func TestNoTunnels(t *testing.T) {
	objs, m := load(t)
	fill(t, m)
	must.Do(t, m.tunnels.Update(uint32(0), flow.Tunnels{}, ebpf.UpdateAny))
	b := vxlan(frame(0x800, ipv4(6, four, node2, 0, 0, ports(11211, 4000))))
	if got := classify(t, objs.NiclaneEgress, b, 77); got != 77 {
		t.Errorf("priority %s, want the one before", tc.FormatHandle(got))
	}
	b = frame(0x800, ipv4(17, node, node2, 0, 0, udp(0, 0, b[42:])))
	if got := classify(t, objs.NiclaneEgress, b, 77); got != 77 {
		t.Errorf("port 0: priority %s, want the one before", tc.FormatHandle(got))
	}
}
