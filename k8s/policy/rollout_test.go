// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

var now = time.Unix(1_790_000_000, 0)

// fleet is a cluster whose agents answer when the test says so.
type fleet []NodeState

func newFleet(n int) fleet {
	f := make(fleet, n)
	for i := range f {
		l := &v1alpha1.LaneNode{}
		l.CreationTimestamp = metav1.NewTime(now)
		f[i] = NodeState{Name: fmt.Sprintf("n%04d", i), Lanes: l}
	}
	return f
}

func (f fleet) at(name string) *NodeState {
	for i := range f {
		if f[i].Name == name {
			return &f[i]
		}
	}
	return nil
}

// give writes the changes, as the controller does.
func (f fleet) give(changes []Change) {
	for _, c := range changes {
		spec := c.Spec
		f.at(c.Node).Lanes.Spec = &spec
	}
}

// answer writes a node's status, as its agent does. reason is that of the condition Applied.
func (f fleet) answer(name, reason string) {
	l := f.at(name).Lanes
	status := metav1.ConditionFalse
	if reason == v1alpha1.ReasonAsThePolicySays {
		status = metav1.ConditionTrue
	}
	l.Status = v1alpha1.LaneNodeStatus{Policy: l.Spec.Policy, PolicyGeneration: l.Spec.PolicyGeneration,
		Renewed: metav1.NewTime(now), Conditions: []metav1.Condition{
			{Type: v1alpha1.Applied, Status: status, Reason: reason, Message: "because"},
			{Type: v1alpha1.Healthy, Status: metav1.ConditionTrue},
		}}
}

func generation(name string, g int64, r *v1alpha1.Rollout) []Candidate {
	p := named(name, 0, nil)
	p.Generation, p.Spec.Rollout = g, r
	p.Spec.Classes = []v1alpha1.Class{{Name: "redis", Queues: int(g)}}
	return []Candidate{NewCandidate(p, nil)}
}

func most(n int) *v1alpha1.Rollout {
	v := intstr.FromInt32(int32(n))
	return &v1alpha1.Rollout{MaxUnavailable: &v}
}

// TestRollout rolls a policy over 5,000 nodes: never more than the limit are busy, all have it
// in the end, and the status does not grow.
func TestRollout(t *testing.T) {
	f, all := newFleet(5000), generation("p", 1, nil)
	rounds := 0
	for ; ; rounds++ {
		changes, statuses := Roll(all, f, Claims{}, now)
		s := statuses[0]
		if len(changes) == 0 {
			if s.Applied != 5000 || s.Nodes != 5000 || s.Updated != 5000 || !ready(s) {
				t.Errorf("at the end: %+v", s)
			}
			break
		}
		if len(changes) > 1250 || ready(s) {
			t.Fatalf("%d nodes at one time, want at most a quarter; %+v", len(changes), s)
		}
		if text, _ := json.Marshal(s); len(text) > 4096 {
			t.Errorf("a status of %d bytes", len(text))
		}
		f.give(changes)
		// While they are busy, no others get it.
		if more, _ := Roll(all, f, Claims{}, now); len(changes) == 1250 && len(more) != 0 {
			t.Fatalf("%d more beside %d", len(more), len(changes))
		}
		for _, c := range changes {
			f.answer(c.Node, v1alpha1.ReasonAsThePolicySays)
		}
	}
	if rounds != 4 {
		t.Errorf("%d rounds, want 4", rounds)
	}
}

func ready(s v1alpha1.LanePolicyStatus) bool {
	return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.Ready)
}

// reason returns the reason and the message of a condition.
func reason(s v1alpha1.LanePolicyStatus, typ string) string {
	c := meta.FindStatusCondition(s.Conditions, typ)
	return c.Reason + ": " + c.Message
}

// TestRolloutStops: a node that refuses a change stops it; a new generation goes on. Nodes
// that wait for pods, and nodes without an agent, do not stop it.
func TestRolloutStops(t *testing.T) {
	f, all := newFleet(6), generation("p", 1, most(2))
	f[5].Lanes = nil
	f[4].Lanes.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	changes, _ := Roll(all, f, Claims{}, now)
	if got := names(changes); got != "n0004 n0000 n0001" {
		t.Fatalf("first: %s, want the silent node and two more", got)
	}
	f.give(changes)
	f.answer("n0000", v1alpha1.ReasonWaitsForPods)
	f.answer("n0001", v1alpha1.ReasonRefused)
	changes, statuses := Roll(all, f, Claims{}, now)
	if s := statuses[0]; len(changes) != 0 || s.Failed != 1 || s.Silent != 2 || s.Updated != 3 || s.Nodes != 6 ||
		!strings.HasPrefix(reason(s, v1alpha1.Ready), "NodesFailed: generation 1 is applied on 0 of 6 nodes. "+
			"Failed: n0001: because") {
		t.Errorf("refused: %v, %+v", names(changes), s)
	}
	all = generation("p", 2, most(2))
	changes, _ = Roll(all, f, Claims{}, now)
	if got := names(changes); got != "n0004 n0000 n0001" {
		t.Errorf("the next generation goes to %s", got)
	}
	f.give(changes)
	for _, n := range []string{"n0000", "n0001"} {
		f.answer(n, v1alpha1.ReasonAsThePolicySays)
	}
	f.at("n0000").Lanes.Status.Conditions[1].Status = metav1.ConditionFalse
	if changes, _ := Roll(all, f, Claims{}, now); len(changes) != 0 {
		t.Errorf("goes on to %s beside a node that does not hold its lanes", names(changes))
	}
	f.answer("n0000", v1alpha1.ReasonAsThePolicySays)
	l := f.at("n0000").Lanes
	l.Status.Conditions = append(l.Status.Conditions, metav1.Condition{Type: v1alpha1.Offered,
		Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonKubeletRefused, Message: "kubelet refuses it"})
	if changes, statuses := Roll(all, f, Claims{}, now); len(changes) != 0 || statuses[0].Failed != 1 ||
		statuses[0].Applied != 2 || !strings.Contains(reason(statuses[0], v1alpha1.Ready), "n0000: kubelet refuses it") {
		t.Errorf("goes on to %s beside a node whose kubelet refuses a class: %+v", names(changes), statuses[0])
	}
	all[0].Spec.Rollout.Paused = true
	f.answer("n0000", v1alpha1.ReasonAsThePolicySays)
	if changes, statuses := Roll(all, f, Claims{}, now); len(changes) != 0 ||
		!strings.HasPrefix(reason(statuses[0], v1alpha1.Ready), "Paused: generation 2 is applied on 2 of 6 nodes") {
		t.Errorf("paused: %s, %+v", names(changes), statuses)
	}
}

func names(changes []Change) string {
	var out []string
	for _, c := range changes {
		out = append(out, c.Node)
	}
	return strings.Join(out, " ")
}

// TestPoliciesApart: a policy that cannot be read changes no node of another policy, and takes
// no lanes from its own. Of two with the same priority the older one is followed, and the
// other one says so.
func TestPoliciesApart(t *testing.T) {
	f := newFleet(2)
	good, bad := named("good", 0, nil), named("bad", 9, nil)
	good.Generation = 1
	bad.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "rack", Operator: metav1.LabelSelectorOpIn}}}
	all := []Candidate{NewCandidate(bad, nil), NewCandidate(good, nil)}
	f[1].Lanes.Spec = &v1alpha1.LaneNodeSpec{Policy: "bad", PolicyGeneration: 1}
	changes, statuses := Roll(all, f, Claims{}, now)
	if len(changes) != 1 || changes[0].Node != "n0000" || changes[0].Spec.Policy != "good" {
		t.Errorf("changes %+v", changes)
	}
	if statuses[0].Nodes != 1 || statuses[1].Nodes != 1 {
		t.Errorf("%d nodes follow bad, %d good, want one each", statuses[0].Nodes, statuses[1].Nodes)
	}
	if got := reason(statuses[0], v1alpha1.Accepted); !strings.HasPrefix(got, "Invalid: spec.nodeSelector: ") {
		t.Error(got)
	}
	if got := reason(statuses[1], v1alpha1.Accepted); !strings.HasPrefix(got, "Accepted") {
		t.Error(got)
	}

	old, young := named("young-by-name", 3, nil), named("old-by-name", 3, nil)
	old.CreationTimestamp, young.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour)), metav1.NewTime(now)
	changes, statuses = Roll([]Candidate{NewCandidate(young, nil), NewCandidate(old, nil)}, newFleet(2), Claims{}, now)
	if len(changes) != 1 || changes[0].Spec.Policy != "young-by-name" {
		t.Errorf("changes %+v", changes)
	}
	if got := reason(statuses[0], v1alpha1.Accepted); !strings.HasPrefix(got,
		"Conflicted: policy young-by-name has the same priority, 3, and is older: it goes first on 2 nodes") {
		t.Error(got)
	}
	if got := reason(statuses[0], v1alpha1.Ready); got != "NoNodes: no node follows the policy" {
		t.Error(got)
	}
}

// TestNoPolicy: a node that no policy selects any more gets an empty spec once, and a node
// that never had a policy gets it too, so that its agent knows.
func TestNoPolicy(t *testing.T) {
	f := newFleet(3)
	f[0].Lanes.Spec = &v1alpha1.LaneNodeSpec{Policy: "gone", PolicyGeneration: 4}
	f[2].Lanes = nil
	changes, _ := Roll(nil, f, Claims{}, now)
	if got := names(changes); got != "n0000 n0001" || changes[0].Spec.Policy != "" {
		t.Errorf("changes %+v", changes)
	}
	f.give(changes)
	if changes, _ := Roll(nil, f, Claims{}, now); len(changes) != 0 {
		t.Errorf("again %+v", changes)
	}
}

// TestRemovalEnds: a node that an uninstallation has marked gets its policy again, as a node that
// has an older generation. Without a policy, it loses the mark.
func TestRemovalEnds(t *testing.T) {
	f := newFleet(2)
	for i := range f {
		f[i].Lanes.Spec = &v1alpha1.LaneNodeSpec{Policy: "p", PolicyGeneration: 3, Remove: true}
	}
	all := generation("p", 3, most(1))
	for _, want := range []string{"n0000", "n0001", ""} {
		changes, _ := Roll(all, f, Claims{}, now)
		if got := names(changes); got != want || len(changes) > 0 && changes[0].Spec.Remove {
			t.Fatalf("changes %+v, want %s", changes, want)
		}
		if f.give(changes); want != "" {
			f.answer(want, v1alpha1.ReasonAsThePolicySays)
		}
	}
	f[0].Lanes.Spec = &v1alpha1.LaneNodeSpec{Remove: true}
	if changes, _ := Roll(nil, f[:1], Claims{}, now); len(changes) != 1 || changes[0].Spec.Remove {
		t.Errorf("without a policy: %+v", changes)
	}
}
