// SPDX-License-Identifier: Apache-2.0

package device

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// TestFixtures checks that the states in testdata decode without loss, and that each of their
// objects is the same after encoding and decoding. The states are outputs of `niclane probe
// --json`: a veth pair of four queues on Debian's 6.1, 6.12 and 7.2 and on 6.18; a virtio_net
// device of four queues with RSS; the same kind of device in a bond with a VLAN on top.
func TestFixtures(t *testing.T) {
	names, err := filepath.Glob("testdata/*.json")
	if err != nil || len(names) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var st State
			dec := json.NewDecoder(bytes.NewReader(b))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&st); err != nil {
				t.Fatal(err)
			}
			again, err := json.Marshal(st)
			if err != nil {
				t.Fatal(err)
			}
			var want bytes.Buffer
			if err := json.Compact(&want, b); err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(want.String(), string(again)); diff != "" {
				t.Errorf("after decoding and encoding (-want +got):\n%s", diff)
			}
			for key, o := range st.Objects() {
				b, err := MarshalObject(o)
				if err != nil {
					t.Fatal(err)
				}
				back, err := UnmarshalObject(b)
				if err != nil || !Equal(o, back) || back.Key() != key {
					t.Errorf("%s became %v (%v)", key, back, err)
				}
			}
		})
	}
}
