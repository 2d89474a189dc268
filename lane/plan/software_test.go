// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// TestSpareQueues: native XDP on virtio_net with four processors takes four spare queues, if the
// device has that many. The plan must then say what to do before the card is removed.
func TestSpareQueues(t *testing.T) {
	in, err := config.Parse("lanes.yaml", []byte("version: 1\nglobals:\n  dev: eth0\nlanes:\n  web:\n    queues: "+
		"1\n    cpus: 1\n    ports: [80]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for most, named := range map[int]bool{4: false, 7: false, 8: true} {
		st := fixture(t, "virtio-6.12")
		st.Capabilities["cpumap"] = device.Finding{Answer: device.Yes}
		st.Devices[0].MaxChannels.Combined = most
		p, err := plan.Make(in, st, plan.Owned{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(p.Steps, func(s plan.Step) bool {
			x, ok := s.New.(device.XDP)
			return ok &&
				x.Mode == "native"
		}) {
			t.Fatalf("no native XDP: %v", p.Notes)
		}
		said := slices.ContainsFunc(p.Notes, func(n string) bool {
			return strings.Contains(n,
				"Linux never finishes its removal")
		})
		if said != named {
			t.Errorf("4 of %d queues in use: %q", most, p.Notes)
		}
	}
}
