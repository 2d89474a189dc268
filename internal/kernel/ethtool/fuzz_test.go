// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzDecode gives random input to every netlink decoder. No decoder may panic, and its result
// must not depend on earlier input.
func FuzzDecode(f *testing.F) {
	seeds, err := filepath.Glob("testdata/*.bin")
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no recordings: %v", err)
	}
	for _, s := range seeds {
		b, err := os.ReadFile(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(rssMessage(f, 3, 0, 1, 2, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		decodeChannels(b)
		decodeRing(b)
		decodeCoalesce(b)
		decodeSpeed(b)
		decodePrivateFlags(b)
		decodeRSS(b)
		features, err := decodeFeatures(b)
		if err != nil {
			return
		}
		if _, ok := features[""]; ok {
			t.Error("a feature without a name")
		}
	})
}

// FuzzDecodeRule checks that the planner can compare each decoded rule: the rule has a
// family, a protocol, and prefixes of that family.
func FuzzDecodeRule(f *testing.F) {
	f.Add(flowSpec{flow: flowTCP4, local: "10.9.0.1/32", lport: 11211, lmask: 0xffff}.bytes(f))
	f.Add(flowSpec{flow: flowUDP6 | flowRSS | flowExt, remote: "fd00::/8", vlan: 100, vlanMask: 0xfff,
		context: 2}.bytes(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := decodeRule(b)
		if !ok {
			return
		}
		if r.Match.Family != 4 && r.Match.Family != 6 || r.Match.Protocol == "" {
			t.Errorf("%+v", r)
		}
		if r.Match.VLAN < 0 || r.Match.VLAN > 4095 || r.Queue < 0 || r.Queue > 0xffff {
			t.Errorf("%+v", r)
		}
	})
}
