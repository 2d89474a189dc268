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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
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
	var maker policy.Maker
	known := map[int]*policy.Member{}
	// put has these pods in the lane, by whoever, and reports whether he looked.
	put := func(who *Card, pods ...int) (r *Result, looked bool) {
		t.Helper()
		n := policy.Node{Device: dev}
		for _, i := range pods {
			if known[i] == nil {
				known[i] = memberOf(i)
			}
			n.Members = append(n.Members, known[i])
		}
		f, err := maker.Make(c.Config, spec, n)
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
		return r, was == nil || r.State != was.beside()
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
		if !drifts && c.known.settled == nil {
			t.Error("the next pod is planned with all others")
		}
	}

	slow(1)
	files := openFiles(t)
	r := quick(1, 2)
	quick(2)
	look(false)
	quick(2, 3)

	// Somebody has taken an entry that is to be removed.
	k, err := apply.NewKernel("")
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
	if got == nil || len(got.beside().Capabilities) == 0 || len(got.beside().Device(dev).Capabilities) == 0 {
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
