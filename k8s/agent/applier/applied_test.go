// SPDX-License-Identifier: Apache-2.0

package card

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
)

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
	if foresee(planned{Plan: remaking, state: &device.State{}}) != nil {
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

	k, err := apply.NewKernel("")
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
	if !c.upToDate(&asked{mine: []*journal.Journal{j}}, coming, c.saved.path) {
		t.Error("what there is beside the members is taken for changed by one")
	}
	coming.Steps = append(coming.Steps, plan.Step{New: device.Class{Dev: dev, ID: "1:10"}})
	if c.upToDate(&asked{mine: []*journal.Journal{j}}, coming, c.saved.path) {
		t.Error("what there was before a class came is compared with")
	}
	coming.Steps = coming.Steps[:1]
	if c.upToDate(&asked{}, coming, c.saved.path) {
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
