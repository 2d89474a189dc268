// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/k8s/agent/applier"
	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/networks/nat"
	"github.com/niclane/niclane/k8s/networks/reach"
	lanepods "github.com/niclane/niclane/k8s/pods"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/watch/metrics"
)

var laneNodes = schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
	Resource: v1alpha1.NodeResource}

// A world is a fake API server with one node. It records the statuses that the agent writes.
type world struct {
	dynamic.Interface
	fake *fake.FakeDynamicClient

	mu     sync.Mutex
	status []string
	told   []string // events, "TYPE REASON OBJECT", in their order
}

func newWorld(t *testing.T) *world {
	t.Helper()
	n := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	n.Name = "n1"
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{}
	w.fake = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		laneNodes:                           "LaneNodeList",
		{Version: "v1", Resource: "nodes"}:  "NodeList",
		{Version: "v1", Resource: "pods"}:   "PodList",
		{Version: "v1", Resource: "events"}: "EventList",
	}, &unstructured.Unstructured{Object: m})
	// The fake client does not support server-side apply of a status.
	w.fake.PrependReactor("patch", v1alpha1.NodeResource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		p := a.(clienttesting.PatchAction)
		w.status = append(w.status, p.GetSubresource()+" "+string(p.GetPatch()))
		return true, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "niclane.dev/v1alpha1",
			"kind": "LaneNode"}}, nil
	})
	w.fake.PrependReactor("create", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		u := a.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured)
		kind, _, _ := unstructured.NestedString(u.Object, "involvedObject", "kind")
		w.told = append(w.told, fmt.Sprint(u.Object["type"], " ", u.Object["reason"], " ", kind))
		u.SetName(fmt.Sprint(u.GetGenerateName(), len(w.told))) // the fake client generates no names
		return false, nil, nil
	})
	w.Interface = w.fake
	return w
}

// set writes the spec of the node's LaneNode, as niclane-controller does when the agent has made
// it.
func (w *world) set(t *testing.T, generation int64, classes ...any) {
	t.Helper()
	w.write(t, map[string]any{"policy": "p", "policyGeneration": generation,
		"uplink": map[string]any{"linkRate": "1G"}, "classes": classes})
}

// before makes the LaneNode as an agent that ran before has left it.
func (w *world) before(t *testing.T) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "niclane.dev/v1alpha1", "kind": "LaneNode",
		"metadata": map[string]any{"name": "n1"}}}
	if _, err := w.Resource(laneNodes).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) write(t *testing.T, spec map[string]any) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		u, err := w.Resource(laneNodes).Get(t.Context(), "n1", metav1.GetOptions{})
		if err == nil {
			u.Object["spec"] = spec
			_, err = w.Resource(laneNodes).Update(t.Context(), u, metav1.UpdateOptions{})
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// said waits for a status that contains all parts.
func (w *world) said(t *testing.T, parts ...string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		last := ""
		if len(w.status) > 0 {
			last = w.status[len(w.status)-1]
		}
		w.mu.Unlock()
		missing := ""
		for _, p := range parts {
			if !strings.Contains(last, p) {
				missing = p
			}
		}
		if missing == "" {
			return
		}
	}
	t.Fatalf("never said %q; said %q", parts, w.status)
}

func class(name string, queues int64, more ...any) map[string]any {
	c := map[string]any{"name": name, "offeredAs": "Resource", "queues": queues, "poller": "Interrupt",
		"rank": int64(1)}
	for i := 0; i < len(more); i += 2 {
		c[more[i].(string)] = more[i+1]
	}
	return c
}

func get(socket, path string) (int, string, error) {
	c := &http.Client{Timeout: 10 * time.Second,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}}
	defer c.CloseIdleConnections()
	r, err := c.Get("http://niclane" + path)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return r.StatusCode, string(b), err
}

// TestPause checks that the pause is longer after a longer search for translated packets, but at
// most half of nat.Remembered, so that no finding is forgotten meanwhile.
func TestPause(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: time.Minute, time.Millisecond: time.Minute, 16 * time.Millisecond: 160 * time.Second,
		time.Second: 5 * time.Minute, math.MaxInt64 / pauses: 5 * time.Minute,
	} {
		if got := pause(took); got != want || got > nat.Remembered/2 {
			t.Errorf("after %v: %v, want %v", took, got, want)
		}
	}
}

// testTranslated checks how the agent reports a pod's packets that the node translates: in the
// policy's status, and in one event about the pod. After the pod's end, the status no longer has
// them.
func testTranslated(t *testing.T, a *Agent, w *world) {
	pod := netip.MustParseAddrPort("10.244.0.5:6379")
	err := a.lanes.Attach(t.Context(), lanes.Attachment{
		Sandbox: "sb", IfName: "eth0", Namespace: "default", Pod: "redis", UID: "u", Addrs: []netip.Addr{pod.Addr()},
		Grants: []lanepods.Grant{{Container: "c", Class: "redis", Units: []string{"redis-0"}, Lane: "redis-0"}},
		Members: []policy.Member{{Name: "m", Lane: "redis-0", Protocol: "tcp",
			Addrs: []netip.Prefix{netip.PrefixFrom(pod.Addr(), 32)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	client, front := netip.MustParseAddrPort("192.0.2.7:4000"), netip.MustParseAddrPort("192.0.2.1:30379")
	flows := func(f func(nat.Flow)) error {
		f(nat.Flow{Protocol: "tcp", Src: client, Dst: front, ReplySrc: pod, ReplyDst: client})
		return nil
	}
	now := time.Unix(0, 0)
	for range 2 {
		if err := a.translated(now, flows); err != nil {
			t.Fatal(err)
		}
	}
	w.said(t, `"type":"Steered"`, `"reason":"AddressesAreTranslated"`,
		"pod default/redis, lane redis-0: frontend 192.0.2.1:30379/tcp")
	var said []string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) &&
		len(said) == 0; time.Sleep(time.Millisecond) {
		all, err := w.Resource(schema.GroupVersionResource{Version: "v1",
			Resource: "events"}).Namespace("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all.Items {
			if e.Object["reason"] == "LaneBypassed" {
				said = append(said, fmt.Sprint(e.Object["message"]))
			}
		}
	}
	// Received packets are steered here (by cpumap). Sent packets are in their lane only if the kernel
	// lets the classifier see the address before translation.
	where := "are not in its lane redis-0"
	if sees, err := applier.SeeTranslated([]string{"up0"}); err != nil {
		t.Fatal(err)
	} else if sees {
		where = "only their answers are in its lane redis-0"
	}
	if len(said) != 1 || !strings.Contains(said[0], where) ||
		!strings.Contains(said[0], "set services.enabled=true") {
		t.Errorf("events %q, want one with %s", said, where)
	}
	if err := a.lanes.Detach(t.Context(), "sb", "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := a.translated(now.Add(2*nat.Remembered), flows); err != nil {
		t.Fatal(err)
	}
	w.said(t, `"reason":"AddressesAreSeen"`)
}

// testLanePods checks the agent's list of pods that ask for a lane. Such a pod must get into the
// list as soon as it is in the API server. Other pods must not.
func testLanePods(t *testing.T, w *world, socket string) {
	t.Helper()
	resources := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	// It is not known yet whether the pod with a claim has a lane.
	for _, pod := range []struct {
		name  string
		limit corev1.ResourceName
	}{{"claimed", "cpu"}, {"redis", "niclane.dev/redis"}, {"plain", "cpu"}} {
		name, limit := pod.name, pod.limit
		p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
		p.Namespace, p.Name, p.UID = "default", name, types.UID("u-"+name)
		if name == "claimed" {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "lane"}}
		}
		if name == "plain" { // this annotation must not put pod redis on the list of pods without a lane
			p.Annotations = map[string]string{"kubernetes.io/config.hash": "u-redis"}
		}
		p.Spec.Containers = []corev1.Container{{Name: "c",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{limit: resource.MustParse("1")}}}}
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Resource(resources).Namespace("default").Create(t.Context(),
			&unstructured.Unstructured{Object: m}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); !cni.AsksForLane(socket,
		"u-redis"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a pod that asks for a lane was not written down")
		}
	}
	if cni.AsksForLane(socket, "u-plain") {
		t.Error("a pod that asks for none was written down")
	}
	for deadline := time.Now().Add(10 * time.Second); !cni.HasNoLane(socket, "u-plain"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a pod that can have no lane was not written down")
		}
	}
	if cni.HasNoLane(socket, "u-redis") || cni.HasNoLane(socket, "u-claimed") {
		t.Error("a pod that may have a lane was written down as one that has none")
	}
}

// TestStatus runs a whole agent. The node's policy appears, changes, cannot be applied and
// disappears; the status follows. Without a LaneNode's spec, lanes stay.
func TestStatus(t *testing.T) {
	vethtest.NeedRoot(t)
	vethtest.IP(t, `link set lo up
		link add up0 numtxqueues 8 numrxqueues 8 type veth peer name up1 numtxqueues 8 numrxqueues 8
		link set up0 up
		link set up1 up
		addr add 192.0.2.1/24 dev up0`)
	t.Cleanup(func() { vethtest.IP(t, "link del up0") })
	dir := t.TempDir()
	for _, d := range []string{"kubelet/device-plugins", "kubelet/pod-resources"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	socket := filepath.Join(dir, "agent.sock")
	a, err := New(Options{
		Node: "n1", Client: w.fake, StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"),
		Socket:     filepath.Join(dir, "cni.sock"),
		KubeletDir: filepath.Join(dir, "kubelet"), Listen: metrics.Address{Network: "unix", Address: socket},
		Probes: "127.0.0.1:9419", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	w.set(t, 1, class("redis", 1, "capacity", int64(2)), class("web", 2, "mode", "Shared", "capacity", int64(5)))
	w.said(t, "status ", `"name":"n1"`, `"devices":["up0"]`, `"policyGeneration":1`, `"type":"Applied"`,
		`"reason":"AsThePolicySays"`, `"total":5`)

	for _, r := range []cni.Request{{Command: cni.Status}, {Command: cni.Unchained, Reason: "00-alone.conf: no list"}} {
		if _, err := cni.Call(ctx, filepath.Join(dir, "cni.sock"), r, 10*time.Second); err != nil {
			t.Error(r.Command, err)
		}
	}
	ofEvents := schema.GroupVersionResource{Version: "v1", Resource: "events"}
	events, err := w.Resource(ofEvents).Namespace("default").List(ctx, metav1.ListOptions{})
	if err != nil || !slices.ContainsFunc(events.Items, func(e unstructured.Unstructured) bool {
		node, _, _ := unstructured.NestedString(e.Object, "involvedObject", "name")
		return node == "n1" && e.Object["reason"] == "NotChained" &&
			strings.HasSuffix(fmt.Sprint(e.Object["message"]), "gives pods no lanes: 00-alone.conf: no list")
	}) {
		t.Errorf("events %v, %v: none of the node says what cannot be chained", events, err)
	}
	// Several clients read the metrics at the same time, of a device without a driver.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			code, body, err := get(socket, "/metrics")
			if err != nil || code != http.StatusOK ||
				!strings.Contains(body, `niclane_class_units{class="web",mode="shared"} 5`) ||
				!strings.Contains(body, `niclane_lane_info{`) ||
				!strings.Contains(body, `niclane_request_seconds_count{command="STATUS",lane="false"} 1`) {
				t.Errorf("%d, %v: %.500s", code, err, body)
			}
		})
	}
	wg.Wait()
	if code, body, err := get(socket, "/healthz"); err != nil || code != http.StatusOK {
		t.Errorf("healthz: %d %s %v", code, body, err)
	}
	for path, want := range map[string]int{"livez": http.StatusOK, "readyz": http.StatusOK, "metrics": http.StatusNotFound} {
		r, err := http.Get("http://127.0.0.1:9419/" + path)
		if err != nil {
			t.Fatal(err)
		}
		if r.Body.Close(); r.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, r.StatusCode, want)
		}
	}

	began := time.Now()
	w.set(t, 2, class("redis", 1, "capacity", int64(3)))
	for len(a.lanes.Now().Classes) != 1 || len(a.lanes.Now().Classes[0].Units) != 3 {
		if time.Since(began) > 10*time.Second {
			t.Fatal("the policy does not reach the card")
		}
		time.Sleep(time.Millisecond)
	}
	t.Logf("a policy change reached the card in %v", time.Since(began))
	w.said(t, `"policyGeneration":2`, `"total":3`)

	testTranslated(t, a, w)
	testLanePods(t, w, filepath.Join(dir, "cni.sock"))

	w.set(t, 3, class("redis", 1, "guarantee", "60%", "capacity", int64(3)))
	w.said(t, `"policyGeneration":3`, `"reason":"Refused"`, "spec.classes[0].guarantee", `"total":3`)
	vethtest.IP(t, "link set up1 down")
	w.said(t, `"type":"Healthy"`, "up0: it has no carrier", `"unhealthy":3`)
	vethtest.IP(t, "link set up1 up")
	w.said(t, `"reason":"LanesHold"`)
	a.RefusedDriver("the name is taken")
	a.refusedResources(map[string]string{"niclane.dev/redis": "it is invalid"})
	w.said(t, `"type":"Offered"`, `"reason":"KubeletRefused"`, "driver niclane.dev: kubelet refuses it: the name is "+
		"taken; resource niclane.dev/redis: kubelet refuses it: it is invalid")
	a.RefusedDriver("")
	a.refusedResources(nil)
	w.said(t, `"reason":"KubeletHasThem"`)
	testRemoval(t, a, w, filepath.Join(dir, "cni.sock"))
	w.write(t, map[string]any{"policy": ""})
	for deadline := time.Now().Add(10 * time.Second); len(a.lanes.Lanes()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(fmt.Sprint("lanes are still there: ", a.lanes.Lanes()))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, want := range []string{"Normal AsThePolicySays Node", "Warning NotChained Node", "Warning Refused Node",
		"Warning LanesDoNotHold Node", "Normal LanesHold Node", "Warning AddressesAreTranslated Node",
		"Normal AddressesAreSeen Node", "Warning LaneBypassed Pod", "Warning KubeletRefused Node",
		"Normal KubeletHasThem Node", "Warning RemoveFailed Node", "Normal NodeIsClean Node"} {
		if !slices.Contains(w.told, want) {
			t.Errorf("no event %s, only %q", want, w.told)
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(w.told), func(e string) bool {
		return e != "Normal AsThePolicySays Node"
	})); n != 3 {
		t.Errorf("%d events that a policy is applied, want one for each of the generations 1, 2 and 4", n)
	}
}

// testRemoval marks the node's LaneNode: the agent leaves nothing on the node and says so when
// niclane-cni-install has removed niclane-cni. A pod that starts then has no lane. Without the mark,
// everything comes back.
func testRemoval(t *testing.T, a *Agent, w *world, socket string) {
	a.o.CNIInstall = true
	vethtest.IP(t, "link add pod0 type veth peer name pod1")
	t.Cleanup(func() { vethtest.IP(t, "link del pod0") })
	clean := vethtest.Qdiscs(t, "pod0")
	if err := reach.Limit("pod0", 1_000_000); err != nil {
		t.Fatal(err)
	}
	ask := func(want, removed bool, reason string) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			remove, err := cni.AskRemove(t.Context(), socket, removed, reason, time.Second)
			if err == nil && remove == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the agent says remove %v, %v; want %v", remove, err, want)
			}
		}
	}
	ask(false, false, "")
	w.write(t, map[string]any{"policy": "p", "policyGeneration": int64(3), "remove": true})
	ask(true, false, "")
	w.said(t, `"type":"Removed"`, `"status":"False"`, "has not removed niclane-cni yet")
	ask(true, false, "10-x.conflist: no list")
	w.said(t, `"reason":"RemoveFailed"`, "niclane-cni: 10-x.conflist: no list")
	ask(true, true, "")
	w.said(t, `"type":"Removed"`, `"status":"True"`, `"reason":"NodeIsClean"`)
	if got := vethtest.Qdiscs(t, "pod0"); got != clean {
		t.Errorf("the pod's limit is left: %s", got)
	}
	if got := vethtest.Qdiscs(t, "up0"); strings.Contains(got, "htb") || strings.Contains(got, "clsact") {
		t.Errorf("lanes are left: %s", got)
	}
	lane, err := cni.Call(t.Context(), socket, cni.Request{Command: cni.Add, Namespace: "default", Pod: "redis",
		UID: "u-redis", Sandbox: "s", IfName: "eth0"}, 10*time.Second)
	if lane || err != nil {
		t.Errorf("a pod that asks for a lane: %v, %v", lane, err)
	}
	// The LaneNode goes, as when its definition is deleted. That ends no removal.
	if err := w.Resource(laneNodes).Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, _, known := a.cluster.Removal(); !known {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the agent does not see that its LaneNode has gone")
		}
	}
	wake(a.pods)
	wake(a.seen)
	ask(true, true, "")
	w.said(t, `"reason":"NodeIsClean"`)
	if cni.AsksForLane(socket, "u-redis") {
		t.Error("the list of pods with lanes is left")
	}
	w.set(t, 4, class("redis", 1, "capacity", int64(3)))
	ask(false, false, "")
	w.said(t, `"policyGeneration":4`, `"type":"Applied"`, `"total":3`)
	for deadline := time.Now().Add(10 * time.Second); !cni.AsksForLane(socket, "u-redis"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the list of pods with lanes is not back")
		}
	}
}

// TestOfPod checks which objects belong to a pod's control group, so that their loss does not make
// the lane unhealthy.
func TestOfPod(t *testing.T) {
	for _, c := range []struct {
		object device.Object
		want   bool
	}{
		{device.CgroupClass{Cgroup: "/kubepods/pod1"}, true},
		{device.CgroupPriority{Cgroup: "/kubepods/pod1", Dev: "eth0"}, true},
		{device.Class{Dev: "eth0", ID: "1:10"}, false},
		{device.FilterEntry{Filter: "filter/eth0/egress/1/1"}, false},
	} {
		if got := ofPod(c.object.Key()); got != c.want {
			t.Errorf("%s: %t, want %t", c.object.Key(), got, c.want)
		}
	}
}
