// SPDX-License-Identifier: Apache-2.0

package emucard

// hashBytes equals HASH_BYTES in c/card.c: the bytes of two IPv6 addresses and two ports.
const hashBytes = 36

// key is the RSS key of Microsoft's verification suite ("Verifying the RSS Hash Calculation"). Many
// cards have it as their default.
var key = [40]byte{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
	0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
	0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
}

// window returns the 32 bits of the key that start at bit i.
func window(i int) uint32 {
	var w uint32
	for b := range 32 {
		bit := key[(i+b)/8] >> (7 - (i+b)%8) & 1
		w = w<<1 | uint32(bit)
	}
	return w
}

// toeplitzTable returns, for each position and each value of a byte, what the byte adds to the hash
// (by exclusive or).
func toeplitzTable() (t [hashBytes][256]uint32) {
	for i := range t {
		for bit := range 8 {
			w := window(i*8 + bit)
			for v := range t[i] {
				if v>>(7-bit)&1 == 1 {
					t[i][v] ^= w
				}
			}
		}
	}
	return t
}
