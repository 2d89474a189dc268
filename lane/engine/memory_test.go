// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
)

// TestKnown: as long as the machine has not changed, an apply of a new member does not read the
// whole machine. In all cases, the machine is then as the file says.
func TestKnown(t *testing.T) {
	dev := vethtest.Uplink(t)
	e := newEngine(t)
	e.Memory = new(Memory)
	ceiling := "50%"
	// put applies a lane with these members with the engine who. looked reports whether who has read
	// the whole machine.
	put := func(who *Engine, members ...int) (r *Result, looked bool) {
		t.Helper()
		was := who.Memory.known
		r, err := who.Apply(t.Context(), shared(t, dev, ceiling, members...), ApplyOptions{Keep: true})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(members, membersIn(t, dev)); diff != "" {
			t.Fatalf("members in the lane (-asked +found)\n%s", diff)
		}
		return r, was == nil || r.State != was.state
	}
	quick := func(members ...int) *Result {
		t.Helper()
		r, looked := put(e, members...)
		if looked {
			t.Error("the whole machine was looked at")
		}
		return r
	}
	slow := func(of ...int) *Result {
		t.Helper()
		r, looked := put(e, of...)
		if !looked {
			t.Error("the machine was not looked at")
		}
		if !members(r.Plan.Steps) && e.Memory.kernel != nil {
			t.Error("the programs that were prepared are held")
		}
		return r
	}
	seen := func(drifted bool) {
		t.Helper()
		if v := look(t, e); v.Drifted() != drifted || (e.Memory.known == nil) != drifted {
			t.Fatalf("looked: %+v; known: %v", v.Findings, e.Memory.known != nil)
		}
	}

	slow(1)
	files := openFiles(t)
	r := quick(1, 2)
	quick(2)
	seen(false)
	quick(2, 3)

	// Another program removes an entry that the next apply would remove.
	k, err := apply.NewKernel("")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Plan.Steps { // the steps for member 2
		if err := k.Write(s.New, nil); err != nil {
			t.Fatal(err)
		}
	}
	slow(3)
	seen(false) // the removed entry is no longer in the journal
	quick(3, 4)

	// Another program makes an entry that the next apply would make.
	r = quick(3, 4, 5)
	quick(3, 4)
	for _, s := range r.Plan.Steps {
		if err := k.Write(nil, s.New); err != nil {
			t.Fatal(err)
		}
	}
	slow(3, 4, 5)
	for _, s := range r.Plan.Steps { // the entry is another program's, so niclane will not remove it
		if err := k.Write(s.New, nil); err != nil {
			t.Fatal(err)
		}
	}

	// Another program replaces niclane's filter, and the kernel sends no notification. With the maps
	// of the old filter, new members would be written to maps that no packet uses.
	quick(3, 4, 9)
	if e.Memory.kernel == nil {
		t.Error("the connection is not kept for the next member")
	}
	quick(3, 4, 9)
	if e.Memory.kernel == nil {
		t.Error("the connection is not kept when there was nothing to do")
	}
	vethtest.TC(t, "qdisc del dev "+dev+" clsact")
	slow(3, 4, 9, 10)
	quick(3, 4)

	// A change of more than members needs the whole machine to be read.
	ceiling = "60%"
	slow(3, 4)
	quick(3, 4, 6)

	// After a notification, Look reads the machine, and the next apply repairs it.
	vethtest.TC(t, "qdisc del dev "+dev+" root")
	seen(true)
	if r := slow(3, 4, 6, 7); members(r.Plan.Steps) {
		t.Error("the qdisc was not made anew")
	}
	seen(false)
	quick(3, 4)

	// Another niclane process applies in between.
	other := newEngine(t)
	other.StateDir, other.RunDir, other.Memory = e.StateDir, e.RunDir, new(Memory)
	put(other, 3, 4, 8)
	slow(3, 4)
	ceiling = "70%"
	put(other, 3, 4)
	ceiling = "60%"
	if r := slow(3, 4); members(r.Plan.Steps) {
		t.Error("the other one's ceiling is taken for what it was before")
	}
	quick(3)
	rollback(t, e)
	if e.Memory.kernel != nil || e.Memory.known != nil {
		t.Error("what was removed is known, or its maps are held open")
	}
	slow(1)
	quick(1, 2)

	// Another niclane process removes the lanes. Look must return none.
	rollback(t, other)
	if views, err := e.Look(t.Context(), nil); len(views) > 0 || err != nil || e.Memory.kernel != nil {
		t.Errorf("found: %v, %v; still connected: %t", views, err, e.Memory.kernel != nil)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	// Journal files are closed in the background, so wait for that.
	for end := time.Now().Add(10 * time.Second); openFiles(t) > files; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d files and sockets are open, %d before", openFiles(t), files)
		}
	}
}

// TestKnownState: after the steps of a plan, the kept state is that of the machine, which was not
// read. For steps whose result cannot be known before, the machine must be read.
func TestKnownState(t *testing.T) {
	dev := vethtest.Uplink(t)
	e := newEngine(t)
	e.Memory = new(Memory)
	var in []int
	for i := range 3 {
		in = append(in, i+1)
		if _, err := e.Apply(t.Context(), shared(t, dev, "50%", in...), ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
		byMatch := func(a, b device.FilterEntry) int { return strings.Compare(a.Match.String(), b.Match.String()) }
		known, found := slices.Clone(e.Memory.known.state.Device(dev).Entries), entries(t, dev)
		slices.SortFunc(known, byMatch)
		slices.SortFunc(found, byMatch)
		if diff := cmp.Diff(known, found); diff != "" || len(known) != i+1 {
			t.Errorf("member %d: entries (-known +found)\n%s", i, diff)
		}
	}
	js, err := e.Journals()
	if err != nil {
		t.Fatal(err)
	}
	m := new(Memory)
	p := &Planned{Plan: &plan.Plan{Devices: []string{dev}, Steps: []plan.Step{{New: device.Channels{Dev: dev}}}},
		State: &device.State{}}
	if m.keep(js[0], nil, p); m.known != nil {
		t.Error("what a driver makes of its queues is taken for known")
	}
	rollback(t, e)
}

// TestRenewed: if capabilities may have changed, they are probed again.
func TestRenewed(t *testing.T) {
	dev := vethtest.Uplink(t)
	seen := func(probe bool) *device.State {
		st, err := observe.Observe(t.Context(), observe.Options{Devices: []string{dev}, NoProbes: !probe})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	before := seen(true)
	got := renewed(before, seen(false))
	if got == nil || len(got.Capabilities) == 0 || len(got.Device(dev).Capabilities) == 0 {
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
		st := seen(false)
		if change(st); renewed(before, st) != nil {
			t.Errorf("%s has changed, and the device is taken for what it was", name)
		}
	}
}

// TestPlanned: the function Planned gets the plan before it is applied, even with the kept state.
// If the function returns an error, nothing is applied.
func TestPlanned(t *testing.T) {
	dev := vethtest.Uplink(t)
	e := newEngine(t)
	e.Memory = new(Memory)
	told := 0
	no := errors.New("no")
	for i, members := range [][]int{{1}, {1, 2}} {
		f := shared(t, dev, "50%", members...)
		refuse := ApplyOptions{Planned: func(p *plan.Plan) error { told += min(len(p.Steps), 1); return no }}
		if _, err := e.Apply(t.Context(), f, refuse); !errors.Is(err, no) || told != i+1 ||
			len(membersIn(t, dev)) != i {
			t.Errorf("%d members: %v, told %d times, made: %v", i+1, err, told, membersIn(t, dev))
		}
		for range 2 { // the second apply uses the kept state
			if _, err := e.Apply(t.Context(), f, ApplyOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	rollback(t, e)
}

// TestOtherGroups: if a look has read other control groups, its state does not replace the kept
// one.
func TestOtherGroups(t *testing.T) {
	dev := vethtest.Uplink(t)
	e := newEngine(t)
	e.Memory = new(Memory)
	if _, err := e.Apply(t.Context(), shared(t, dev, "50%", 1), ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	v := look(t, e)
	was := e.Memory.known
	for name, change := range map[string]func(*View){
		"nothing":     func(*View) {},
		"groups":      func(v *View) { v.Groups = []string{"/a"} },
		"all devices": func(v *View) { v.Known = false },
	} {
		seen := *v
		change(&seen)
		e.Memory.known = nil
		if e.Memory.looked(was, &seen); (e.Memory.known != nil) != (name == "nothing") {
			t.Errorf("%s: known: %t", name, e.Memory.known != nil)
		}
	}
	rollback(t, e)
}

// TestLookBesideApply: during an apply that changes members, a look sees the old or the new
// members. It never reports a drift.
func TestLookBesideApply(t *testing.T) {
	dev := vethtest.Uplink(t)
	e := newEngine(t)
	e.Memory = new(Memory)
	f := [2]*File{shared(t, dev, "50%", 1), shared(t, dev, "50%", 1, 2)}
	if _, err := e.Apply(t.Context(), f[0], ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 100 && err == nil; i++ {
			_, err = e.Apply(t.Context(), f[i%2], ApplyOptions{Keep: true})
		}
		done <- err
	}()
	looks := 0
	for {
		if v := look(t, e); v.Drifted() {
			t.Errorf("look %d: %v", looks, drifts(v))
		}
		looks++
		select {
		case err := <-done:
			if err != nil || looks < 10 {
				t.Errorf("%d looks, %v", looks, err)
			}
			rollback(t, e)
			return
		default:
		}
	}
}
