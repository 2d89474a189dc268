// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

func object(t *testing.T, o runtime.Object) runtime.Object {
	t.Helper()
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: m}
}

func nodesLanes(name string, spec map[string]any) *unstructured.Unstructured {
	u := laneNode(name)
	u.Object["spec"] = spec
	return u
}

func TestWatches(t *testing.T) {
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	node.Name, node.Labels = "n1", map[string]string{"role": "edge"}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1"},
		{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::1"}}
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	pod.Namespace, pod.Name, pod.UID, pod.Spec.NodeName = "default", "p", "u1", "n1"
	node.Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.3.7"
	service := &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}}
	service.Namespace, service.Name = "default", "s"
	service.Spec.Ports = []corev1.ServicePort{{Port: 6379, NodePort: 30379}}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{
			laneNodes: "LaneNodeList", nodes: "NodeList", podsGVR: "PodList", services: "ServiceList",
			eventGVR: "EventList",
		}, object(t, node), object(t, pod), object(t, service),
		nodesLanes("n1", map[string]any{"policy": "good", "policyGeneration": int64(3),
			"classes": []any{map[string]any{"name": "redis", "queues": int64(2)}}}))
	changed := make(chan struct{}, 16)
	c := New(client, "n1", true, slog.New(slog.DiscardHandler), func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	for deadline := time.After(10 * time.Second); !c.Synced(); {
		select {
		case <-changed:
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatal("nothing was seen")
		}
	}
	labels, address, ok := c.Node()
	if !ok || labels["role"] != "edge" || address != "192.0.2.1" {
		t.Errorf("node: %v %s %v", labels, address, ok)
	}
	if got := fmt.Sprint(c.Addresses()); got != "[192.0.2.1 2001:db8::1]" {
		t.Errorf("addresses %s", got)
	}
	if got := c.Runtime(); got != "containerd://2.3.7" {
		t.Errorf("runtime %s", got)
	}
	if got := c.Services(); len(got) != 1 || got[0].Spec.Ports[0].NodePort != 30379 {
		t.Errorf("services %+v", got)
	}
	p, known, err := c.Policy()
	if err != nil || !known || p.Name != "good" || p.Generation != 3 || p.Spec.Classes[0].Queues != 2 {
		t.Errorf("policy %+v, %v, %v", p, known, err)
	}
	if p, err := c.Pod(t.Context(), "default", "p", "u1"); err != nil || p.Name != "p" {
		t.Errorf("pod: %v, %v", p, err)
	}
	if _, err := c.Pod(t.Context(), "default", "p", "u2"); err == nil || !strings.Contains(err.Error(), "UID") {
		t.Errorf("another UID: %v", err)
	}
	for range 3 {
		c.Event(t.Context(), "Pod", "default", "p", "u1", "LaneFailed", "no room")
	}
	// If Services are not wanted, the agent has no right to read them, so there must be no watch.
	without := New(client, "n1", false, slog.New(slog.DiscardHandler), func() {})
	if got := without.Services(); got != nil || len(without.informers()) != 3 {
		t.Errorf("services that nobody asked for: %v, %d watches", got, len(without.informers()))
	}
	created := 0
	for _, a := range client.Actions() {
		if a.GetVerb() == "create" && a.GetResource() == eventGVR {
			created++
		}
	}
	if created != 1 {
		t.Errorf("the same event was told %d times", created)
	}
}

// TestEventAgain checks that an event that the API server did not take is sent when it happens again.
func TestEventAgain(t *testing.T) {
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{laneNodes: "LaneNodeList", nodes: "NodeList", podsGVR: "PodList",
			eventGVR: "EventList"})
	away, sent := true, 0
	client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		if away {
			return true, nil, errors.New("connection refused")
		}
		sent++
		return true, &unstructured.Unstructured{Object: map[string]any{}}, nil
	})
	c := New(client, "n1", false, slog.New(slog.DiscardHandler), func() {})
	for range 3 {
		c.Event(t.Context(), "Pod", "default", "p", "u1", "LaneFailed", "no room")
		away = false
	}
	if sent != 1 {
		t.Errorf("sent %d times, want once after the API server was away", sent)
	}
}

// TestReadSpec checks what the agent takes from a LaneNode. A spec of another release keeps its
// policy's name, for the status.
func TestReadSpec(t *testing.T) {
	p, err := readSpec(map[string]any{"policy": "odd", "policyGeneration": int64(2), "clases": []any{}})
	if err == nil || !strings.Contains(err.Error(), `policy odd: `) || !strings.Contains(err.Error(), `"clases"`) ||
		p.Name != "odd" || p.Generation != 2 {
		t.Errorf("an unknown key: %+v, %v", p, err)
	}
	if p, err := readSpec(map[string]any{"policy": ""}); p != nil || err != nil {
		t.Errorf("no policy: %+v, %v", p, err)
	}
}

// TestMakeLaneNode checks that the agent makes the LaneNode once, and that the node owns it.
func TestMakeLaneNode(t *testing.T) {
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	node.Name, node.UID = "n1", "u-n1"
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{laneNodes: "LaneNodeList", nodes: "NodeList", podsGVR: "PodList"},
		object(t, node))
	c := New(client, "n1", false, slog.New(slog.DiscardHandler), func() {})
	if err := c.MakeLaneNode(t.Context()); err == nil {
		t.Error("made for a node that is not known")
	}
	if err := c.nodes.GetStore().Add(node); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.MakeLaneNode(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	u, err := client.Resource(laneNodes).Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if o := u.GetOwnerReferences(); len(o) != 1 || o[0].Kind != "Node" || o[0].UID != "u-n1" || u.Object["spec"] != nil {
		t.Errorf("%+v", u)
	}
}

func TestCondition(t *testing.T) {
	was := Condition(nil, "Applied", true, "r", "m")
	was.LastTransitionTime = metav1.NewTime(time.Unix(1, 0))
	old := []metav1.Condition{was}
	if c := Condition(old, "Applied", true, "r2", "m2"); !c.LastTransitionTime.Equal(&was.LastTransitionTime) ||
		c.Message != "m2" {
		t.Errorf("%+v", c)
	}
	if c := Condition(old, "Applied", false, "r", "m"); c.LastTransitionTime.Equal(&was.LastTransitionTime) {
		t.Errorf("%+v", c)
	}
}
