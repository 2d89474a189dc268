// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// udpHeader is the length of a UDP header, RFC 768.
const udpHeader = 8

// datagram returns the UDP header of an empty datagram. local and remote must be of the same
// family.
func datagram(local, remote netip.AddrPort) []byte {
	b := make([]byte, udpHeader)
	binary.BigEndian.PutUint16(b, local.Port())
	binary.BigEndian.PutUint16(b[2:], remote.Port())
	binary.BigEndian.PutUint16(b[4:], udpHeader)
	// The pseudo header, RFC 768 and RFC 8200, 8.1: the addresses, the
	// length and the protocol.
	sum := uint32(udpHeader + unix.IPPROTO_UDP)
	for _, part := range [][]byte{local.Addr().AsSlice(), remote.Addr().AsSlice(), b} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	check := ^uint16(sum)
	if check == 0 {
		check = 0xffff // 0 means "not computed"
	}
	binary.BigEndian.PutUint16(b[6:], check)
	return b
}
