// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/fakekernel"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// A rulesCard is a card with RSS contexts and rules. Its state is a recorded one, and a fake kernel
// makes the changes.
type rulesCard struct {
	t      *testing.T
	kernel *fakekernel.Kernel
	state  *device.State
	owned  map[string]plan.Record
}

func newRulesCard(t *testing.T) *rulesCard {
	t.Helper()
	text, err := os.ReadFile("../../lane/plan/testdata/emulated.json")
	if err != nil {
		t.Fatal(err)
	}
	c := &rulesCard{t: t, state: new(device.State), owned: map[string]plan.Record{}}
	if err := json.Unmarshal(text, c.state); err != nil {
		t.Fatal(err)
	}
	c.kernel = fakekernel.New(c.state.Clone())
	return c
}

// apply makes the lanes of a policy with these members, and returns the plan and its list of steps.
func (c *rulesCard) apply(spec *v1alpha1.LanePolicySpec, members []policy.Member) (*plan.Plan, []plan.Step) {
	c.t.Helper()
	n := policy.Node{Device: "lane0"}
	for i := range members {
		n.Members = append(n.Members, &members[i])
	}
	f, err := policy.Make("k.yaml", spec, n)
	if err != nil {
		c.t.Fatal(err)
	}
	owned := plan.Owned{}
	for _, r := range c.owned {
		owned.Records = append(owned.Records, r)
	}
	p, err := plan.Make(f.Intent, c.state, owned)
	if err != nil {
		c.t.Fatal(err)
	}
	var changes []device.Change
	for _, s := range p.Steps {
		if err := c.kernel.Write(s.Old, s.New); err != nil {
			c.t.Fatalf("%s: %v", s.Key(), err)
		}
		changes = append(changes, device.Change{Old: s.Old, New: s.New})
		r, known := c.owned[s.Key()]
		if !known {
			r.Original = s.Old
		}
		r.Last, r.Part, r.Cause = s.New, s.Part, s.Cause
		c.owned[s.Key()] = r
	}
	c.state = c.state.After(changes)
	return p, p.Steps
}

// TestReceiveRules checks the rules of a pod: packets for its address and port, and for its
// frontend, go to its lane's queues. If a pod comes or goes, only its own rules change, and its own
// entries in the map of the classifier.
func TestReceiveRules(t *testing.T) {
	c := newRulesCard(t)
	spec := &v1alpha1.LanePolicySpec{Uplink: v1alpha1.Uplink{LinkRate: "1G"}, Classes: []v1alpha1.Class{
		{Name: "redis", Queues: 1, Capacity: 2, Tuning: v1alpha1.Tuning{Rank: 1, Poller: "Interrupt", CPUs: "1"}},
	}}
	p, _ := c.apply(spec, nil)
	contexts := map[string]int{}
	for _, l := range p.Lanes {
		contexts[l.Name] = l.Context
	}
	if contexts["redis-1"] == 0 || contexts["redis-1"] == contexts["redis-0"] {
		t.Fatalf("lanes without RSS contexts of their own: %+v", p.Lanes)
	}
	redis := pod(nil, hostPort(with("a", "6379/TCP"), 0, 30379, ""))
	members, err := Members(redis, Where{Addrs: both, Node: node}, []Grant{grant("a", "redis-1")})
	if err != nil {
		t.Fatal(err)
	}
	_, steps := c.apply(spec, members)
	var got []string
	for _, s := range steps {
		switch o := s.New.(type) {
		case device.Rule:
			got = append(got, fmt.Sprintf("%s %s port %d to context %d", o.Match.Protocol, o.Match.Local,
				o.Match.LocalPort, o.Context))
		case device.FilterEntry:
		default:
			t.Errorf("a pod's start wrote %s", s.Key())
		}
	}
	slices.Sort(got)
	want := strings.Split(strings.ReplaceAll(`tcp 10.0.0.5/32 port 6379 to context N
tcp 192.0.2.1/32 port 30379 to context N
tcp 2001:db8::1/128 port 30379 to context N
tcp fd00::5/128 port 6379 to context N`, "N", fmt.Sprint(contexts["redis-1"])), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got)\n%s", diff)
	}
	if _, again := c.apply(spec, members); len(again) != 0 {
		t.Errorf("applied again it makes %d steps, the first %s", len(again), again[0].Key())
	}
	_, gone := c.apply(spec, nil)
	if len(gone) != len(steps) {
		t.Errorf("the pod's start took %d steps, its end %d", len(steps), len(gone))
	}
	for key, o := range c.kernel.Objects() {
		if r, ok := o.(device.Rule); ok && r.Context == contexts["redis-1"] {
			t.Errorf("left after the pod's end: %s", key)
		}
	}
}
