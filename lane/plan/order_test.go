// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"testing"

	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
)

// TestRuleBeforeItsContext: the plan removes a rule before its context, even if the rule is older
// than the context because it led to another one first.
func TestRuleBeforeItsContext(t *testing.T) {
	rule := func(port uint16, context int) device.Rule {
		return device.Rule{Dev: "eth0", Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: port},
			Context: context}
	}
	table := func(context int) device.RSSTable {
		return device.RSSTable{Dev: "eth0", Context: context, Queues: []int{context}}
	}
	st := &device.State{Devices: []device.Device{{
		Name: "eth0", RSS: []device.RSSTable{table(1), table(2)},
		Rules: []device.Rule{rule(80, 2), rule(81, 2), rule(90, 1)},
	}}}
	var owned plan.Owned
	for _, o := range []device.Object{table(1), rule(80, 2), rule(81, 2), rule(90, 1), table(2)} {
		owned.Records = append(owned.Records, plan.Record{Last: o})
	}
	var got []string
	for _, s := range plan.Undo(st, owned) {
		got = append(got, s.Key())
	}
	want := []string{rule(81, 2).Key(), rule(80, 2).Key(), table(2).Key(), rule(90, 1).Key(), table(1).Key()}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestContextAfterMovedRule: a new lane takes the packets of two old lanes. The plan removes the
// old contexts after it has moved their rules. Channels that were added stay until rollback.
func TestContextAfterMovedRule(t *testing.T) {
	parse := func(text string) *intent.Intent {
		in, err := config.Parse("lanes.yaml", []byte("version: 1\nglobals:\n  dev: sim0\n  queues: 2\nlanes:\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	st := fixture(t, "simcard-contexts")
	before, err := plan.Make(parse("  a:\n    queues: 3\n    ports: 6379\n  b:\n    queues: 2\n    ports: 80\n"), st,
		plan.Owned{})
	if err != nil {
		t.Fatal(err)
	}
	var owned plan.Owned
	var changes []device.Change
	for _, s := range before.Steps {
		owned.Records = append(owned.Records, plan.Record{Original: s.Old, Last: s.New, Part: s.Part, Cause: s.Cause})
		changes = append(changes, device.Change{Old: s.Old, New: s.New})
	}
	p, err := plan.Make(parse("  all:\n    queues: 2\n    ports: [80, 6379]\n"), st.After(changes), owned)
	if err != nil {
		t.Fatal(err)
	}
	var rules, contexts, channels []int
	for i, s := range p.Steps {
		switch s.Object().(type) {
		case device.Rule:
			rules = append(rules, i)
		case device.RSSTable:
			if s.New == nil {
				contexts = append(contexts, i)
			}
		case device.Channels:
			channels = append(channels, i)
		}
	}
	if len(rules) != 4 || len(contexts) != 2 {
		t.Fatalf("%d rules change and %d contexts go, want 4 and 2", len(rules), len(contexts))
	}
	if slices.Max(rules) > slices.Min(contexts) {
		t.Errorf("rules in steps %v, want them before the contexts in %v", rules, contexts)
	}
	if len(channels) > 0 {
		t.Errorf("channels change in steps %v, want them to stay", channels)
	}
}
