// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// TestEncodeRule: an encoded rule decodes to the same rule at the same location.
func TestEncodeRule(t *testing.T) {
	for _, r := range []device.Rule{
		{Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 11211}, Queue: 5},
		{Match: device.Match{Family: 4, Protocol: "udp", Local: "10.9.0.1/32", Remote: "10.0.0.0/9", RemotePort: 53},
			Context: 3},
		{Match: device.Match{Family: 6, Protocol: "tcp", Local: "fd09::/63", LocalPort: 443, VLAN: 100}, Context: 1},
		{Match: device.Match{Family: 6, Protocol: "udp", Remote: "fd00::1/128", RemotePort: 1}},
	} {
		b, err := encodeRule(r, 7)
		if err != nil {
			t.Fatal(err)
		}
		if got := RawRule(b).Location(); got != 7 {
			t.Errorf("%s: location %d", r.Match, got)
		}
		if got := binary.NativeEndian.Uint32(b); got != unix.ETHTOOL_SRXCLSRLINS {
			t.Errorf("%s: command %#x", r.Match, got)
		}
		got, ok := decodeRule(b)
		if diff := cmp.Diff(r, got); !ok || diff != "" {
			t.Errorf("%s: can be said %v (-want +got):\n%s", r.Match, ok, diff)
		}
	}
}

func TestEncodeRuleRefuses(t *testing.T) {
	for name, m := range map[string]device.Match{
		"no family":          {Protocol: "tcp"},
		"another protocol":   {Family: 4, Protocol: "sctp"},
		"address of IPv6":    {Family: 4, Protocol: "tcp", Local: "fd09::1/128"},
		"what is no address": {Family: 6, Protocol: "tcp", Remote: "somewhere"},
	} {
		if _, err := encodeRule(device.Rule{Match: m}, 0); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: %v, want EINVAL", name, err)
		}
	}
}

func TestLowestFree(t *testing.T) {
	for _, c := range []struct {
		taken    []int
		other    []device.OtherRule
		capacity int
		want     int
		ok       bool
	}{
		{nil, nil, 4, 0, true},
		{[]int{0, 1, 3}, nil, 4, 2, true},
		{[]int{1, 0}, []device.OtherRule{{Location: 2}}, 4, 3, true},
		{[]int{0, 1}, nil, 2, 2, false},
		{[]int{0, 1}, nil, 0, 2, true}, // the driver does not report the table's size
	} {
		got, ok := Rules{Locations: c.taken, Other: c.other, Capacity: c.capacity}.lowestFree()
		if got != c.want || ok != c.ok {
			t.Errorf("lowestFree(%v, %v of %d) = %d, %v, want %d, %v", c.taken, c.other, c.capacity, got, ok, c.want,
				c.ok)
		}
	}
}

// TestRxfhSet checks the layout of struct ethtool_rxfh (linux/ethtool.h): command, context,
// entries, key size, hash function, transform, padding, then the table.
func TestRxfhSet(t *testing.T) {
	const want = "47000000" + "03000000" + "02000000" + "00000000" + "00" + "01" + "0000" + "00000000" + "04000000" +
		"05000000"
	if got := hex.EncodeToString(rxfhSet(3, []int{4, 5}, 1)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := len(rxfhSet(0, nil, 0)); got != rxfhSize {
		t.Errorf("a reset of %d bytes", got)
	}
}
