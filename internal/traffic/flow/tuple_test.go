// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"testing"

	"github.com/niclane/niclane/lane/device"
)

// FuzzMatch: a match that Encode accepts decodes to the same match.
func FuzzMatch(f *testing.F) {
	f.Add(4, "tcp", "10.0.0.1/32", uint16(80), 0, "", uint16(0), 0, 0)
	f.Add(6, "udp", "", uint16(0), 0, "fd00::/8", uint16(53), 0, 7)
	f.Add(4, "tcp", "::ffff:10.0.0.1/128", uint16(1), 0, "0.0.0.0/0", uint16(1), 0, 4095)
	f.Add(4, "udp", "", uint16(30720), 8, "", uint16(49152), 4, 0)
	f.Add(4, "udp", "", uint16(30721), 8, "", uint16(0), 4, 0)
	f.Add(6, "", "", uint16(0), 0, "fd00:2::/48", uint16(0), 0, 0)
	f.Add(4, "", "", uint16(80), 0, "10.2.0.0/16", uint16(0), 0, 0)
	f.Fuzz(func(t *testing.T, family int, protocol, local string, localPort uint16, localBits int, remote string,
		remotePort uint16, remoteBits, vlan int) {
		want := device.Match{Family: family, Protocol: protocol, Local: local, LocalPort: localPort,
			LocalPortBits: localBits,
			Remote:        remote, RemotePort: remotePort, RemotePortBits: remoteBits, VLAN: vlan}
		flow, mask, err := Encode(want)
		if err != nil {
			return
		}
		for i, b := range flow.Bytes() {
			if b&^mask.Bytes()[i] != 0 {
				t.Errorf("%+v: byte %d of the flow is not compared", want, i)
			}
		}
		got, err := Decode(flow, mask)
		if err != nil {
			t.Fatalf("%+v: %v", want, err)
		}
		// Compare the encodings: want may spell a prefix in another way than netip prints it.
		f2, m2, err := Encode(got)
		if err != nil || f2 != flow || m2 != mask {
			t.Errorf("%+v decodes to %+v", want, got)
		}
	})
}
