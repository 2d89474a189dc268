// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

// A flowSpec is a rule, laid out as the kernel returns it in struct ethtool_rxnfc
// (ETHTOOL_GRXCLSRULE). The tests build it, because no card with rules was there to record one.
type flowSpec struct {
	flow           uint32
	remote, local  string // prefixes
	rport, lport   uint16
	rmask, lmask   uint16
	tosMask        byte
	vlan, vlanMask uint16
	macMask        byte
	cookie         uint64
	context        uint32
}

func (s flowSpec) bytes(t testing.TB) []byte {
	t.Helper()
	b := make([]byte, rxnfcSize)
	spec := b[rxnfcSpec:]
	binary.NativeEndian.PutUint32(spec[specFlow:], s.flow)
	n := 4
	if f := s.flow &^ flowFlags; f == flowTCP6 || f == flowUDP6 {
		n = 16
	}
	put := func(at int, p string) {
		if p == "" {
			return
		}
		pre, err := netip.ParsePrefix(p)
		must.Do(t, err)
		copy(spec[specHeader+at:], pre.Addr().AsSlice())
		for bit := range pre.Bits() {
			spec[specMask+at+bit/8] |= 0x80 >> (bit % 8)
		}
	}
	put(0, s.remote)
	put(n, s.local)
	be := binary.BigEndian
	be.PutUint16(spec[specHeader+2*n:], s.rport)
	be.PutUint16(spec[specMask+2*n:], s.rmask)
	be.PutUint16(spec[specHeader+2*n+2:], s.lport)
	be.PutUint16(spec[specMask+2*n+2:], s.lmask)
	spec[specMask+2*n+4] = s.tosMask
	be.PutUint16(spec[specExt+10:], s.vlan)
	be.PutUint16(spec[specExtMask+10:], s.vlanMask)
	spec[specExtMask+2] = s.macMask
	binary.NativeEndian.PutUint64(spec[specCookie:], s.cookie)
	binary.NativeEndian.PutUint32(b[rxnfcRuleCnt:], s.context)
	return b
}

func TestDecodeRule(t *testing.T) {
	const full = 0xffff
	tests := []struct {
		name string
		in   flowSpec
		want device.Rule
		ok   bool
	}{
		{
			"tcp4 to a queue by local port",
			flowSpec{flow: flowTCP4, local: "10.9.0.1/32", lport: 11211, lmask: full, cookie: 3},
			device.Rule{Match: device.Match{Family: 4, Protocol: "tcp", Local: "10.9.0.1/32", LocalPort: 11211},
				Queue: 3}, true,
		},
		{
			"udp6 to a context by remote prefix",
			flowSpec{flow: flowUDP6 | flowRSS, remote: "fd00::/8", rport: 53, rmask: full, context: 2},
			device.Rule{Match: device.Match{Family: 6, Protocol: "udp", Remote: "fd00::/8", RemotePort: 53},
				Context: 2}, true,
		},
		{
			"vlan", flowSpec{flow: flowTCP4 | flowExt, lport: 80, lmask: full, vlan: 0x2064, vlanMask: 0x0fff},
			device.Rule{Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80, VLAN: 0x064}}, true,
		},
		{
			"a context without the flag is a rule count", flowSpec{flow: flowUDP4, context: 9},
			device.Rule{Match: device.Match{Family: 4, Protocol: "udp"}}, true,
		},
		{"drop", flowSpec{flow: flowTCP4, cookie: ^uint64(0)}, device.Rule{}, false},
		{"virtual function", flowSpec{flow: flowTCP4, cookie: 1 << 32}, device.Rule{}, false},
		{"sctp4", flowSpec{flow: 3}, device.Rule{}, false},
		{"half a port mask", flowSpec{flow: flowTCP4, lport: 80, lmask: 0xff00}, device.Rule{}, false},
		{"type of service", flowSpec{flow: flowTCP4, tosMask: 0xff}, device.Rule{}, false},
		{"priority of a VLAN tag", flowSpec{flow: flowTCP4 | flowExt, vlanMask: 0xe000}, device.Rule{}, false},
		{"destination MAC", flowSpec{flow: flowTCP4 | flowExt, macMask: 0xff}, device.Rule{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := decodeRule(tt.in.bytes(t))
			if ok != tt.ok {
				t.Fatalf("can be said: %v, want %v", ok, tt.ok)
			}
			if diff := cmp.Diff(tt.want, got); ok && diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPrefix(t *testing.T) {
	tests := []struct {
		value, mask []byte
		want        string
		ok          bool
	}{
		{[]byte{10, 1, 2, 3}, []byte{255, 255, 255, 255}, "10.1.2.3/32", true},
		{[]byte{10, 1, 2, 3}, []byte{255, 240, 0, 0}, "10.0.0.0/12", true},
		{[]byte{10, 1, 2, 3}, []byte{0, 0, 0, 0}, "", true},
		{[]byte{10, 1, 2, 3}, []byte{255, 0, 255, 0}, "", false},
		{[]byte{10, 1, 2, 3}, []byte{255, 0x81, 0, 0}, "", false},
		{[]byte{10, 1, 2, 3}, []byte{0xf0, 0x80, 0, 0}, "", false},
		{[]byte{10, 1, 2, 3}, []byte{0, 0, 0, 255}, "", false},
	}
	for _, tt := range tests {
		if got, ok := prefix(tt.value, tt.mask); got != tt.want || ok != tt.ok {
			t.Errorf("prefix(%v, %v) = %q, %v, want %q, %v", tt.value, tt.mask, got, ok, tt.want, tt.ok)
		}
	}
}

func TestPerQueueRequest(t *testing.T) {
	for _, queue := range []int{0, 31, 32, 4095} {
		b, err := perQueueRequest(unix.ETHTOOL_GCOALESCE, queue)
		must.Do(t, err)
		if len(b) != 520+92 {
			t.Fatalf("request of %d bytes", len(b))
		}
		for i := range perQueueMax {
			word := binary.NativeEndian.Uint32(b[8+i/32*4:])
			if got, want := word>>(i%32)&1 == 1, i == queue; got != want {
				t.Errorf("queue %d: bit %d is %v", queue, i, got)
			}
		}
	}
	for _, queue := range []int{-1, 4096} {
		if _, err := perQueueRequest(unix.ETHTOOL_GCOALESCE, queue); err == nil {
			t.Errorf("queue %d was accepted", queue)
		}
	}
}

func TestDecodeIoctlCoalesce(t *testing.T) {
	b := make([]byte, coalesceSize)
	for i := range coalesceSize / 4 {
		binary.NativeEndian.PutUint32(b[4*i:], uint32(100+i)) // a different value for each field
	}
	got := decodeIoctlCoalesce(b)
	want := device.Coalesce{RxUsecs: 101, TxUsecs: 105, RxAdapt: true, TxAdapt: true}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	binary.NativeEndian.PutUint32(b[4*11:], 0) // use_adaptive_tx_coalesce
	if got := decodeIoctlCoalesce(b); got.TxAdapt || !got.RxAdapt {
		t.Errorf("adaptive: rx %v tx %v, want rx only", got.RxAdapt, got.TxAdapt)
	}
}

// TestDecodeCoalesceHas: has lists only the parameters in the reply. The kernel leaves out
// those that a driver lacks.
func TestDecodeCoalesceHas(t *testing.T) {
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(unix.ETHTOOL_A_COALESCE_RX_USECS, 0)
	ae.Uint8(unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX, 1)
	b, err := ae.Encode()
	must.Do(t, err)
	v, has, err := decodeCoalesce(b)
	if err != nil || !v.RxAdapt || !slices.Equal(has, []string{"rxUsecs", "rxAdapt"}) {
		t.Errorf("got %+v, has %v, %v", v, has, err)
	}
}
