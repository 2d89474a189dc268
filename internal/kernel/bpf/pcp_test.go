// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/niclane/niclane/lane/device"
)

// TestPCP: a lane's packets with a tag in the data get the lane's PCP in the outermost tag. The VLAN ID,
// the drop eligible bit and all other bits stay. Packets without a tag, of another lane and of no lane
// stay as they are.
func TestPCP(t *testing.T) {
	for pcp := range 8 {
		objs, m := load(t)
		put(t, m, device.FilterEntry{Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80},
			PCP: device.FormatPCP(pcp)})
		put(t, m, device.FilterEntry{Match: device.Match{Family: 6, Protocol: "tcp", LocalPort: 80},
			Priority: "1:10", Queues: []int{2}, DSCP: "ef", PCP: device.FormatPCP(pcp)})
		put(t, m, device.FilterEntry{Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 81}, Priority: "1:11"})
		four4 := func(port uint16) []byte { return ipv4(6, four, four2, 0, 0, ports(port, 1)) }
		six6 := func(port uint16) []byte { return ipv6(6, six, "2001:db8::1", ports(port, 1)) }
		for name, tt := range map[string]struct {
			frame  []byte
			lane   bool
			marked bool // the lane has a DSCP too
		}{
			"IPv4":                {frame(0x8100, tag(7, 0x800), four4(80)), true, false},
			"IPv4, two tags":      {frame(0x88a8, tag(7, 0x8100), tag(9, 0x800), four4(80)), true, false},
			"IPv6":                {frame(0x8100, tag(7, 0x86dd), six6(80)), true, true},
			"IPv6, two tags":      {frame(0x88a8, tag(7, 0x8100), tag(9, 0x86dd), six6(80)), true, true},
			"priority tag":        {frame(0x8100, tag(0, 0x800), four4(80)), true, false},
			"another lane":        {frame(0x8100, tag(7, 0x800), four4(81)), false, false},
			"no lane":             {frame(0x8100, tag(7, 0x800), four4(82)), false, false},
			"not IP":              {frame(0x8100, tag(7, 0x806), make([]byte, 46)), false, false},
			"IPv4, without a tag": {frame(0x800, four4(80)), false, false},
		} {
			for high := range 16 { // PCP and the drop eligible bit
				in := bytes.Clone(tt.frame)
				if in[12] != 8 {
					binary.BigEndian.PutUint16(in[14:], binary.BigEndian.Uint16(in[14:])|uint16(high)<<12)
				}
				want := bytes.Clone(in)
				if tt.lane {
					want[14] = byte(pcp<<5) | in[14]&0x1f
				}
				if tt.marked {
					want = withClass(want, 46<<2)
				}
				if got, _ := left(t, objs.NiclaneEgress, in, skb{}); !bytes.Equal(got, want) {
					t.Fatalf("%s, PCP %d (-want +got):\n%x\n%x", name, pcp, want, got)
				}
			}
		}
		objs.Close()
	}
}
