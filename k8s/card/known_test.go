// SPDX-License-Identifier: Apache-2.0

package card

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/apply"
	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/internal/vethtest"
	"github.com/niclane/niclane/journal"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/observe"
	"github.com/niclane/niclane/plan"
)

// shared is a policy with one lane for up to 20 pods, and the member that a pod is there.
func shared() *v1alpha1.LanePolicySpec {
	return &v1alpha1.LanePolicySpec{
		Uplink:  v1alpha1.Uplink{LinkRate: "1gbit", Force: map[string]string{"queue-set": "shared"}},
		Classes: []v1alpha1.Class{{Name: "web", Mode: "shared", Queues: 1, Members: 20, Tuning: v1alpha1.Tuning{Ceiling: "50%"}}},
	}
}

func memberOf(pod int) *policy.Member {
	addr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 98, 0, byte(pod)}), 32)
	return &policy.Member{Name: fmt.Sprint("pod-", pod), Lane: "web", Protocol: "tcp", Ports: []string{"80"}, Addrs: []netip.Prefix{addr}}
}

// TestKnown: a pod's packets are steered without looking at the whole card, unless
// the card is not as it was left; and always to what the file says.
func TestKnown(t *testing.T) {
	dev := uplink(t)
	c := newCard(t)
	spec := shared()
	// put has these pods in the lane, by whoever, and reports whether he looked.
	put := func(who *Card, pods ...int) (r *Result, looked bool) {
		t.Helper()
		n := policy.Node{Device: dev}
		for _, i := range pods {
			n.Members = append(n.Members, memberOf(i))
		}
		f, err := policy.Make(c.Config, spec, n)
		if err != nil {
			t.Fatal(err)
		}
		was := who.known
		r, err = who.Apply(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		st, err := observe.Observe(t.Context(), observe.Options{Devices: []string{dev}, NoProbes: true})
		if err != nil {
			t.Fatal(err)
		}
		var found []int
		for _, e := range st.Device(dev).Entries {
			found = append(found, int(netip.MustParsePrefix(e.Match.Local).Addr().As4()[3]))
		}
		slices.Sort(found)
		if diff := cmp.Diff(pods, slices.Compact(found)); diff != "" {
			t.Fatalf("pods in the lane (-asked +found)\n%s", diff)
		}
		return r, was == nil || r.State != was.state
	}
	quick := func(pods ...int) (r *Result) {
		t.Helper()
		r, looked := put(c, pods...)
		if looked {
			t.Error("the whole card was looked at")
		}
		return r
	}
	slow := func(pods ...int) *Result {
		t.Helper()
		r, looked := put(c, pods...)
		if !looked {
			t.Error("the card was not looked at")
		}
		if !members(r.Plan.Steps) && c.kernel != nil {
			t.Error("the programs that were prepared are held")
		}
		return r
	}
	look := func(drifts bool) {
		t.Helper()
		views, err := c.Look(t.Context())
		if err != nil || len(views) != 1 || (len(views[0].Drifts) > 0) != drifts || (c.known == nil) != drifts {
			t.Fatalf("looked: %+v, %v; known: %v", views, err, c.known != nil)
		}
	}

	slow(1)
	files := openFiles(t)
	r := quick(1, 2)
	quick(2)
	look(false)
	quick(2, 3)

	// Somebody has taken an entry that is to be removed.
	k, err := apply.NewKernel()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Plan.Steps { // of pod 2
		if err := k.Write(s.New, nil); err != nil {
			t.Fatal(err)
		}
	}
	slow(3)
	look(false) // and what is gone is off the record
	quick(3, 4)

	// Somebody has made one that is to be made.
	r = quick(3, 4, 5)
	quick(3, 4)
	for _, s := range r.Plan.Steps {
		if err := k.Write(nil, s.New); err != nil {
			t.Fatal(err)
		}
	}
	slow(3, 4, 5)
	for _, s := range r.Plan.Steps { // which is not the agent's to remove
		if err := k.Write(s.New, nil); err != nil {
			t.Fatal(err)
		}
	}

	// Somebody has put another filter into the place of niclane's, and nobody has said
	// so: with the maps of the one before, members would be written to where no packet
	// comes.
	quick(3, 4, 9)
	if c.kernel == nil {
		t.Error("the connection is not kept for the next pod")
	}
	quick(3, 4, 9)
	if c.kernel == nil {
		t.Error("the connection is not kept when there was nothing to do")
	}
	vethtest.TC(t, "qdisc del dev "+dev+" clsact")
	slow(3, 4, 9, 10)
	quick(3, 4)

	// What is more than a member's is planned on what there is.
	spec.Classes[0].Ceiling = "60%"
	slow(3, 4)
	quick(3, 4, 6)

	// What is told about is looked at, and then made anew with the next pod.
	vethtest.TC(t, "qdisc del dev "+dev+" root")
	look(true)
	if r := slow(3, 4, 6, 7); members(r.Plan.Steps) {
		t.Error("the qdisc was not made anew")
	}
	look(false)
	quick(3, 4)

	// Another niclane has applied meanwhile.
	other := &Card{StateDir: c.StateDir, RunDir: c.RunDir, Config: c.Config}
	put(other, 3, 4, 8)
	slow(3, 4)
	quick(3)
	if err := c.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.kernel != nil {
		t.Error("the maps of what was removed are held open")
	}
	slow(1)
	quick(1, 2)

	// Another niclane has removed the lanes: the keeper finds none.
	if err := other.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if views, err := c.Look(t.Context()); len(views) != 0 || err != nil || c.kernel != nil {
		t.Errorf("looked: %+v, %v; still connected: %t", views, err, c.kernel != nil)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(10 * time.Second); openFiles(t) > files; runtime.Gosched() { // a journal's are closed beside it
		if time.Now().After(end) {
			t.Fatalf("%d files and sockets are open, %d before", openFiles(t), files)
		}
	}
}

// TestRenewed: what the devices can do is asked anew where it may have changed.
func TestRenewed(t *testing.T) {
	dev := uplink(t)
	c := newCard(t)
	f, err := policy.Make(c.Config, &v1alpha1.LanePolicySpec{Uplink: v1alpha1.Uplink{LinkRate: "1gbit"}, Classes: []v1alpha1.Class{{Name: "web", Queues: 1}}}, policy.Node{Device: dev})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first has queues made anew, after which nothing is known
		if _, err := c.Apply(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	j, release, err := c.current()
	if err != nil {
		t.Fatal(err)
	}
	release()
	look := func() *device.State {
		st, err := observe.Observe(t.Context(), observe.Options{Devices: c.known.devices, NoProbes: true})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	got := c.known.renewed(look(), nil, j)
	if got == nil || len(got.state.Capabilities) == 0 || len(got.state.Device(dev).Capabilities) == 0 {
		t.Fatalf("nothing has changed, and it is not known what the device can do: %v", got)
	}
	for name, change := range map[string]func(*device.State){
		"kernel":   func(st *device.State) { st.Kernel.Release += "+" },
		"devices":  func(st *device.State) { st.Devices = nil },
		"index":    func(st *device.State) { st.Device(dev).Index++ },
		"driver":   func(st *device.State) { st.Device(dev).Driver += "x" },
		"firmware": func(st *device.State) { st.Device(dev).Firmware += "x" },
		"channels": func(st *device.State) { st.Device(dev).Channels = nil },
		"features": func(st *device.State) {
			st.Device(dev).Features["hw-tc-offload"] = device.Setting{On: true, Fixed: true}
		},
	} {
		st := look()
		if change(st); c.known.renewed(st, nil, j) != nil {
			t.Errorf("%s has changed, and the device is taken for what it was", name)
		}
	}
	if c.known.renewed(look(), []string{"/a"}, j) != nil {
		t.Error("other control groups are taken for the same")
	}
	if err := c.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestSaved: what is known of a file holds until somebody writes it.
func TestSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "applied.json")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := saved{path: path, state: &device.State{}}
	if err := unix.Stat(path, &s.as); err != nil {
		t.Fatal(err)
	}
	if s.now(path) != s.state {
		t.Error("the file is as it was, and read")
	}
	if s.now(path+"x") != nil {
		t.Error("another file is taken for it")
	}
	was, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	// As big, and as old as it says.
	if err := os.WriteFile(path, []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, was.ModTime(), was.ModTime()); err != nil {
		t.Fatal(err)
	}
	if s.now(path) != nil {
		t.Error("the file was written, and is taken for what it was")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if s.now(path) != nil || (&saved{}).now("") != nil {
		t.Error("no file is taken for one")
	}
}

// TestForesee: what a plan leaves is known, also where nobody has looked since; and what
// steps do not say is looked at.
func TestForesee(t *testing.T) {
	dev := uplink(t)
	c := newCard(t)
	n := policy.Node{Device: dev}
	for pod := range 3 {
		n.Members = append(n.Members, memberOf(pod+1))
		putIn(t, c, n)
		is, err := observe.Observe(t.Context(), observe.Options{Devices: []string{dev}, NoProbes: true})
		if err != nil {
			t.Fatal(err)
		}
		byMatch := func(a, b device.FilterEntry) int { return strings.Compare(a.Match.String(), b.Match.String()) }
		known, found := c.known.state.Device(dev).Entries, is.Device(dev).Entries
		slices.SortFunc(known, byMatch)
		slices.SortFunc(found, byMatch)
		if diff := cmp.Diff(known, found); diff != "" || len(known) != pod+1 {
			t.Errorf("pod %d: entries (-known +found)\n%s", pod, diff)
		}
	}
	if err := c.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	remaking := &plan.Plan{Devices: []string{dev}, Steps: []plan.Step{{New: device.Channels{Dev: dev}}}}
	if foresee(remaking, &device.State{}) != nil {
		t.Error("what a driver makes of its queues is taken for known")
	}
}

// TestCompared: verify finds what is there of a pod that has gone, whether it was there
// when the lanes were made or came later; and a pod that comes is no reason to take what
// somebody else has done since for what is to be there.
func TestCompared(t *testing.T) {
	dev := uplink(t)
	c := newCard(t)
	file := func() unix.Stat_t {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Stat(c.saved.path, &st); err != nil {
			t.Fatal(err)
		}
		return st
	}
	drifts := func() (keys []string) {
		t.Helper()
		views, err := c.Look(t.Context())
		if err != nil || len(views) != 1 {
			t.Fatal(views, err)
		}
		for _, f := range views[0].Drifts {
			keys = append(keys, f.Key)
		}
		return keys
	}
	entries := func() []device.FilterEntry {
		t.Helper()
		st, err := observe.Observe(t.Context(), observe.Options{Devices: []string{dev}, NoProbes: true})
		if err != nil {
			t.Fatal(err)
		}
		return st.Device(dev).Entries
	}
	putIn(t, c, policy.Node{Device: dev, Members: []*policy.Member{memberOf(1)}})
	first := entries()
	was := file()
	putIn(t, c, policy.Node{Device: dev, Members: []*policy.Member{memberOf(1), memberOf(2)}})
	both := entries()
	if len(first) != 1 || len(both) != 2 {
		t.Fatal(first, both)
	}
	putIn(t, c, policy.Node{Device: dev, Members: []*policy.Member{memberOf(3)}})
	if file() != was {
		t.Error("what verify compares with was written for pods that came and went")
	}
	if found := drifts(); len(found) > 0 {
		t.Errorf("drifts: %v", found)
	}

	k, err := apply.NewKernel()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	var left []string
	for _, e := range both {
		if err := k.Write(nil, e); err != nil {
			t.Fatal(err)
		}
		left = append(left, e.Key())
	}
	slices.Sort(left)
	for _, pods := range [][]*policy.Member{{memberOf(3)}, {memberOf(3), memberOf(4)}} {
		putIn(t, c, policy.Node{Device: dev, Members: pods})
		for _, fresh := range []bool{false, true} { // as the agent, and as niclane verify, which reads the file
			if fresh {
				c.saved = saved{}
			}
			found := drifts()
			slices.Sort(found)
			if diff := cmp.Diff(left, found); diff != "" {
				t.Errorf("%d pods, from the file %t: drifts (-left +found)\n%s", len(pods), fresh, diff)
			}
		}
	}
	for _, e := range both {
		if err := k.Write(e, nil); err != nil {
			t.Fatal(err)
		}
	}
	j, release, err := c.current()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	coming := &plan.Plan{Steps: []plan.Step{{New: both[0]}}}
	if !c.compares(&asked{mine: []*journal.Journal{j}}, coming, c.saved.path) {
		t.Error("what there is beside the members is taken for changed by one")
	}
	coming.Steps = append(coming.Steps, plan.Step{New: device.Class{Dev: dev, ID: "1:10"}})
	if c.compares(&asked{mine: []*journal.Journal{j}}, coming, c.saved.path) {
		t.Error("what there was before a class came is compared with")
	}
	coming.Steps = coming.Steps[:1]
	if c.compares(&asked{}, coming, c.saved.path) {
		t.Error("what there was with other lanes is compared with")
	}
	if err := c.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestWithout: what a member has replaced is in the state that is compared with, as it is
// found again when the member has gone.
func TestWithout(t *testing.T) {
	mine := device.Rule{Dev: "up", Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80}, Queue: 3}
	theirs := mine
	theirs.Queue = 1
	other, alone := mine, mine
	other.Match.LocalPort, alone.Match.LocalPort = 81, 82
	class := device.Class{Dev: "up", ID: "1:10"} // nobody's member
	st := &device.State{Devices: []device.Device{{Name: "up", Rules: []device.Rule{mine, other, alone}, Classes: []device.Class{class}}}}
	left := without(st, []journal.Record{{Original: theirs, Last: mine}, {Last: alone}, {Last: class}})
	if diff := cmp.Diff([]device.Rule{other, theirs}, left.Devices[0].Rules); diff != "" || len(left.Devices[0].Classes) != 1 {
		t.Errorf("%+v: rules (-want +left)\n%s", left.Devices[0].Classes, diff)
	}
	if len(st.Devices[0].Rules) != 3 || st.Devices[0].Rules[0] != mine {
		t.Errorf("the state itself has changed: %+v", st.Devices[0].Rules)
	}
}

// putIn makes shared's lane with these pods.
func putIn(t *testing.T, c *Card, n policy.Node) {
	t.Helper()
	f, err := policy.Make(c.Config, shared(), n)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Apply(t.Context(), f)
	if err != nil || len(r.Warnings) > 0 {
		t.Fatal(err, r)
	}
}

// TestUnwritten: where people could not read what the lanes are, none are made.
func TestUnwritten(t *testing.T) {
	dev := uplink(t)
	c := newCard(t)
	c.Config = filepath.Join(t.TempDir(), "none", "lanes.yaml")
	f, err := policy.Make(c.Config, &v1alpha1.LanePolicySpec{
		Uplink:  v1alpha1.Uplink{LinkRate: "1gbit", Force: map[string]string{"queue-set": "shared"}},
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
	if j, release, err := c.current(); j != nil || err != nil {
		t.Errorf("journalled: %v, %v", j, err)
		if release != nil {
			release()
		}
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
