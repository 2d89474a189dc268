// SPDX-License-Identifier: Apache-2.0

package applier

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/poller"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == poller.Command {
		if err := poller.Main(os.Args[2]); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(vethtest.Isolate(m))
}

func newApplier(t testing.TB) *Applier {
	t.Helper()
	dir := t.TempDir()
	return New(filepath.Join(dir, "state"), filepath.Join(dir, "run"), filepath.Join(dir, "kubernetes.yaml"))
}

// TestFault9AnyDevice makes lanes on a veth device, adds a pod, and removes everything. It checks
// that the device is then as before.
func TestFault9AnyDevice(t *testing.T) {
	dev := vethtest.Uplink(t)
	before := vethtest.Qdiscs(t, dev)
	c := newApplier(t)
	spec := &v1alpha1.LanePolicySpec{
		Uplink: v1alpha1.Uplink{LinkRate: "1G"},
		Classes: []v1alpha1.Class{{Name: "redis", Queues: 1, Capacity: 2,
			Tuning: v1alpha1.Tuning{Rank: 1, Poller: "Interrupt"}},
			{Name: "web", Mode: v1alpha1.Shared, Queues: 2, Tuning: v1alpha1.Tuning{Rank: 3}}},
	}
	build := func(members ...*policy.Member) *policy.File {
		f, err := policy.Make(c.Config, spec, policy.Node{Device: dev, Members: members})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	r, err := c.Apply(t.Context(), build())
	if err != nil {
		t.Fatal(err)
	}
	if r.Report == nil || len(r.Plan.Lanes) != 4 {
		t.Fatalf("%d steps, lanes %v", len(r.Plan.Steps), r.Plan.Lanes)
	}
	if r, err = c.Apply(t.Context(), build()); err != nil || r.Report != nil {
		t.Errorf("again: %d steps, %v", len(r.Plan.Steps), err)
	}
	pod := &policy.Member{Name: "p", Lane: "redis-1", Protocol: "tcp", Ports: []string{"6379"},
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.77.0.9/32")}}
	r, err = c.Apply(t.Context(), build(pod))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Plan.Steps {
		switch s.Object().(type) {
		case device.FilterEntry, device.XDPEntry:
		default:
			t.Errorf("adding a pod wrote %s", s.Key())
		}
	}
	if r.Report == nil {
		t.Error("adding a pod wrote nothing")
	}
	views, err := c.Look(t.Context())
	if err != nil || len(views) != 1 || len(views[0].Drifts) != 0 {
		t.Fatalf("looked: %+v, %v", views, err)
	}
	// A change by tc is found and repaired.
	vethtest.TC(t, "qdisc del dev "+dev+" root")
	if views, err = c.Look(t.Context()); err != nil || len(views[0].Drifts) == 0 {
		t.Fatalf("after tc qdisc del: %+v, %v", views, err)
	}
	if _, err := c.Repair(t.Context(), c.Config, func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if views, err = c.Look(t.Context()); err != nil || len(views[0].Drifts) != 0 {
		t.Fatalf("after repair: %+v, %v", views, err)
	}
	if err := c.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := vethtest.Qdiscs(t, dev); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// TestRepairPieces checks a repair after another program has replaced the root qdisc: the repair
// does not touch this qdisc and returns an error, but restores everything else.
func TestRepairPieces(t *testing.T) {
	dev := vethtest.Uplink(t)
	c := newApplier(t)
	spec := &v1alpha1.LanePolicySpec{
		Uplink: v1alpha1.Uplink{LinkRate: "1G"},
		Classes: []v1alpha1.Class{{Name: "redis", Queues: 1, Capacity: 2,
			Tuning: v1alpha1.Tuning{Rank: 1, Poller: "Interrupt"}}},
	}
	pod := &policy.Member{Name: "p", Lane: "redis-1", Protocol: "tcp", Ports: []string{"6379"},
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.77.0.9/32")}}
	f, err := policy.Make(c.Config, spec, policy.Node{Device: dev, Members: []*policy.Member{pod}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	vethtest.TC(t, "qdisc replace dev "+dev+" root handle 7: tbf rate 100mbit burst 10k limit 100k")
	vethtest.TC(t, "filter del dev "+dev+" egress")
	done, err := c.Repair(t.Context(), c.Config, func(string) bool { return false })
	if err == nil || !strings.Contains(err.Error(), "tbf") {
		t.Errorf("error %v, want one that names the tbf", err)
	}
	if !slices.ContainsFunc(done.Done, func(key string) bool { return strings.HasPrefix(key, "filter/"+dev) }) {
		t.Errorf("made %q, want the filter among it", done.Done)
	}
	views, err := c.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range views[0].Drifts {
		if strings.HasPrefix(d.Key, "filter/") || strings.HasPrefix(d.Key, "entry/") {
			t.Errorf("still %s: %s", d.Key, d.Found)
		}
	}
	vethtest.TC(t, "qdisc del dev "+dev+" root")
	if _, err := c.Repair(t.Context(), c.Config, func(string) bool { return false }); err != nil {
		t.Error(err)
	}
	if views, err = c.Look(t.Context()); err != nil || len(views[0].Drifts) != 0 {
		t.Errorf("without the tbf: %+v, %v", views, err)
	}
	if err := c.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestChannels checks that a repair restores the number of channels after ethtool has changed it.
// Lanes must not be planned again for the new number, because pods' queues would move.
func TestChannels(t *testing.T) {
	if _, err := exec.LookPath("ethtool"); err != nil {
		t.Skip(err)
	}
	dev := vethtest.Uplink(t)
	c := newApplier(t)
	spec := &v1alpha1.LanePolicySpec{
		Uplink: v1alpha1.Uplink{LinkRate: "1G"},
		Classes: []v1alpha1.Class{{Name: "redis", Queues: 2, Capacity: 2,
			Tuning: v1alpha1.Tuning{Rank: 1, Poller: "Interrupt"}}},
	}
	f, err := policy.Make(c.Config, spec, policy.Node{Device: dev})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	channels := func() string {
		out, err := exec.Command("ethtool", "-l", dev).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, now, _ := strings.Cut(string(out), "Current")
		return now
	}
	before := channels()
	if out, err := exec.Command("ethtool", "-L", dev, "rx", "6", "tx", "6").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if views, err := c.Look(t.Context()); err != nil || len(views[0].Drifts) == 0 {
		t.Fatalf("after ethtool -L: %+v, %v", views, err)
	}
	done, err := c.Repair(t.Context(), c.Config, func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	if got := channels(); got != before {
		t.Errorf("channels were%s and are%s; made %q", before, got, done.Done)
	}
	if views, err := c.Look(t.Context()); err != nil || len(views[0].Drifts) != 0 {
		t.Errorf("after repair: %+v, %v", views, err)
	}
	if err := c.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	dev := vethtest.Uplink(t)
	c := newApplier(t)
	f, err := policy.Make(c.Config,
		&v1alpha1.LanePolicySpec{Classes: []v1alpha1.Class{{Name: "a", Queues: 1,
			Tuning: v1alpha1.Tuning{Guarantee: "10%"}}}}, policy.Node{Device: "absent0"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Apply(t.Context(), f)
	if err == nil || !strings.Contains(err.Error(), "spec.uplink.dev") || !strings.Contains(err.Error(), "absent0") {
		t.Errorf("got %v", err)
	}
	_ = dev
}

// TestNothingStaysOpen checks that Apply leaves no file or socket open.
func TestNothingStaysOpen(t *testing.T) {
	dev := vethtest.Uplink(t)
	c := newApplier(t)
	build := func(dev string, guarantee v1alpha1.Rate) error {
		spec := &v1alpha1.LanePolicySpec{
			Uplink:  v1alpha1.Uplink{LinkRate: "1G", Force: map[string]string{"queue-set": "shared"}},
			Classes: []v1alpha1.Class{{Name: "a", Queues: 1, Tuning: v1alpha1.Tuning{Guarantee: guarantee}}},
		}
		f, err := policy.Make(c.Config, spec, policy.Node{Device: dev})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Apply(t.Context(), f)
		return err
	}
	if err := build(dev, "10%"); err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	for _, guarantee := range []v1alpha1.Rate{"10%", "20%", "20%", "10%"} {
		if err := build(dev, guarantee); err != nil {
			t.Fatal(err)
		}
		if err := build("absent0", guarantee); err == nil {
			t.Fatal("lanes on a device that there is not")
		}
	}
	// A journal's files are closed in the background.
	for end := time.Now().Add(10 * time.Second); openFiles(t) > before; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d files and sockets are open, %d after eight applies more", before, openFiles(t))
		}
	}
	if err := c.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}

// openFiles returns the number of open files and sockets of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// TestUnwritten checks that Apply makes no lanes if it cannot write the lanes file.
func TestUnwritten(t *testing.T) {
	dev := vethtest.Uplink(t)
	c := newApplier(t)
	c.Config = filepath.Join(t.TempDir(), "none", "lanes.yaml")
	f, err := policy.Make(c.Config, &v1alpha1.LanePolicySpec{
		Uplink:  v1alpha1.Uplink{LinkRate: "1G", Force: map[string]string{"queue-set": "shared"}},
		Classes: []v1alpha1.Class{{Name: "web", Queues: 1, Tuning: v1alpha1.Tuning{Ceiling: "50%"}}},
	}, policy.Node{Device: dev})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), f); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	st, err := observe.Observe(t.Context(), observe.Options{Devices: []string{dev}, NoProbes: true})
	if err != nil {
		t.Fatal(err)
	}
	if d := st.Device(dev); len(d.Classes) > 0 || len(d.Filters) > 0 {
		t.Errorf("made: %+v %+v", d.Classes, d.Filters)
	}
	if js, err := c.Engine.Journals(); len(js) > 0 || err != nil {
		t.Errorf("journalled: %v, %v", js, err)
	}
	if err := os.Mkdir(filepath.Dir(c.Config), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(c.Config); err != nil || string(text) != string(f.Text) {
		t.Errorf("%s, %v", text, err)
	}
	if err := c.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestFault11ExactAddress checks that DeviceOf compares whole addresses: 10.78.0.1 does not find
// the device with 10.78.0.10.
func TestFault11ExactAddress(t *testing.T) {
	dev := vethtest.Uplink(t)
	vethtest.IP(t, "addr add 10.78.0.10/24 dev "+dev)
	for addr, want := range map[string]string{"10.77.0.1": dev, "10.78.0.10": dev, "10.78.0.1": "", "::1": "lo"} {
		if got, err := DeviceOf(addr); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", addr, got, err, want)
		}
	}
}

// TestFirstPolicy applies the policy of docs/how-to/kubernetes-install.md to devices that have
// little: one queue, and no rate that they report.
func TestFirstPolicy(t *testing.T) {
	spec := &v1alpha1.LanePolicySpec{
		Uplink:  v1alpha1.Uplink{Force: map[string]string{"queue-set": "shared"}},
		Classes: []v1alpha1.Class{{Name: "first", Mode: v1alpha1.Shared, Queues: 1}},
	}
	vethtest.IP(t, "link add one0 type veth peer name one1\nlink set one0 up\n"+
		"link add silent0 numtxqueues 1 type ifb\nlink set silent0 up")
	for _, dev := range []string{vethtest.Uplink(t), "one0", "silent0"} {
		c := newApplier(t)
		for _, members := range [][]*policy.Member{nil, {{Name: "m", Lane: "first", Protocol: "tcp",
			Ports: []string{"80"}, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32")}}}} {
			f, err := policy.Make(c.Config, spec, policy.Node{Device: dev, Members: members})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Apply(t.Context(), f); err != nil {
				t.Errorf("%s with %d members: %v", dev, len(members), err)
			}
		}
	}
}
