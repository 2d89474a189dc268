// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// TestCompared: if an object of a removed member is still there, verify reports it. This holds
// for members of the first apply and for later ones. An apply with a new member does not accept
// changes by other programs.
func TestCompared(t *testing.T) {
	dev := vethtest.Uplink(t)
	e := newEngine(t)
	put := func(members ...int) {
		t.Helper()
		if _, err := e.Apply(t.Context(), shared(t, dev, "50%", members...), ApplyOptions{Keep: true}); err != nil {
			t.Fatal(err)
		}
	}
	remembered := func() string {
		t.Helper()
		path, err := e.appliedPath(dev)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	put(1)
	first, was := entries(t, dev), remembered()
	put(1, 2)
	both := entries(t, dev)
	if len(first) != 1 || len(both) != 2 {
		t.Fatal(first, both)
	}
	put(3)
	if remembered() != was {
		t.Error("what is compared with was written for members that came and went")
	}
	since := look(t, e).Since
	if found := drifts(look(t, e)); len(found) > 0 {
		t.Errorf("drifts: %v", found)
	}
	k, err := apply.NewKernel("")
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	var left []string
	for _, entry := range both {
		if err := k.Write(nil, entry); err != nil {
			t.Fatal(err)
		}
		left = append(left, entry.Key())
	}
	slices.Sort(left)
	for _, members := range [][]int{{3}, {3, 4}} {
		put(members...)
		v := look(t, e)
		if diff := cmp.Diff(left, drifts(v)); diff != "" {
			t.Errorf("%d members: drifts (-left +found)\n%s", len(members), diff)
		}
		if v.Since != since {
			t.Errorf("a member came, and the lanes are taken for applied anew: %s, were %s", v.Since, since)
		}
	}
	k.Anew() // the kernel has other members than k has cached
	for _, entry := range both {
		if err := k.Write(entry, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Apply(t.Context(), shared(t, dev, "60%", 3), ApplyOptions{Keep: true}); err != nil {
		t.Fatal(err)
	}
	if v := look(t, e); v.Since == since || v.Drifted() {
		t.Errorf("another ceiling: %+v, since %s", v.Findings, v.Since)
	}
	rollback(t, e)
	if left, err := filepath.Glob(filepath.Join(e.RunDir, "[ac]*-*.json*")); len(left) > 0 || err != nil {
		t.Errorf("left in the run directory: %v, %v", left, err)
	}
}

// TestKeep: after an apply with Keep, verify still reports changes by another program. After an
// apply without Keep, it no longer does.
func TestKeep(t *testing.T) {
	dev := vethtest.Uplink(t)
	e := newEngine(t)
	put := func(ceiling string, keep bool) *View {
		t.Helper()
		if _, err := e.Apply(t.Context(), shared(t, dev, ceiling, 1), ApplyOptions{Keep: keep}); err != nil {
			t.Fatal(err)
		}
		return look(t, e)
	}
	if v := put("50%", false); v.Drifted() {
		t.Fatal(drifts(v))
	}
	root := strings.Fields(vethtest.Qdiscs(t, dev))[2]
	vethtest.TC(t, "class add dev "+dev+" parent "+root+" classid "+root+"77 htb rate 1mbit")
	if v := look(t, e); !v.Drifted() {
		t.Fatal("a class came, and is no drift")
	}
	if v := put("60%", true); !v.Drifted() {
		t.Error("the class is taken for what is to be there")
	}
	if v := put("70%", false); v.Drifted() {
		t.Errorf("after an apply by hand: %v", drifts(v))
	}
	vethtest.TC(t, "class del dev "+dev+" classid "+root+"77")
	rollback(t, e)
}

// TestAfterReplaced: if a member's object has replaced one of another program, the state to
// compare with has the other program's: it comes back when the member is removed.
func TestAfterReplaced(t *testing.T) {
	mine := device.Rule{Dev: "up", Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80}, Queue: 3}
	theirs := mine
	theirs.Queue = 1
	other, alone := mine, mine
	other.Match.LocalPort, alone.Match.LocalPort = 81, 82
	class := device.Class{Dev: "up", ID: "1:10"} // not the object of a member
	st := &device.State{Devices: []device.Device{{Name: "up", Rules: []device.Rule{mine, other, alone},
		Classes: []device.Class{class}}}}
	left := after(st, nil, []journal.Record{{Record: plan.Record{Original: theirs, Last: mine}},
		{Record: plan.Record{Last: alone}}, {Record: plan.Record{Last: class}}})
	if diff := cmp.Diff([]device.Rule{other, theirs}, left.Devices[0].Rules); diff != "" ||
		len(left.Devices[0].Classes) != 1 {
		t.Errorf("%+v: rules (-want +left)\n%s", left.Devices[0].Classes, diff)
	}
	if len(st.Devices[0].Rules) != 3 || st.Devices[0].Rules[0] != mine {
		t.Errorf("the state itself has changed: %+v", st.Devices[0].Rules)
	}
}

// TestRememberFirst: the first apply of a file does not use a state in the run directory that is
// of other lanes.
func TestRememberFirst(t *testing.T) {
	dev := vethtest.Uplink(t)
	e := newEngine(t)
	if _, err := e.Apply(t.Context(), shared(t, dev, "50%", 1), ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	v := look(t, e)
	old := v.Journal.Head()
	path, err := e.appliedPath(dev)
	if err != nil {
		t.Fatal(err)
	}
	for generation, kept := range map[int]bool{1: false, 2: true} {
		if err := os.WriteFile(path, []byte("others'"), 0o600); err != nil {
			t.Fatal(err)
		}
		h := *old
		h.Generation = generation
		h.Plan = &plan.Plan{Devices: []string{dev}, Steps: []plan.Step{{New: entries(t, dev)[0]}}}
		if err := e.remember(journal.New(h), true, v.Now); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); (string(b) == "others'") != kept || err != nil {
			t.Errorf("generation %d: kept: %t, %v", generation, string(b) == "others'", err)
		}
	}
	rollback(t, e)
}

func TestRemakes(t *testing.T) {
	for _, o := range []device.Object{device.Channels{}, device.Ring{}, device.Feature{}, device.XDP{}} {
		if !remakes(plan.Step{New: o}) {
			t.Errorf("%s leaves the queues as they are", o.Kind())
		}
	}
	for _, o := range []device.Object{device.Class{}, device.FilterEntry{}, device.Rule{}} {
		if remakes(plan.Step{New: o}) {
			t.Errorf("%s makes other queues", o.Kind())
		}
	}
}

// TestFailed: after a failed apply, the journal does not have the values of its steps as
// niclane's.
func TestFailed(t *testing.T) {
	dev := vethtest.Uplink(t)
	e := newEngine(t)
	if _, err := e.Apply(t.Context(), shared(t, dev, "50%", 1), ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	root := strings.Fields(vethtest.Qdiscs(t, dev))[2]
	meanwhile := ApplyOptions{Planned: func(p *plan.Plan) error {
		for _, s := range p.Steps { // another program sets another rate
			if c, is := s.Old.(device.Class); is {
				vethtest.TC(t, "class change dev "+dev+" parent "+c.Parent+" classid "+c.ID+
					" htb rate 1mbit ceil 2mbit")
			}
		}
		return nil
	}}
	r, err := e.Apply(t.Context(), shared(t, dev, "60%", 1), meanwhile)
	var failed *FailedError
	if !errors.As(err, &failed) || failed.Left != 0 || r == nil || r.Report == nil {
		t.Fatalf("root %s: %v, %+v", root, err, r)
	}
	if h := look(t, e).Journal.Head(); h.Generation != 1 {
		t.Errorf("generation %d is on record after the second apply has failed", h.Generation)
	}
	if _, err := e.Rollback(t.Context(), RollbackOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
}

// TestRepair: Repair makes removed objects again, except those for which leave is true.
func TestRepair(t *testing.T) {
	dev := vethtest.Uplink(t)
	e := newEngine(t)
	f := shared(t, dev, "50%", 1)
	if _, err := e.Apply(t.Context(), f, ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	vethtest.TC(t, "filter del dev "+dev+" egress")
	none := func(string) bool { return false }
	left := func(key string) bool { return strings.Contains(key, "filter/") }
	if r, err := e.Repair(t.Context(), f.Name, left); err != nil || len(r.Done) > 0 {
		t.Errorf("left: made %q, %v", r.Done, err)
	}
	if r, err := e.Repair(t.Context(), "/other.yaml", none); err != nil || len(r.Done) > 0 {
		t.Errorf("another file: made %q, %v", r.Done, err)
	}
	if r, err := e.Repair(t.Context(), f.Name, none); err != nil || len(r.Done) == 0 {
		t.Errorf("made %q, %v", r.Done, err)
	}
	if v := look(t, e); v.Drifted() {
		t.Errorf("after repair: %v", drifts(v))
	}
	rollback(t, e)
}
