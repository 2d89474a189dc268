// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"net/netip"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/noise"
)

// labMTU is the default of lab.Config.MTU.
const labMTU = 1500

// noiseEnds are the two ends of one noise to address, without their threads,
// on a link of so many bit/s and a path of that MTU.
func noiseEnds(n experiment.Noise, address string, link int64, mtu int) (send, receive noise.Config) {
	bits := int64(n.BitsPerSecond)
	if bits == 0 {
		bits = int64(n.Share) * link / 1000
	}
	at, _ := netip.ParseAddrPort(address) // package noise says what is wrong with it
	ipv6 := at.Addr().Is6() && !at.Addr().Is4In6()
	receive = noise.Config{Role: noise.Receive, Protocol: n.Protocol, Address: address, Flows: n.Flows}
	send = receive
	send.Role = noise.Send
	if n.Protocol == noise.UDP {
		send.Datagram = cmp.Or(n.Segment, largestDatagram(mtu, ipv6))
		send.Rate = noise.DatagramRate(bits, send.Datagram, ipv6)
	} else {
		send.MSS, send.Congestion = n.Segment, n.Congestion
		send.Rate = noise.PayloadRate(bits, mtu, ipv6)
	}
	return send, receive
}

// largestDatagram is the payload of one that fits the MTU in one piece.
func largestDatagram(mtu int, ipv6 bool) int {
	if ipv6 {
		return mtu - 40 - 8
	}
	return mtu - 20 - 8
}
