// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

func object(kind, name string, more map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "niclane.dev/v1alpha1", "kind": kind,
		"metadata": map[string]any{"name": name, "generation": int64(2),
			"creationTimestamp": time.Now().UTC().Format(time.RFC3339)},
	}}
	for k, v := range more {
		u.Object[k] = v
	}
	return u
}

// A world is an API server with nodes, and the statuses of policies that were written.
type world struct {
	*controller
	client *dynamicfake.FakeDynamicClient
	events *record.FakeRecorder
	status map[string]v1alpha1.LanePolicyStatus
}

// A release is the version of an API server.
type release string

func (r release) ServerVersion() (*apiversion.Info, error) {
	return &apiversion.Info{GitVersion: string(r)}, nil
}

func newWorld(t *testing.T, labels map[string]map[string]string, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{events: record.NewFakeRecorder(100), status: map[string]v1alpha1.LanePolicyStatus{}}
	w.client = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{policies: "LanePolicyList", laneNodes: "LaneNodeList",
			deviceClasses: "DeviceClassList"}, objects...)
	// The fake client does not support server-side apply of a status.
	w.client.PrependReactor("patch", v1alpha1.Resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchAction)
		var got v1alpha1.LanePolicy
		if err := json.Unmarshal(p.GetPatch(), &got); err != nil || p.GetSubresource() != "status" {
			return true, nil, fmt.Errorf("patch of %q: %w", p.GetSubresource(), err)
		}
		w.status[p.GetName()] = got.Status
		return true, object("LanePolicy", p.GetName(), nil), nil
	})
	s := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(s); err != nil {
		t.Fatal(err)
	}
	var list []runtime.Object
	for name, l := range labels {
		n := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
		n.Name, n.Labels = name, l
		list = append(list, n)
	}
	w.controller = newController(w.client, metadatafake.NewSimpleMetadataClient(s, list...), release("v1.36.3"), true,
		w.events, slog.New(slog.DiscardHandler))
	for _, i := range w.informers() {
		go i.RunWithContext(t.Context())
	}
	w.until(t, "the first lists", func() bool {
		for _, i := range w.informers() {
			if !i.HasSynced() {
				return false
			}
		}
		return true
	})
	return w
}

func (w *world) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never:", what)
		}
	}
}

func (w *world) spec(t *testing.T, node string) string {
	t.Helper()
	u, err := w.client.Resource(laneNodes).Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(u.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRound checks what one round writes: the spec of the nodes that have an agent, and the
// status and events of each policy. A policy that cannot be read changes nothing.
func TestRound(t *testing.T) {
	edge := map[string]string{"role": "edge"}
	w := newWorld(t, map[string]map[string]string{"n1": edge, "n2": edge, "n3": nil},
		object("LanePolicy", "edge", map[string]any{"spec": map[string]any{
			"nodeSelector": map[string]any{"matchLabels": map[string]any{"role": "edge"}},
			"uplink":       map[string]any{"dev": "eth0"},
			"classes":      []any{map[string]any{"name": "redis", "queues": int64(1)}}}}),
		object("LanePolicy", "odd", map[string]any{"spec": map[string]any{"priority": int64(9), "clases": []any{},
			"nodeSelector": map[string]any{"matchLabels": map[string]any{"role": "odd"}}}}),
		object("LaneNode", "n1", nil),
		object("LaneNode", "n3", map[string]any{"spec": map[string]any{"policy": "gone", "uplink": map[string]any{"dev": "x"}}}))
	if err := w.round(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	const want = `{"classes":[{"name":"redis","queues":1}],"policy":"edge","policyGeneration":2,"uplink":{"dev":"eth0"}}`
	if got := w.spec(t, "n1"); got != want {
		t.Errorf("n1 has %s, want %s", got, want)
	}
	if got := w.spec(t, "n3"); got != `{"policy":"","uplink":{}}` {
		t.Errorf("n3 has %s, want no policy", got)
	}
	s := w.status["edge"]
	if s.Nodes != 2 || s.Silent != 1 || s.ObservedGeneration != 2 ||
		!meta.IsStatusConditionTrue(s.Conditions, v1alpha1.Accepted) ||
		meta.FindStatusCondition(s.Conditions, v1alpha1.Ready).Reason != v1alpha1.ReasonProgressing {
		t.Errorf("edge: %+v", s)
	}
	odd := meta.FindStatusCondition(w.status["odd"].Conditions, v1alpha1.Accepted)
	if odd.Reason != v1alpha1.ReasonInvalid || !strings.Contains(odd.Message, `unknown field "clases"`) {
		t.Errorf("odd: %+v", odd)
	}
	var said []string
	for len(w.events.Events) > 0 {
		said = append(said, <-w.events.Events)
	}
	if all := strings.Join(said, "\n"); !strings.Contains(all, "Normal Accepted ") ||
		!strings.Contains(all, "Normal Progressing ") || !strings.Contains(all, "Warning Invalid ") {
		t.Errorf("events:\n%s", all)
	}
}

// TestRoundAgain checks that a round that changes nothing writes nothing, and that a condition
// keeps its time while its status stays.
func TestRoundAgain(t *testing.T) {
	then := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	status := v1alpha1.LanePolicyStatus{ObservedGeneration: 2}
	for typ, reason := range map[string]string{v1alpha1.Accepted: v1alpha1.ReasonAccepted,
		v1alpha1.Ready: v1alpha1.ReasonNoNodes} {
		c := metav1.Condition{Type: typ, Status: metav1.ConditionFalse, Reason: reason, ObservedGeneration: 2,
			LastTransitionTime: metav1.NewTime(then), Message: "no node follows the policy"}
		if typ == v1alpha1.Accepted {
			c.Status, c.Message = metav1.ConditionTrue, "the policy can be read"
			status.Conditions = append([]metav1.Condition{c}, status.Conditions...)
			continue
		}
		status.Conditions = append(status.Conditions, c)
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		t.Fatal(err)
	}
	spec := map[string]any{"classes": []any{}}
	w := newWorld(t, nil, object("LanePolicy", "p", map[string]any{"spec": spec, "status": m}))
	if err := w.round(t.Context(), time.Now()); err != nil || len(w.status) != 0 || len(w.events.Events) != 0 {
		t.Fatalf("%v; wrote %+v", err, w.status)
	}
	m["observedGeneration"] = int64(1)
	w = newWorld(t, nil, object("LanePolicy", "p", map[string]any{"spec": spec, "status": m}))
	if err := w.round(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	c := meta.FindStatusCondition(w.status["p"].Conditions, v1alpha1.Ready)
	if c == nil || !c.LastTransitionTime.Time.Equal(then) || len(w.events.Events) != 0 {
		t.Errorf("%+v; %d events", c, len(w.events.Events))
	}
}

// TestDeviceClasses checks that each class that is offered as claims has a DeviceClass, that those of
// no class are deleted, and that others' are left alone.
func TestDeviceClasses(t *testing.T) {
	other := object("DeviceClass", "foreign.niclane.dev", nil)
	old := object("DeviceClass", "old.niclane.dev", map[string]any{"metadata": map[string]any{
		"name": "old.niclane.dev", "labels": map[string]any{ownLabel: ownValue}}})
	for _, u := range []*unstructured.Unstructured{other, old} {
		u.SetAPIVersion("resource.k8s.io/v1")
	}
	p := object("LanePolicy", "p", map[string]any{"spec": map[string]any{"classes": []any{
		map[string]any{"name": "redis", "queues": int64(1), "offeredAs": "Claim"},
		map[string]any{"name": "web", "queues": int64(1), "offeredAs": "Resource"}}}})
	w := newWorld(t, nil, other, old, p)
	list := func() string {
		all, err := w.client.Resource(deviceClasses).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, u := range all.Items {
			resource, _, _ := unstructured.NestedString(u.Object, "spec", "extendedResourceName")
			out = append(out, strings.TrimSpace(u.GetName()+" "+resource))
		}
		slices.Sort(out)
		return strings.Join(out, ", ")
	}
	for range 2 {
		if err := w.round(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if got := list(); got != "foreign.niclane.dev, redis.niclane.dev niclane.dev/redis" {
		t.Errorf("there are %s", got)
	}
	if err := w.apply(t.Context(), deviceClass("foreign")); err == nil || !strings.Contains(err.Error(), "without the label") {
		t.Errorf("another program's: %v", err)
	}
}

func TestHealth(t *testing.T) {
	c := &controller{}
	for _, test := range []struct {
		worked time.Time
		want   int
	}{{time.Unix(0, 0), http.StatusOK}, {time.Now(), http.StatusOK},
		{time.Now().Add(-time.Hour), http.StatusServiceUnavailable}} {
		c.worked.Store(test.worked.UnixNano())
		r := httptest.NewRecorder()
		if c.ServeHTTP(r, nil); r.Code != test.want {
			t.Errorf("after %v: %d, want %d", test.worked, r.Code, test.want)
		}
	}
}

// TestClaimsSaid checks what Accepted and an event say of classes that are offered as claims: on an
// older release limits do not serve them, and without the DRA driver nothing does.
func TestClaimsSaid(t *testing.T) {
	p := object("LanePolicy", "p", map[string]any{"spec": map[string]any{"classes": []any{
		map[string]any{"name": "redis", "queues": int64(1)},
		map[string]any{"name": "old", "queues": int64(1), "offeredAs": "Resource"}}}})
	for name, c := range map[string]struct {
		server release
		off    bool
		want   string
		event  string
	}{
		"new":   {"v1.36.0-beta.1", false, "Accepted: the policy can be read", "Normal Accepted"},
		"newer": {"v1.40.1+vendor", false, "Accepted: the policy can be read", "Normal Accepted"},
		"old": {"v1.34.4", false, "ClaimsOnly: the policy can be read. Pods get these classes by resource claims only: " +
			"redis. For limits, Kubernetes 1.36 is needed (this is 1.34), or offeredAs: Resource", "Normal ClaimsOnly"},
		"off": {"v1.36.3", true, "ClaimsOff: the policy can be read, but no pod can get these classes: redis.",
			"Warning ClaimsOff"},
	} {
		w := newWorld(t, nil, p.DeepCopy())
		w.server, w.controller.claims.Off = c.server, c.off
		if err := w.round(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		is := meta.FindStatusCondition(w.status["p"].Conditions, v1alpha1.Accepted)
		if got := is.Reason + ": " + is.Message; is.Status != metav1.ConditionTrue || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s %s, want %s", name, is.Status, got, c.want)
		}
		if got := <-w.events.Events; !strings.HasPrefix(got, c.event) {
			t.Errorf("%s: event %s, want %s", name, got, c.event)
		}
	}
}

// TestClassConflict checks that the younger of two policies whose classes differ is refused, that
// its node keeps what it has, and that it is accepted when the classes are equal.
func TestClassConflict(t *testing.T) {
	spec := func(role string, guarantee string) map[string]any {
		return map[string]any{"spec": map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]any{
			"role": role}}, "classes": []any{map[string]any{"name": "redis", "queues": int64(1), "guarantee": guarantee}}}}
	}
	b := object("LanePolicy", "b", spec("b", "20%"))
	w := newWorld(t, map[string]map[string]string{"n1": {"role": "a"}, "n2": {"role": "b"}},
		object("LanePolicy", "a", spec("a", "10%")), b, object("LaneNode", "n1", nil), object("LaneNode", "n2", nil))
	accepted := func() string {
		if err := w.round(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(w.status["b"].Conditions, v1alpha1.Accepted)
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
	}
	const want = "False ClassConflicted: class redis has guarantee 20%, not 10% as in the older policy a."
	if got := accepted(); !strings.HasPrefix(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	if n1, n2 := w.spec(t, "n1"), w.spec(t, "n2"); !strings.Contains(n1, `"policy":"a"`) || n2 != "null" {
		t.Errorf("n1 has %s, n2 %s", n1, n2)
	}
	b.Object["spec"] = spec("b", "10%")["spec"]
	if _, err := w.client.Resource(policies).Update(t.Context(), b, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until(t, "accepted with equal classes", func() bool { return strings.HasPrefix(accepted(), "True Accepted") })
	if n2 := w.spec(t, "n2"); !strings.Contains(n2, `"policy":"b"`) {
		t.Errorf("n2 has %s", n2)
	}
}
