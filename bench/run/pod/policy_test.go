// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/bench/run/pod"
)

// policyIs returns a policy of generation 2 that one node follows.
func policyIs(observed, ready string) string {
	return `{"metadata": {"generation": 2}, "status": {"observedGeneration": ` + observed + `, "nodeCount": 1,
		"conditions": [{"type": "Accepted", "status": "True"}, {"type": "Ready", ` + ready + `}]}}`
}

const applied = `"status": "True"`

func follow(t *testing.T) (*pod.Policy, error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, errors.New("it took too long"))
	defer cancel()
	return pod.Follow(ctx, pod.Kubectl{},
		map[string]any{"kind": "LanePolicy", "metadata": map[string]any{"name": "cache"}}, "r1")
}

func TestQuantity(t *testing.T) {
	for rate, want := range map[int64]string{1e3: "1k", 1_234_567: "1234.567k", 5e8: "500M", 1_500_000_000: "1500M",
		1e10: "10G", 1e12: "1T", 1e16: "10000T"} {
		if got := pod.Quantity(rate); got != want {
			t.Errorf("%d: got %s, want %s", rate, got, want)
		}
	}
}

// TestFollow creates a policy and removes it.
func TestFollow(t *testing.T) {
	f := newFake(t, map[string]string{"policy": policyIs("2", applied)})
	p, err := follow(t)
	if err != nil {
		t.Fatal(err)
	}
	if made := f.read("pod"); !strings.Contains(made, `"labels":{"niclane.dev/bench":"r1"},"name":"cache-`) {
		t.Error(made)
	}
	if err := p.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	emptied := strings.Index(f.read("calls"), ` --type=merge --patch={"spec":{"classes":[]}}`)
	if deleted := strings.Index(f.read("calls"), "delete lanepolicy cache-"); emptied < 0 || deleted < emptied {
		t.Errorf("want its lanes taken away, then the policy:\n%s", f.read("calls"))
	}
}

// TestNotFollowed: the error says why nodes have not applied the policy.
func TestNotFollowed(t *testing.T) {
	for name, c := range map[string]struct{ status, want string }{
		"no status": {`{"metadata": {"generation": 1}}`, "it took too long: niclane-controller has not looked at it yet"},
		"not yet":   {policyIs("1", applied), "it took too long: niclane-controller has not looked at it yet"},
		"cannot": {policyIs("2", `"status": "False", "reason": "NodesFailed", "message": "n1: no queues left"`),
			"Ready is False: NodesFailed: n1: no queues left"},
		"not said":     {policyIs("2", `"status": "Unknown"`), "Ready is Unknown"},
		"not readable": {"nothing", "it took too long: invalid character"},
	} {
		newFake(t, map[string]string{"policy": c.status})
		p, err := follow(t)
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), "lanepolicy cache-") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if p == nil {
			t.Errorf("%s: nothing to remove", name)
		}
	}
}

// TestPolicyRemoved: Remove deletes the policy even if a node keeps its lanes. The error then says
// why the node keeps them.
func TestPolicyRemoved(t *testing.T) {
	f := newFake(t, map[string]string{
		"policy":         policyIs("2", applied),
		"patched-policy": policyIs("2", `"status": "False", "reason": "Progressing", "message": "pod x is in it"`),
	})
	p, err := follow(t)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := p.Remove(ctx); err == nil || !strings.Contains(err.Error(), "pod x is in it") {
		t.Error(err)
	}
	if !strings.Contains(f.read("calls"), "delete lanepolicy cache-") {
		t.Errorf("it is still there:\n%s", f.read("calls"))
	}
	newFake(t, map[string]string{"policy": policyIs("2", applied),
		"fail-patch": "Error from server (NotFound): lanepolicies.niclane.dev not found\n"})
	if p, err = follow(t); err != nil {
		t.Fatal(err)
	}
	if err := p.Remove(t.Context()); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
}
