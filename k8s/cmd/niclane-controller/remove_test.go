// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// A departure is a cluster that niclane leaves.
type departure struct {
	*world
	*remover
	typed *fake.Clientset
	log   bytes.Buffer
}

func newDeparture(t *testing.T, objects ...runtime.Object) *departure {
	t.Helper()
	d := &departure{world: newWorld(t, nil, objects...)}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "c"}}
	pod := func(name, app string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": app}}}
		p.Spec.NodeName = "n9"
		return p
	}
	d.typed = fake.NewSimpleClientset(deployment, pod("c-1", "c"), pod("agent", "other"))
	// The pod ends when the Deployment is scaled, as by its controller.
	d.typed.PrependReactor("patch", "deployments", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchAction)
		if p.GetSubresource() != "scale" || string(p.GetPatch()) != `{"spec":{"replicas":0}}` {
			t.Errorf("patch of %q: %s", p.GetSubresource(), p.GetPatch())
		}
		return true, deployment, d.typed.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ns", "c-1")
	})
	d.remover = &remover{objects: d.client, typed: d.typed, namespace: "ns", deployment: "c", claims: true,
		patience: 20 * time.Second, log: slog.New(slog.NewTextHandler(&d.log, nil))}
	return d
}

// answer writes the condition Removed of a node, as its agent does when the node is marked.
func (d *departure) answer(t *testing.T, node string, generation int64, status metav1.ConditionStatus, message string) {
	t.Helper()
	d.until(t, node+" is marked", func() bool {
		u, err := d.client.Resource(laneNodes).Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		marked, _, _ := unstructured.NestedBool(u.Object, "spec", "remove")
		return marked
	})
	u, err := d.client.Resource(laneNodes).Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u.Object["status"] = map[string]any{"renewed": "2026-11-27T00:00:00Z", "conditions": []any{map[string]any{
		"type": v1alpha1.Removed, "status": string(status), "reason": "R", "message": message,
		"observedGeneration": generation, "lastTransitionTime": "2026-11-27T00:00:00Z"}}}
	if _, err := d.client.Resource(laneNodes).Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestRemoval removes niclane from a cluster: the controller ends first, then every LaneNode is
// marked, also one that appears meanwhile, and policies stay and say so.
func TestRemoval(t *testing.T) {
	d := newDeparture(t, object("LanePolicy", "p", map[string]any{"spec": map[string]any{"classes": []any{}}}),
		object("LaneNode", "n1", map[string]any{"spec": map[string]any{"policy": "p", "uplink": map[string]any{"dev": "x"}}}),
		object("LaneNode", "n2", nil))
	done := make(chan error, 1)
	go func() { done <- d.remover.run(t.Context()) }()
	d.answer(t, "n1", 1, metav1.ConditionTrue, "an older removal")
	d.answer(t, "n2", 2, metav1.ConditionFalse, "not yet")
	if _, err := d.client.Resource(laneNodes).Create(t.Context(), object("LaneNode", "n3", nil),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	d.answer(t, "n3", 2, metav1.ConditionTrue, "clean")
	d.answer(t, "n2", 2, metav1.ConditionTrue, "clean")
	select {
	case err := <-done:
		t.Fatalf("ended before n1 has answered: %v", err)
	default:
	}
	d.answer(t, "n1", 2, metav1.ConditionTrue, "clean")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got, want := d.spec(t, "n1"), `{"policy":"p","remove":true,"uplink":{"dev":"x"}}`; got != want {
		t.Errorf("n1 has %s, want %s", got, want)
	}
	if got, want := d.spec(t, "n2"), `{"policy":"","remove":true}`; got != want {
		t.Errorf("n2 has %s, want %s", got, want)
	}
	if c := d.status["p"].Conditions; len(c) != 1 || c[0].Reason != v1alpha1.ReasonUninstalled ||
		d.status["p"].ObservedGeneration != 2 {
		t.Errorf("the policy says %+v", d.status["p"])
	}
	if _, err := d.client.Resource(policies).Get(t.Context(), "p", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if !slices.ContainsFunc(d.client.Actions(), func(a clienttesting.Action) bool {
		c, ok := a.(clienttesting.DeleteCollectionAction) // the fake client does not do it
		return ok && c.GetResource() == deviceClasses &&
			c.GetListRestrictions().Labels.String() == ownLabel+"="+ownValue
	}) {
		t.Error("the DeviceClasses are left")
	}
}

// TestUnclean checks which nodes count as clean: those whose agents say so of this mark, not of an
// older one.
func TestUnclean(t *testing.T) {
	for _, c := range []struct {
		marked   bool
		observed int64
		status   metav1.ConditionStatus
		want     string
	}{
		{true, 2, metav1.ConditionTrue, ""},
		{true, 1, metav1.ConditionTrue, "its agent has never answered"},
		{false, 2, metav1.ConditionTrue, "its agent has never answered"},
		{true, 2, metav1.ConditionFalse, "because"},
	} {
		n := &v1alpha1.LaneNode{Spec: &v1alpha1.LaneNodeSpec{Remove: c.marked}}
		n.Generation = 2
		n.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Removed, Status: c.status, Message: "because",
			ObservedGeneration: c.observed}}
		if got := unclean(n); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestRemovalUnfinished checks that the error names the nodes that have not answered, and those that
// have failed with the reason.
func TestRemovalUnfinished(t *testing.T) {
	d := newDeparture(t, object("LaneNode", "n1", nil), object("LaneNode", "n2", nil), object("LaneNode", "n3", nil))
	d.patience = 2 * time.Second
	done := make(chan error, 1)
	go func() { done <- d.remover.run(t.Context()) }()
	d.answer(t, "n2", 2, metav1.ConditionFalse, "lanes: qdisc/eth0 was changed")
	d.answer(t, "n3", 2, metav1.ConditionTrue, "clean")
	err := <-done
	for _, want := range []string{"has not left 2 of 3 nodes", "n1: its agent has never answered",
		"n2: lanes: qdisc/eth0 was changed", "helm uninstall --no-hooks"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "n3") {
		t.Errorf("names a clean node: %v", err)
	}
}

// TestControllerStays checks that no node is marked while a controller still runs: it would take the
// mark away.
func TestControllerStays(t *testing.T) {
	d := newDeparture(t, object("LaneNode", "n1", map[string]any{"spec": map[string]any{"policy": "p"}}))
	d.typed.PrependReactor("patch", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &appsv1.Deployment{}, nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := d.remover.run(ctx); err == nil || !strings.Contains(err.Error(), "does not end: c-1 on n9") {
		t.Errorf("got %v", err)
	}
	if got := d.spec(t, "n1"); strings.Contains(got, "remove") {
		t.Errorf("n1 has %s", got)
	}
}
