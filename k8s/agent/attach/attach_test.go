// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/api/params"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/pods"
	"github.com/niclane/niclane/k8s/pods/podresources"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/plan"
)

// A paper is a card that only records the lanes file. It accepts every file unless why is set.
type paper struct {
	mu   sync.Mutex
	text string
	why  string // if not "", the card refuses every file for this reason
}

func (p *paper) refuse(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.why = why
}

func (p *paper) Apply(_ context.Context, f *policy.File) (*engine.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why != "" {
		return nil, errors.New(p.why)
	}
	p.text = string(f.Text)
	return &engine.Result{Planned: engine.Planned{
		Plan:  &plan.Plan{Devices: []string{"eth0"}},
		State: &device.State{Devices: []device.Device{{Name: "eth0", Speed: 1e10}}},
	}}, nil
}

func (p *paper) Remove(context.Context) error { return nil }

func (p *paper) now() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text
}

// A world replaces kubelet and the API server in tests.
type world struct {
	given  []podresources.Pod
	pods   map[string]*corev1.Pod
	broken error
	events []string
	listed func() // called by List after it has read the pods, before it returns
}

func (w *world) Get(_ context.Context, namespace, name string) (*podresources.Pod, error) {
	for i := range w.given {
		if w.given[i].Namespace == namespace && w.given[i].Name == name {
			return &w.given[i], w.broken
		}
	}
	return nil, w.broken
}

func (w *world) List(context.Context) ([]podresources.Pod, error) {
	given := slices.Clone(w.given)
	if w.listed != nil {
		w.listed()
	}
	return given, w.broken
}

func (w *world) Known(namespace, name, uid string) *corev1.Pod {
	p, _ := w.Pod(context.Background(), namespace, name, uid)
	return p
}

func (w *world) Pod(_ context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	p := w.pods[namespace+"/"+name]
	if p == nil || string(p.UID) != uid {
		return nil, errors.New("not found")
	}
	return p, nil
}

// pod adds a pod whose container c declares port 6379 and has the devices.
func (w *world) pod(name, addr string, phase corev1.PodPhase, devices ...podresources.Devices) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c",
		Ports: []corev1.ContainerPort{{ContainerPort: 6379}}}}}}
	p.Namespace, p.Name, p.UID = "default", name, types.UID("u-"+name)
	p.Status.Phase, p.Status.PodIPs = phase, []corev1.PodIP{{IP: addr}}
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1")}
	for _, d := range devices {
		p.Spec.Containers[0].Resources.Limits[corev1.ResourceName(d.Resource)] = resource.MustParse("1")
	}
	w.pods["default/"+name] = p
	w.given = append(w.given, podresources.Pod{Namespace: "default", Name: name,
		Containers: []podresources.Container{{Name: "c", Devices: devices}}})
	return p
}

func setup(t *testing.T) (*Attacher, *world, *paper) {
	t.Helper()
	c, w := &paper{}, &world{pods: map[string]*corev1.Pod{}}
	dir := t.TempDir()
	n, err := lanes.New(lanes.Options{
		Name: "n1", Path: filepath.Join(dir, "state.json"), RunDir: dir, Config: "k.yaml", Boot: "b", Applier: c,
		Device: func() (string, error) { return "eth0", nil }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { n.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	p := &v1alpha1.LanePolicy{}
	p.Name = "p"
	p.Spec.Classes = []v1alpha1.Class{
		{Name: "redis", OfferedAs: v1alpha1.OfferedAsResource, Queues: 1, Capacity: 4, HostNetwork: true},
		{Name: "web", Mode: v1alpha1.Shared, OfferedAs: v1alpha1.OfferedAsResource, Queues: 1},
		{Name: "adq", OfferedAs: v1alpha1.OfferedAsResource, Queues: 1, ResourceName: "net.intel.com/adq"},
		{Name: "dra", Queues: 1},
		{Name: "both", Mode: v1alpha1.Shared, Queues: 1, Capacity: 4},
	}
	n.SetPolicy(t.Context(), p, nil)
	a := &Attacher{Lanes: n, Addrs: func() []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	}, Kubelet: w, Pods: w, Log: slog.New(slog.DiscardHandler), Event: func(_, pod, _, reason, message string) {
		w.events = append(w.events, pod+" "+reason+" "+message)
	}}
	return a, w, c
}

func request(command, pod, addr string) *cni.Request {
	return &cni.Request{
		Version: cni.Version, Command: command, Sandbox: "sb-" + pod, IfName: "eth0", HostIf: "veth1",
		Namespace: "default", Pod: pod, UID: "u-" + pod, Addrs: []netip.Addr{netip.MustParseAddr(addr)},
	}
}

func early(t *testing.T, want bool) func() {
	said := false
	t.Cleanup(func() {
		if said != want {
			t.Errorf("said early: %v", said)
		}
	})
	return func() { said = true }
}

func TestAdd(t *testing.T) {
	a, w, c := setup(t)
	var took []string
	a.Took = func(command string, did bool, _ time.Duration) { took = append(took, fmt.Sprint(command, " ", did)) }
	w.pod("plain", "10.0.0.1", "Pending")
	w.pod("redis", "10.0.0.2", "Pending",
		podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-2", "redis-1"}})
	w.pod("intel", "10.0.0.3", "Pending", podresources.Devices{Resource: "net.intel.com/adq", IDs: []string{"adq-0"}})
	if got := a.Handle(t.Context(), request(cni.Add, "plain", "10.0.0.1"), early(t, false)); got != (cni.Answer{}) {
		t.Errorf("without a lane: %+v", got)
	}
	if got := a.Handle(t.Context(), request(cni.Add, "redis", "10.0.0.2"),
		early(t, true)); got != (cni.Answer{Lane: true}) {
		t.Errorf("got %+v", got)
	}
	if got := a.Handle(t.Context(), request(cni.Add, "intel", "10.0.0.3"),
		early(t, true)); got != (cni.Answer{Lane: true}) {
		t.Errorf("Intel's resource: %+v", got)
	}
	text := c.now()
	// The pod has two queue sets, so its lane has two queues.
	if !strings.Contains(text, "  redis-1:\n    mode: shared\n    queues: 2\n") ||
		strings.Contains(text, "  redis-2:") || !strings.Contains(text, `ports: ["6379"]`) {
		t.Errorf("lanes:\n%s", text)
	}
	if got := a.Handle(t.Context(), request(cni.Check, "redis", "10.0.0.2"), early(t, false)); got.Error != "" {
		t.Errorf("check: %+v", got)
	}
	// Another network's GC names none of these pods.
	a.Handle(t.Context(), &cni.Request{Command: cni.GC, Network: "other"}, early(t, false))
	if text = c.now(); !strings.Contains(text, "10.0.0.3") {
		t.Errorf("after another network's gc:\n%s", text)
	}
	if got := a.Handle(t.Context(),
		&cni.Request{Command: cni.GC, Valid: []cni.Attachment{{Sandbox: "sb-redis", IfName: "eth0"}}},
		early(t, true)); got.Error != "" {
		t.Errorf("gc: %+v", got)
	}
	if text = c.now(); strings.Contains(text, "10.0.0.3") || !strings.Contains(text, "10.0.0.2") {
		t.Errorf("after gc:\n%s", text)
	}
	// The second DEL finds nothing to do, so it does not call early.
	for _, in := range []bool{true, false} {
		if got := a.Handle(t.Context(), request(cni.Del, "redis", "10.0.0.2"), early(t, in)); got.Error != "" {
			t.Errorf("del: %+v", got)
		}
	}
	if got := a.Handle(t.Context(), request(cni.Check, "redis", "10.0.0.2"), early(t, false)); got.Error == "" {
		t.Error("check after del is content")
	}
	if got, want := strings.Join(took, ", "),
		"ADD false, ADD true, ADD true, CHECK false, GC false, GC true, DEL true, DEL false, CHECK false"; got != want {
		t.Errorf("told of %s, want %s", got, want)
	}
}

// TestFault4LookupErrors checks that Handle returns an error if it cannot find out a pod's lanes or
// their packets. It must not say that the pod has no lane.
func TestFault4LookupErrors(t *testing.T) {
	a, w, _ := setup(t)
	w.pod("gone", "10.0.0.1", "Pending", podresources.Devices{Resource: "niclane.dev/old", IDs: []string{"old-0"}})
	if got := a.Handle(t.Context(), request(cni.Add, "gone", "10.0.0.1"),
		early(t, false)); !strings.Contains(got.Error, "niclane.dev/old") || !got.Lane {
		t.Errorf("a class that is no more: %+v", got)
	}
	w.pod("unknown", "10.0.0.2", "Pending",
		podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-0"}})
	delete(w.pods, "default/unknown")
	if got := a.Handle(t.Context(), request(cni.Add, "unknown", "10.0.0.2"),
		early(t, true)); !strings.Contains(got.Error, "ports are not known") || !got.Lane {
		t.Errorf("no API server: %+v", got)
	}
	w.given = append(w.given,
		podresources.Pod{Namespace: "default", Name: "cl",
			Containers: []podresources.Container{{Name: "c",
				Claims: []podresources.Claim{{Namespace: "default", Name: "x", Drivers: []string{"niclane.dev"}}}}}})
	if got := a.Handle(t.Context(), request(cni.Add, "cl", "10.0.0.4"), early(t, false)); !strings.Contains(got.Error,
		"not prepared") || !got.Lane {
		t.Errorf("a claim that is not prepared: %+v", got)
	}
	if len(w.events) != 3 {
		t.Errorf("events %q", w.events)
	}
	w.broken = errors.New("kubelet is busy")
	if got := a.Handle(t.Context(), request(cni.Add, "any", "10.0.0.3"),
		early(t, false)); !strings.Contains(got.Error, "busy") || got.Lane {
		t.Errorf("kubelet does not answer: %+v", got)
	}
}

func TestClaim(t *testing.T) {
	a, w, c := setup(t)
	if err := a.Lanes.Hold(t.Context(),
		inventory.Hold{Key: "k", Claim: "default/x",
			Units: []inventory.Held{{Class: "dra", Unit: "dra-0",
				Parameters: &params.Parameters{Ports: []string{"53/UDP"}}}}}); err != nil {
		t.Fatal(err)
	}
	w.pod("cl", "10.0.0.4", "Pending").Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "x"}}
	w.given[0].Containers[0].Claims = []podresources.Claim{{Namespace: "default", Name: "x",
		Drivers: []string{"niclane.dev"}}}
	if got := a.Handle(t.Context(), request(cni.Add, "cl", "10.0.0.4"), early(t, true)); got.Error != "" {
		t.Fatalf("%+v", got)
	}
	if text := c.now(); !strings.Contains(text, `ports: ["53"]`) || !strings.Contains(text, "protocol: udp") {
		t.Errorf("lanes:\n%s", text)
	}
	if err := a.Lanes.Release(t.Context(), "k"); err != nil || len(a.Lanes.Attachments()) != 0 {
		t.Errorf("released: %v, %v", err, a.Lanes.Attachments())
	}
}

// TestClaimRecovered checks a pod with a claim that kubelet has prepared. The agent has no record of
// the claim: it reads it again, and the pod gets its lane.
func TestClaimRecovered(t *testing.T) {
	a, w, c := setup(t)
	var asked []string
	broken := errors.New("the API server is away")
	a.Recover = func(ctx context.Context, claim string) error {
		if asked = append(asked, claim); broken != nil {
			return broken
		}
		return a.Lanes.Hold(ctx, inventory.Hold{Key: "k", Claim: claim,
			Units: []inventory.Held{{Class: "dra", Unit: "dra-0"}}})
	}
	w.pod("cl", "10.0.0.4", "Running").Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "x"}}
	w.given[0].Containers[0].Claims = []podresources.Claim{{Namespace: "default", Name: "x",
		Drivers: []string{"niclane.dev"}}}
	sweep := func() {
		t.Helper()
		if err := a.Sweep(t.Context(), w.pods, func(*corev1.Pod, string) string { return "" }); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	if len(a.Lanes.Attachments()) > 0 || !slices.ContainsFunc(w.events, func(e string) bool {
		return strings.Contains(e, "the agent has no record of it: the API server is away")
	}) {
		t.Errorf("events %q", w.events)
	}
	broken = nil
	for range 2 {
		sweep()
	}
	if text := c.now(); !strings.Contains(text, "10.0.0.4") || len(asked) != 2 || asked[1] != "default/x" {
		t.Errorf("asked %q, lanes:\n%s", asked, text)
	}
}

// TestSharedClaim checks two pods that use one claim. In a lane of an exclusive class, the second
// pod is refused, and its lane does not move, until the first pod has ended. In a lane of a shared
// class, both pods are members.
func TestSharedClaim(t *testing.T) {
	a, w, c := setup(t)
	for key, unit := range map[string]inventory.Held{"k1": {Class: "dra", Unit: "dra-0"}, "k2": {Class: "both"}} {
		if err := a.Lanes.Hold(t.Context(), inventory.Hold{Key: key, Claim: "default/" + key,
			Units: []inventory.Held{unit}}); err != nil {
			t.Fatal(err)
		}
	}
	claims := func(name, addr, claim string) cni.Answer {
		w.pod(name, addr, "Running").Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "x"}}
		w.given[len(w.given)-1].Containers[0].Claims = []podresources.Claim{{Namespace: "default", Name: claim,
			Drivers: []string{"niclane.dev"}}}
		return a.Handle(t.Context(), request(cni.Add, name, addr), func() {})
	}
	if got := claims("s1", "10.0.0.4", "k1"); got.Error != "" {
		t.Fatalf("%+v", got)
	}
	const want = "claim default/k1 has lane dra-0, and pod default/s1 is in it"
	if got := claims("s2", "10.0.0.5", "k1"); !got.Lane || !strings.Contains(got.Error, want) {
		t.Errorf("%+v", got)
	}
	if err := a.Sweep(t.Context(), w.pods, func(*corev1.Pod, string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	if text := c.now(); !strings.Contains(text, "10.0.0.4") || strings.Contains(text, "10.0.0.5") {
		t.Errorf("lanes:\n%s", text)
	}
	w.given = slices.DeleteFunc(w.given, func(p podresources.Pod) bool { return p.Name == "s1" })
	if got := a.Handle(t.Context(), request(cni.Add, "s2", "10.0.0.5"), func() {}); got.Error != "" {
		t.Errorf("after the first pod's end: %+v", got)
	}
	if text := c.now(); strings.Contains(text, "10.0.0.4") || !strings.Contains(text, "10.0.0.5") {
		t.Errorf("lanes:\n%s", text)
	}
	for i, name := range []string{"t1", "t2"} {
		if got := claims(name, fmt.Sprintf("10.0.0.%d", 6+i), "k2"); got.Error != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if text := c.now(); !strings.Contains(text, "10.0.0.6") || !strings.Contains(text, "10.0.0.7") {
		t.Errorf("lanes:\n%s", text)
	}
}

func TestBandwidth(t *testing.T) {
	a, w, c := setup(t)
	limits := map[string]uint64{}
	a.Limit = func(link string, bits uint64) error { limits[link] = bits; return nil }
	w.pod("redis", "10.0.0.2", "Pending", podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-0"}})
	w.pod("web", "10.0.0.3", "Pending", podresources.Devices{Resource: "niclane.dev/web", IDs: []string{"web-0"}})
	r := request(cni.Add, "redis", "10.0.0.2")
	r.EgressRate, r.IngressRate = 10_000_000, 20_000_000
	if got := a.Handle(t.Context(), r, early(t, true)); got.Error != "" {
		t.Fatalf("%+v", got)
	}
	if !strings.Contains(c.now(), `ceiling: "10000000bit"`) || limits["veth1"] != 20_000_000 {
		t.Errorf("%v\n%s", limits, c.now())
	}
	// A rate above the link's, as 1P, limits nothing.
	r.EgressRate = 1_000_000_000_000_000
	if got := a.Handle(t.Context(), r, early(t, true)); got.Error != "" || strings.Contains(c.now(), "ceiling") {
		t.Errorf("1P: %+v\n%s", got, c.now())
	}
	r = request(cni.Add, "web", "10.0.0.3")
	r.EgressRate = 10_000_000
	if got := a.Handle(t.Context(), r, early(t, true)); !strings.Contains(got.Error, "class web is shared") {
		t.Errorf("%+v", got)
	}
}

// TestKubeletIsNotAsked checks that the agent does not ask kubelet about a pod that cannot have a
// lane. It must ask about pods that can have one, and about a pod that it does not know yet.
func TestKubeletIsNotAsked(t *testing.T) {
	a, w, _ := setup(t)
	w.broken = errors.New("kubelet is busy")
	w.pod("plain", "10.0.0.1", "Pending")
	w.pod("redis", "10.0.0.2", "Pending", podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-0"}})
	w.pod("other", "10.0.0.3", "Pending", podresources.Devices{Resource: "example.org/gpu", IDs: []string{"0"}})
	w.pod("claim", "10.0.0.4", "Pending").Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "x"}}
	for pod, asked := range map[string]bool{"plain": false, "redis": true, "other": true, "claim": true,
		"unknown": true} {
		got := a.Handle(t.Context(), request(cni.Add, pod, "10.0.0.9"), early(t, false))
		if strings.Contains(got.Error, "busy") != asked || got.Lane {
			t.Errorf("%s: %+v, want kubelet asked: %v", pod, got, asked)
		}
	}
}

// TestStatus checks that STATUS returns no error while the node has lanes, even if a later policy
// is refused.
func TestStatus(t *testing.T) {
	a, _, c := setup(t)
	status := func() string {
		return a.Handle(t.Context(), &cni.Request{Command: cni.Status}, early(t, false)).Error
	}
	if got := status(); got != "" {
		t.Errorf("with lanes: %s", got)
	}
	p := &v1alpha1.LanePolicy{}
	p.Name, p.Spec.Classes = "p", []v1alpha1.Class{{Name: "redis", Queues: 1}}
	c.refuse("no such device")
	a.Lanes.SetPolicy(t.Context(), p, nil)
	if got := status(); got != "" {
		t.Errorf("with lanes, and a policy that is refused: %s", got)
	}
	c.refuse("")
	a.Lanes.SetPolicy(t.Context(), nil, nil)
	if got := status(); got != "" {
		t.Errorf("without a policy: %s", got)
	}
	c.refuse("no such device")
	a.Lanes.SetPolicy(t.Context(), p, nil)
	if got := status(); got != "the node has no lanes: no such device" {
		t.Errorf("got %q", got)
	}
}

func TestAsksForLane(t *testing.T) {
	a, w, _ := setup(t)
	err := a.Lanes.Hold(t.Context(),
		inventory.Hold{Key: "k", Claim: "default/x", Units: []inventory.Held{{Class: "dra", Unit: "dra-0"}},
			Pods: []string{"u-claim"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		resource string
		want     bool
	}{
		"plain": {"cpu", false}, "other": {"example.org/gpu", false}, "ours": {"niclane.dev/redis", true},
		"gone": {"niclane.dev/old", true}, "intel": {"net.intel.com/adq", true}, "claim": {"cpu", true},
	} {
		if got := a.AsksForLane(w.pod(name, "10.0.0.1", "Pending",
			podresources.Devices{Resource: c.resource})); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// TestSweep tests Sweep with pods that started before the agent, pods in the host's network, and
// pods whose end the agent has missed.
func TestSweep(t *testing.T) {
	a, w, c := setup(t)
	w.pod("before", "10.0.0.1", "Running",
		podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-0"}})
	w.pod("starting", "10.0.0.2", "Pending",
		podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-1"}})
	host := w.pod("host", "192.0.2.1", "Running",
		podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-2"}})
	host.Spec.HostNetwork = true
	bare := w.pod("bare", "192.0.2.1", "Running",
		podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-3"}})
	bare.Spec.HostNetwork, bare.Spec.Containers[0].Ports = true, nil
	none := func(*corev1.Pod, string) string { return "" }
	if err := a.Sweep(t.Context(), w.pods, none); err != nil {
		t.Fatal(err)
	}
	text := c.now()
	if !strings.Contains(text, "10.0.0.1") || strings.Contains(text, "10.0.0.2") ||
		strings.Count(text, "192.0.2.1") != 1 {
		t.Errorf("lanes:\n%s", text)
	}
	if len(w.events) != 3 || !strings.HasPrefix(w.events[0], "before LaneLate ") ||
		!strings.HasPrefix(w.events[1], "host LaneLate ") || !strings.Contains(w.events[2], "names no port") {
		t.Errorf("events %q", w.events)
	}
	w.given = slices.DeleteFunc(w.given, func(p podresources.Pod) bool { return p.Name == "before" })
	host.Status.Phase = corev1.PodFailed
	if err := a.Sweep(t.Context(), w.pods, none); err != nil {
		t.Fatal(err)
	}
	if got := a.Lanes.Attachments(); len(got) != 0 {
		t.Errorf("still %v", got)
	}
	// The runtime reports the end of a pod whose start it did not report.
	w.pod("again", "10.0.0.9", "Running", podresources.Devices{Resource: "niclane.dev/web", IDs: []string{"web-0"}})
	if err := a.Sweep(t.Context(), w.pods, none); err != nil || len(a.Lanes.Attachments()) != 1 {
		t.Fatalf("%v, %v", err, a.Lanes.Attachments())
	}
	if got := a.Handle(t.Context(), request(cni.Del, "again", "10.0.0.9"), early(t, true)); got.Error != "" ||
		len(a.Lanes.Attachments()) != 0 {
		t.Errorf("%+v, %v", got, a.Lanes.Attachments())
	}
}

// TestSweepWhileAPodStarts checks that Sweep keeps a pod that was attached while kubelet answered.
// kubelet's answer does not have this pod yet.
func TestSweepWhileAPodStarts(t *testing.T) {
	a, w, c := setup(t)
	w.listed = func() {
		w.listed = nil
		w.pod("new", "10.0.0.2", "Pending",
			podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-0"}})
		if got := a.Handle(t.Context(), request(cni.Add, "new", "10.0.0.2"), early(t, true)); got.Error != "" {
			t.Errorf("%+v", got)
		}
	}
	if err := a.Sweep(t.Context(), map[string]*corev1.Pod{}, func(*corev1.Pod, string) string {
		return ""
	}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(c.now(), "10.0.0.2") {
		t.Errorf("it is taken out again:\n%s", c.now())
	}
}

// TestHostPods checks that two pods in the host's network keep their own lanes, although both have
// the node's address.
func TestHostPods(t *testing.T) {
	a, w, c := setup(t)
	for i, name := range []string{"one", "two"} {
		p := w.pod(name, "192.0.2.1", "Running",
			podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-" + fmt.Sprint(i)}})
		p.Spec.HostNetwork, p.Spec.Containers[0].Ports[0].ContainerPort = true, int32(7000+i)
	}
	if err := a.Sweep(t.Context(), w.pods, func(*corev1.Pod, string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	if text := c.now(); len(a.Lanes.Attachments()) != 2 || !strings.Contains(text, `["7000"]`) ||
		!strings.Contains(text, `["7001"]`) {
		t.Errorf("%d are in lanes, want both; lanes:\n%s", len(a.Lanes.Attachments()), text)
	}
}

// TestHostPodByNRI tests a pod in the host's network that the runtime reports by NRI. Such a pod
// has the node's addresses and no interface of its own.
func TestHostPodByNRI(t *testing.T) {
	a, w, c := setup(t)
	p := w.pod("host", "192.0.2.1", "Pending",
		podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-0"}})
	p.Spec.HostNetwork = true
	r := request(cni.Add, "host", "192.0.2.1")
	r.Addrs, r.HostIf, r.IngressRate = nil, "", 10e6
	if got := a.Handle(t.Context(), r, early(t, true)); got.Error != "" {
		t.Fatalf("%+v", got)
	}
	if at := a.Lanes.Attachments(); len(at) != 1 || at[0].IfName != "" || len(at[0].Addrs) != 0 ||
		at[0].Sandbox != "sb-host" {
		t.Errorf("attached %+v", at)
	}
	if text := c.now(); !strings.Contains(text, "192.0.2.1") || !strings.Contains(text, "6379") {
		t.Errorf("lanes:\n%s", text)
	}
	// Without a port, the lane would get all packets of the node's address, so the pod is refused.
	p.Spec.Containers[0].Ports = nil
	if got := a.Handle(t.Context(), r, early(t, true)); !got.Lane || !strings.Contains(got.Error, "names no port") {
		t.Errorf("without a port: %+v", got)
	}
	if got := a.Handle(t.Context(), &cni.Request{Command: cni.Del, Sandbox: "sb-host", UID: "u-host"},
		early(t, true)); got.Error != "" || len(a.Lanes.Attachments()) != 0 {
		t.Errorf("%+v, %+v", got, a.Lanes.Attachments())
	}
	// With classification by control group, the pod gets its lane later: its group exists only when it
	// runs.
	a.ByCgroup = func() bool { return true }
	if got := a.Handle(t.Context(), r, early(t, true)); got.Error != "" || len(a.Lanes.Attachments()) != 0 {
		t.Errorf("by control group: %+v, %+v", got, a.Lanes.Attachments())
	}
}

// TestSandboxMadeAnew tests a pod that was attached while it ran, and whose sandbox is then created
// again. Its lane must get the pod's new address.
func TestSandboxMadeAnew(t *testing.T) {
	a, w, c := setup(t)
	p := w.pod("moves", "10.0.0.1", "Running",
		podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-0"}})
	sweep := func() {
		t.Helper()
		if err := a.Sweep(t.Context(), w.pods, func(*corev1.Pod, string) string { return "" }); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	p.Status.PodIPs = nil // kubelet has not reported the address yet
	if sweep(); !strings.Contains(c.now(), "10.0.0.1") {
		t.Errorf("lanes:\n%s", c.now())
	}
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.7"}}
	if sweep(); strings.Contains(c.now(), "10.0.0.1") || !strings.Contains(c.now(), "10.0.0.7") {
		t.Errorf("lanes:\n%s", c.now())
	}
}

// TestFrontends checks that a pod that names ports of the node or addresses of other pods does not
// start.
func TestFrontends(t *testing.T) {
	a, w, c := setup(t)
	p := w.pod("redis", "10.0.0.2", "Pending",
		podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-0"}})
	for _, front := range []string{"10250", "22", "10.0.0.3:5301/TCP"} {
		p.Annotations = map[string]string{pods.Annotation: `{"c":{"ports":["7"],"frontends":["` + front + `"]}}`}
		got := a.Handle(t.Context(), request(cni.Add, "redis", "10.0.0.2"), early(t, true))
		if !got.Lane || !strings.Contains(got.Error, "frontends: not taken any more") {
			t.Errorf("%s: %+v", front, got)
		}
	}
	if text := c.now(); strings.Contains(text, "10250") || strings.Contains(text, "10.0.0.3") {
		t.Errorf("lanes:\n%s", text)
	}
}

// TestInitContainer checks that a lane of an init container alone is refused, by name, and that
// sidecars, and containers that ask for the same resource, have their lanes.
func TestInitContainer(t *testing.T) {
	a, w, _ := setup(t)
	always := corev1.ContainerRestartPolicyAlways
	redis := corev1.ResourceRequirements{Limits: corev1.ResourceList{"niclane.dev/redis": resource.MustParse("1")}}
	for i, c := range []struct {
		init  corev1.Container
		app   corev1.ResourceRequirements
		error string
	}{
		{corev1.Container{Name: "init", Resources: redis}, corev1.ResourceRequirements{},
			"init container init asks for niclane.dev/redis, and no other container does"},
		{corev1.Container{Name: "side", Resources: redis, RestartPolicy: &always}, corev1.ResourceRequirements{}, ""},
		{corev1.Container{Name: "init", Resources: redis}, redis, ""},
	} {
		name, addr := fmt.Sprint("p", i), fmt.Sprintf("10.0.1.%d", i)
		p := w.pod(name, addr, "Pending", podresources.Devices{Resource: "niclane.dev/redis",
			IDs: []string{fmt.Sprint("redis-", i)}})
		p.Spec.InitContainers, p.Spec.Containers[0].Resources = []corev1.Container{c.init}, c.app
		got := a.Handle(t.Context(), request(cni.Add, name, addr), func() {})
		if !got.Lane || !strings.Contains(got.Error, c.error) || (got.Error == "") != (c.error == "") {
			t.Errorf("%d: %+v, want %q", i, got, c.error)
		}
	}
}

// TestNodesAddress checks that a pod with the node's address, but not of the host's network,
// gets no lane.
func TestNodesAddress(t *testing.T) {
	a, w, _ := setup(t)
	w.pod("redis", "192.0.2.1", "Pending",
		podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-0"}})
	got := a.Handle(t.Context(), request(cni.Add, "redis", "192.0.2.1"), early(t, true))
	if !got.Lane || !strings.Contains(got.Error, "the pod has the node's address 192.0.2.1") {
		t.Errorf("%+v", got)
	}
}

// TestHostNetworkRefused checks that a class without hostNetwork has no lanes for pods of the
// host's network, whenever they come.
func TestHostNetworkRefused(t *testing.T) {
	a, w, _ := setup(t)
	p := w.pod("host", "192.0.2.1", "Running", podresources.Devices{Resource: "niclane.dev/web", IDs: []string{"web-0"}})
	p.Spec.HostNetwork = true
	const want = "class web has no lanes for pods of the host's network"
	r := request(cni.Add, "host", "192.0.2.1")
	r.Addrs, r.HostIf = nil, ""
	if got := a.Handle(t.Context(), r, early(t, true)); !got.Lane || !strings.Contains(got.Error, want) {
		t.Errorf("%+v", got)
	}
	if err := a.Sweep(t.Context(), w.pods, func(*corev1.Pod, string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	if got := a.Lanes.Attachments(); len(got) != 0 || !strings.Contains(w.events[len(w.events)-1], want) {
		t.Errorf("attached %v; events %q", got, w.events)
	}
}

func TestUnreachable(t *testing.T) {
	a, w, _ := setup(t)
	a.Reachable = func(dev string, _, _ []netip.Addr) ([]string, error) {
		return nil, errors.New(dev + " is under an overlay")
	}
	w.pod("redis", "10.0.0.2", "Pending", podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-0"}})
	if got := a.Handle(t.Context(), request(cni.Add, "redis", "10.0.0.2"),
		early(t, true)); got.Error != "eth0 is under an overlay" || !got.Lane {
		t.Errorf("%+v", got)
	}
	// If the pod already runs and Sweep attaches it, the error is the same.
	w.pods["default/redis"].Status.Phase = corev1.PodRunning
	if err := a.Sweep(t.Context(), w.pods, func(*corev1.Pod, string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	if len(w.events) != 2 || !strings.Contains(w.events[1], "under an overlay") {
		t.Errorf("events %q", w.events)
	}
	if got := a.Lanes.Attachments(); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}
