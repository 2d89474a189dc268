// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

func TestAfter(t *testing.T) {
	rule := func(port uint16, queue int) device.Rule {
		return device.Rule{Dev: "eth1", Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: port}, Queue: queue}
	}
	class := func(rate uint64) device.Class { return device.Class{Dev: "eth1", ID: "1:10", Rate: rate} }
	before := &device.State{Devices: []device.Device{{
		Name: "eth1", Classes: []device.Class{class(1)},
		Rules: []device.Rule{rule(1, 0), rule(2, 0), rule(3, 9), rule(4, 9), rule(5, 9)},
	}}}
	// Rule 1 is another program's. Rule 2 was niclane's and stays. The steps remove rule 3, give
	// rule 4 back, change rule 5 and add rule 6.
	steps := []plan.Step{
		{Old: rule(3, 9)},
		{Old: rule(4, 9), New: rule(4, 0)},
		{Old: rule(5, 9), New: rule(5, 8)},
		{New: rule(6, 9)},
		{Old: class(1), New: class(2)},
	}
	owned := []journal.Record{{Record: plan.Record{Last: rule(2, 0)}}, {Record: plan.Record{Last: rule(5, 8)}},
		{Record: plan.Record{Last: rule(6, 9)}}, {Record: plan.Record{Original: class(1), Last: class(2)}}}
	got := after(before, steps, owned)
	want := []device.Device{{
		Name: "eth1", Classes: []device.Class{class(2)}, Features: map[string]device.Setting{},
		Rules: []device.Rule{rule(1, 0), rule(4, 0)},
	}}
	if diff := cmp.Diff(want, got.Devices); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(before.Devices[0].Rules) != 5 {
		t.Errorf("the state before has %d rules, had 5", len(before.Devices[0].Rules))
	}
}
