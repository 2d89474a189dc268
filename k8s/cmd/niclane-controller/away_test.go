// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// TestRoundFails checks that a node that cannot be written keeps no other node waiting, and that a
// round ends early when the API server is away.
func TestRoundFails(t *testing.T) {
	const n = 60 // the fake watch has room for 100 changes
	labels := map[string]map[string]string{}
	objects := []runtime.Object{object("LanePolicy", "p", map[string]any{"spec": map[string]any{
		"rollout": map[string]any{"maxUnavailable": "100%"}}})}
	for i := range n {
		name := fmt.Sprintf("n%03d", i)
		labels[name] = nil
		objects = append(objects, object("LaneNode", name, nil))
	}
	w := newWorld(t, labels, objects...)
	asked, away := 0, false
	w.client.PrependReactor("patch", v1alpha1.NodeResource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		asked++
		if away || a.(clienttesting.PatchAction).GetName() == "n000" {
			return true, nil, errors.New("refused")
		}
		return false, nil, nil
	})
	if err := w.round(t.Context(), time.Now()); err == nil || asked != n {
		t.Errorf("%v; %d nodes were asked, want all %d", err, asked, n)
	}
	if w.spec(t, "n001") == "null" || w.status["p"].Nodes != n {
		t.Errorf("the other nodes wait for the one that is refused; status %+v", w.status["p"])
	}
	w = newWorld(t, labels, objects...)
	asked = 0
	w.client.PrependReactor("patch", v1alpha1.NodeResource, func(clienttesting.Action) (bool, runtime.Object, error) {
		asked++
		return true, nil, errors.New("no route to host")
	})
	if err := w.round(t.Context(), time.Now()); err == nil || asked > 2*givers {
		t.Errorf("%v; the API server is away, and %d nodes were asked", err, asked)
	}
}

// TestToldOnce checks that a round before the informer has seen the last write of a status writes it
// and its events only once.
func TestToldOnce(t *testing.T) {
	w := newWorld(t, nil, object("LanePolicy", "p", map[string]any{"spec": map[string]any{}}))
	for range 3 {
		delete(w.status, "p")
		if err := w.round(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(w.events.Events); got != 2 || len(w.status) != 0 {
		t.Errorf("%d events, want one for each condition; wrote again %+v", got, w.status)
	}
}

// TestSame checks which updates need no round: those in which a node or an agent only says that it
// is there.
func TestSame(t *testing.T) {
	lanes := func(renewed int64, policy string) *v1alpha1.LaneNode {
		n := &v1alpha1.LaneNode{}
		n.ResourceVersion = fmt.Sprint(renewed)
		n.Status.Renewed, n.Status.Policy = metav1.Unix(renewed, 0), policy
		return n
	}
	node := func(version, rack string) *metav1.PartialObjectMetadata {
		m := &metav1.PartialObjectMetadata{}
		m.ResourceVersion, m.Labels = version, map[string]string{"rack": rack}
		return m
	}
	silence := int64(v1alpha1.Silence / time.Second)
	for _, test := range []struct {
		name          string
		before, after any
		want          bool
	}{
		{"renewed", lanes(1, "p"), lanes(301, "p"), true},
		{"renewed after a silence", lanes(1, "p"), lanes(2+silence, "p"), false},
		{"applied", lanes(1, "p"), lanes(2, "q"), false},
		{"node's heartbeat", node("1", "a"), node("2", "a"), true},
		{"label", node("1", "a"), node("2", "b"), false},
		{"policy", object("LanePolicy", "p", nil), object("LanePolicy", "p", nil), false},
	} {
		if got := same(test.before, test.after); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
	}
}
