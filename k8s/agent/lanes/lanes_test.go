// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/niclane/niclane/k8s/agent/applier"
	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/pods"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/plan"
)

// A fakeCard is an Applier that records the last lanes file and counts applies.
type fakeCard struct {
	mu      sync.Mutex
	text    string
	applies int
	keep    error  // Remove fails with it
	refuse  string // a lanes file that contains this text is refused
	// An apply of a lanes file with the address 10.0.0.200 closes busy and waits for block.
	busy, block chan struct{}
}

func (c *fakeCard) Apply(_ context.Context, f *policy.File) (*engine.Result, error) {
	if strings.Contains(string(f.Text), "10.0.0.200") && c.block != nil {
		close(c.busy)
		<-c.block
		c.block = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applies++
	if c.refuse != "" && strings.Contains(string(f.Text), c.refuse) {
		return nil, &applier.RefusedError{Problems: []string{"no room for " + c.refuse}}
	}
	c.text = string(f.Text)
	r := &engine.Result{Planned: engine.Planned{
		Plan:  &plan.Plan{Devices: []string{"eth0"}},
		State: &device.State{Devices: []device.Device{{Name: "eth0", Speed: 1e10, Node: 1, Bus: "0000:3b:00.0"}}},
	}}
	q := 4
	for _, l := range f.Intent.Lanes {
		fit := plan.FittedLane{Name: l.Name, Device: "eth0"}
		for range l.Queues {
			fit.Queues = append(fit.Queues, q)
			q++
		}
		r.Plan.Lanes = append(r.Plan.Lanes, fit)
	}
	return r, nil
}

func (c *fakeCard) Remove(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keep != nil {
		return c.keep
	}
	c.text = ""
	return nil
}

func (c *fakeCard) now() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text
}

// start runs a Manager with an Applier, a state directory and a boot ID, until the test ends.
func start(t *testing.T, c Applier, dir, boot string) *Manager {
	t.Helper()
	n, err := New(Options{
		Name: "n1", Path: filepath.Join(dir, "state.json"), RunDir: dir, Config: "k.yaml", Boot: boot, Applier: c,
		Device: func() (string, error) { return "eth0", nil }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { n.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return n
}

func redisAndWeb(generation int64) *v1alpha1.LanePolicy {
	p := &v1alpha1.LanePolicy{}
	p.Name, p.Generation = "p", generation
	p.Spec.Classes = []v1alpha1.Class{
		{Name: "redis", OfferedAs: v1alpha1.OfferedAsResource, Queues: 2, Capacity: 2,
			Tuning: v1alpha1.Tuning{Guarantee: "10%"}},
		{Name: "web", Mode: v1alpha1.Shared, OfferedAs: v1alpha1.OfferedAsResource, Queues: 1, Capacity: 3},
		{Name: "dra", Mode: v1alpha1.Shared, Queues: 1, Capacity: 2},
		{Name: "solo", Queues: 1},
	}
	return p
}

func attachment(pod, addr, class string, units ...string) Attachment {
	lane := units[0]
	if class == "web" || class == "dra" {
		lane = class
	}
	return Attachment{
		Addrs:   []netip.Addr{netip.MustParseAddr(addr)},
		Sandbox: "sb-" + pod, IfName: "eth0", Namespace: "default", Pod: pod, UID: "uid-" + pod,
		Grants: []pods.Grant{{Container: "c", Class: class, Units: units, Lane: lane}},
		Members: []policy.Member{{Name: pod, Lane: lane, Protocol: "tcp",
			Addrs: []netip.Prefix{netip.MustParsePrefix(addr + "/32")}}},
	}
}

func TestPodsComeAndGo(t *testing.T) {
	c := &fakeCard{}
	dir := t.TempDir()
	n := start(t, c, dir, "boot1")
	n.SetPolicy(t.Context(), redisAndWeb(1), nil)
	if s := n.Status(); !s.Applied || s.Policy != "p" || s.Devices[0] != "eth0" {
		t.Fatalf("%+v", s)
	}
	snap := n.Now()
	if d := snap.Device; d == nil || d.NUMA != 1 || d.PCI != "0000:3b:00.0" {
		t.Errorf("device %+v", d)
	}
	if r := snap.Find("redis"); len(r.Units) != 2 || r.Guarantee != 1e9 || r.Units[1].Queues[0] != 6 ||
		r.ResourceName != "niclane.dev/redis" {
		t.Errorf("%+v", r)
	}
	if err := n.Attach(t.Context(), attachment("a", "10.0.0.1", "redis", "redis-1")); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(c.now(), `addrs: ["10.0.0.1"]`) {
		t.Errorf("not steered:\n%s", c.now())
	}
	if h := n.Now().Find("redis").Find("redis-1").Holder; h == nil || h.String() != "default/a" {
		t.Errorf("holder %v", h)
	}
	// A new Manager knows the pod after a restart of the agent, but not after a reboot.
	again := start(t, &fakeCard{}, dir, "boot1")
	if got := again.Attachments(); len(got) != 1 || got[0].Pod != "a" {
		t.Errorf("after a restart: %+v", got)
	}
	other := t.TempDir()
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if got := start(t, &fakeCard{}, other, "boot2").Attachments(); len(got) != 0 {
		t.Errorf("after a reboot: %+v", got)
	}
	for range 2 { // the runtime may send DEL several times
		if err := n.Detach(t.Context(), "sb-a", "eth0"); err != nil {
			t.Error(err)
		}
	}
	if strings.Contains(c.now(), "10.0.0.1") {
		t.Errorf("still steered:\n%s", c.now())
	}
}

// TestFault10FailedAddLeavesNothing checks that an attachment that the card refuses is not stored.
// The end of a pod is stored even if the card refuses the change.
func TestFault10FailedAddLeavesNothing(t *testing.T) {
	c := &fakeCard{refuse: "10.0.0.66"}
	dir := t.TempDir()
	n := start(t, c, dir, "b")
	n.SetPolicy(t.Context(), redisAndWeb(1), nil)
	before := c.now()
	files := func() map[string]string {
		t.Helper()
		out := map[string]string{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			out[e.Name()] = string(text)
		}
		return out
	}
	kept := files()
	if len(kept) != 2 {
		t.Fatalf("files: %v", kept)
	}
	err := n.Attach(t.Context(), attachment("bad", "10.0.0.66", "web", "web-0"))
	if err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("got %v", err)
	}
	if c.now() != before || len(n.Attachments()) != 0 {
		t.Errorf("left: %v", n.Attachments())
	}
	if now := files(); !maps.Equal(now, kept) {
		t.Errorf("state:\n%s\nbefore:\n%s", now, kept)
	}
	if err := n.Attach(t.Context(), attachment("good", "10.0.0.7", "web", "web-0")); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.refuse = "version"
	c.mu.Unlock()
	if err := n.Detach(t.Context(), "sb-good", ""); err != nil || len(n.Attachments()) != 0 {
		t.Errorf("detach: %v, %v", err, n.Attachments())
	}
	c.mu.Lock()
	c.refuse = ""
	c.mu.Unlock()
	if err := n.Attach(t.Context(), attachment("next", "10.0.0.8", "web", "web-1")); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(c.now(), "10.0.0.7") {
		t.Error("the pod that ended is still steered")
	}
}

// TestTogether checks changes that arrive together while the card is busy. If the card refuses one
// of them, only this change fails.
func TestTogether(t *testing.T) {
	c := &fakeCard{refuse: "10.0.0.66"}
	n := start(t, c, t.TempDir(), "b")
	p := redisAndWeb(1)
	p.Spec.Classes[1].Capacity = 50
	n.SetPolicy(t.Context(), p, nil)
	c.mu.Lock()
	c.applies = 0
	c.mu.Unlock()
	c.busy, c.block = make(chan struct{}), make(chan struct{})
	block := c.block
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := n.Attach(t.Context(), attachment("first", "10.0.0.200", "web", "web-49")); err != nil {
			t.Error(err)
		}
	})
	<-c.busy
	errs := make([]error, 20)
	for i := range errs {
		wg.Go(func() {
			addr := fmt.Sprintf("10.0.0.%d", 60+i)
			errs[i] = n.Attach(t.Context(), attachment(fmt.Sprint("p", i), addr, "web", fmt.Sprint("web-", i)))
		})
	}
	for len(n.requests) < len(errs) {
		runtime.Gosched()
	}
	close(block)
	wg.Wait()
	for i, err := range errs {
		if (err != nil) != (i == 6) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if got := len(n.Attachments()); got != 20 {
		t.Errorf("%d attached", got)
	}
}

// TestFault13Live changes a policy while pods are in lanes. Values that pods depend on stay until
// the pods end. Other values change at once. A policy that cannot be applied changes nothing.
func TestFault13Live(t *testing.T) {
	c := &fakeCard{}
	n := start(t, c, t.TempDir(), "b")
	n.SetPolicy(t.Context(), redisAndWeb(1), nil)
	if err := n.Attach(t.Context(), attachment("a", "10.0.0.1", "redis", "redis-1")); err != nil {
		t.Fatal(err)
	}
	next := redisAndWeb(2)
	next.Spec.Classes[0].Queues, next.Spec.Classes[0].Guarantee = 4, "20%"
	next.Spec.Classes = next.Spec.Classes[:1]
	n.SetPolicy(t.Context(), next, nil)
	s := n.Status()
	if s.Applied || !strings.Contains(s.Held["redis"], "default/a") {
		t.Errorf("%+v", s)
	}
	if text := c.now(); !strings.Contains(text, `guarantee: "20%"`) || !strings.Contains(text, "queues: 2") ||
		strings.Contains(text, "web") {
		t.Errorf("applied:\n%s", text)
	}
	if err := n.Detach(t.Context(), "sb-a", ""); err != nil {
		t.Fatal(err)
	}
	n.SetPolicy(t.Context(), next, nil) // returns after the Manager has made the change
	if s := n.Status(); !s.Applied || !strings.Contains(c.now(), "queues: 4") {
		t.Errorf("%+v\n%s", s, c.now())
	}
	bad := redisAndWeb(3)
	bad.Spec.Uplink.LinkRate = "10gbps"
	n.SetPolicy(t.Context(), bad, nil)
	if s := n.Status(); s.Applied || !strings.Contains(s.Problem, "spec.uplink.linkRate") ||
		!strings.Contains(c.now(), "queues: 4") {
		t.Errorf("%+v\n%s", s, c.now())
	}
	n.SetPolicy(t.Context(), nil, nil)
	if s := n.Status(); !s.Applied || c.now() != "" {
		t.Errorf("without a policy: %+v\n%s", s, c.now())
	}
}

func TestClaims(t *testing.T) {
	n := start(t, &fakeCard{}, t.TempDir(), "b")
	n.SetPolicy(t.Context(), redisAndWeb(1), nil)
	hold := func(key, class, unit string) error {
		return n.Hold(t.Context(),
			inventory.Hold{Key: key, Claim: "default/" + key, Units: []inventory.Held{{Class: class, Unit: unit}}})
	}
	for _, key := range []string{"k1", "k2", "k1"} {
		if err := hold(key, "dra", ""); err != nil {
			t.Fatal(err)
		}
	}
	if got := n.Holds(); len(got) != 2 || got[0].Units[0].Unit != "dra-0" || got[1].Units[0].Unit != "dra-1" {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct {
		key, class, unit string
		want             error
	}{
		{"k3", "dra", "", inventory.ErrHeld}, {"k3", "redis", "redis-0", inventory.ErrNoClass},
		{"k3", "none", "", inventory.ErrNoClass},
		{"k3", "solo", "solo-1", inventory.ErrNoUnit}, {"k3", "solo", "solo-0", nil},
		{"k4", "solo", "solo-0", inventory.ErrHeld},
	} {
		if err := hold(c.key, c.class, c.unit); !errors.Is(err, c.want) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	n.SetHealth(map[string][]string{"dra": {"its qdisc is gone"}})
	if err := n.Release(t.Context(), "k1"); err != nil {
		t.Fatal(err)
	}
	if err := hold("k5", "dra", ""); !errors.Is(err, inventory.ErrUnhealthy) {
		t.Errorf("got %v", err)
	}
	n.SetHealth(nil)
	if err := errors.Join(n.Release(t.Context(), "k1"), hold("k5", "dra", "")); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestChanged(t *testing.T) {
	n := start(t, &fakeCard{}, t.TempDir(), "b")
	v := n.Now().Version
	changed := n.Changed(v)
	n.SetPolicy(t.Context(), redisAndWeb(1), nil)
	<-changed
	<-n.Changed(v)
	v = n.Now().Version
	n.SetPolicy(t.Context(), redisAndWeb(1), nil)
	if n.Now().Version != v {
		t.Error("nothing has changed, but the version")
	}
	n.SetHealth(map[string][]string{"": {"eth0 is down"}})
	for _, c := range n.Now().Classes {
		for _, u := range c.Units {
			if u.Unhealthy != "eth0 is down" {
				t.Errorf("%s: %q", u.ID, u.Unhealthy)
			}
		}
	}
	if err := n.Granted("redis", []string{"redis-0"}); !errors.Is(err, inventory.ErrUnhealthy) {
		t.Errorf("got %v", err)
	}
}

// TestAlive checks that Alive notices a loop that an apply keeps busy.
func TestAlive(t *testing.T) {
	n := start(t, &fakeCard{}, t.TempDir(), "b")
	if err := n.Alive(t.Context()); err != nil {
		t.Error(err)
	}
	busy, release, done := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		done <- n.do(t.Context(), true, func(*state) error { close(busy); <-release; return nil })
	}()
	<-busy
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := n.Alive(ctx); err == nil {
		t.Error("a busy loop answers")
	}
	close(release)
	if err := errors.Join(<-done, n.Alive(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestForget checks that a unit stays reserved for a pod that kubelet has given it to, until kubelet
// no longer lists the pod.
func TestForget(t *testing.T) {
	n := start(t, &fakeCard{}, t.TempDir(), "b")
	n.SetPolicy(t.Context(), redisAndWeb(1), nil)
	if err := n.Granted("redis", []string{"redis-0"}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, c := range []struct {
		before time.Time
		use    map[string]bool
		held   bool
	}{
		{now.Add(-time.Hour), nil, true},
		{now.Add(time.Hour), map[string]bool{"redis-0": true}, true},
		{now.Add(time.Hour), map[string]bool{"redis-1": true}, false},
	} {
		n.Forget(c.before, c.use)
		n.SetPolicy(t.Context(), &v1alpha1.LanePolicy{}, nil)
		if s := n.Status(); (s.Held["redis"] != "") != c.held {
			t.Errorf("before %v, in use %v: held %v, want %v", c.before.Sub(now), c.use, s.Held, c.held)
		}
	}
}

// TestFrontends checks that pods behind one frontend share one member of the lane. The member stays
// as long as one of these pods exists. A frontend that leads to two lanes is refused.
func TestFrontends(t *testing.T) {
	c := &fakeCard{}
	n := start(t, c, t.TempDir(), "b")
	n.SetPolicy(t.Context(), redisAndWeb(1), nil)
	behind := func(a Attachment) Attachment {
		a.Members = append(a.Members, policy.Member{
			Name: pods.FrontendPrefix + "1", Lane: a.Grants[0].Lane, Protocol: "tcp", Ports: []string{"30080"},
			Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")},
		})
		return a
	}
	for _, a := range []Attachment{attachment("a", "10.0.0.1", "web", "web-0"),
		attachment("b", "10.0.0.2", "web", "web-1")} {
		if err := n.Attach(t.Context(), behind(a)); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(n.Attachments()); got != 2 {
		t.Errorf("%d pods are in lanes, want 2", got)
	}
	err := n.Attach(t.Context(), behind(attachment("c", "10.0.0.3", "redis", "redis-0")))
	if err == nil || !strings.Contains(err.Error(),
		"tcp port 30080 of 192.0.2.1 leads to lane web, with pod default/a") {
		t.Errorf("another lane: %v", err)
	}
	for _, step := range []struct {
		sandbox string
		want    int
	}{{"none", 1}, {"sb-a", 1}, {"sb-b", 0}} {
		if err := n.Detach(t.Context(), step.sandbox, ""); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(c.now(), "30080"); got != step.want {
			t.Errorf("without %s: port 30080 is there %d times, want %d:\n%s", step.sandbox, got, step.want, c.now())
		}
	}
}
