// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/fakekernel"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

func knobs(values ...string) []device.File {
	var out []device.File
	for i, v := range values {
		out = append(out, device.File{Path: "/proc/sys/net/core/knob" + string(rune('a'+i)), Format: device.FileText,
			Value: v})
	}
	return out
}

// threeKnobs returns a kernel with three files, and a plan that changes the three files as one
// group.
func threeKnobs() (*fakekernel.Kernel, *plan.Plan) {
	st := &device.State{Files: map[string]device.File{}, Devices: []device.Device{{Name: "d0"}}}
	p := &plan.Plan{Devices: []string{"d0"}}
	now := knobs("1", "2", "3")
	for i, want := range knobs("10", "20", "30") {
		st.Files[now[i].Path] = now[i]
		p.Steps = append(p.Steps, plan.Step{Old: now[i], New: want})
	}
	return fakekernel.New(st), p
}

// A rounding kernel changes written values of 20 and 30 to lower ones. It also records which
// objects are read together.
type rounding struct {
	*fakekernel.Kernel
	together [][]string
}

func (r *rounding) ReadMany(objects []device.Object) ([]device.Object, error) {
	var keys []string
	out := make([]device.Object, len(objects))
	for i, o := range objects {
		keys = append(keys, o.Key())
		var err error
		if out[i], err = r.Read(o); err != nil {
			return nil, err
		}
	}
	r.together = append(r.together, keys)
	return out, nil
}

func (r *rounding) Write(old, next device.Object) error {
	if f, ok := next.(device.File); ok && (f.Value == "20" || f.Value == "30") {
		f.Value = "19"
		next = f
	}
	return r.Kernel.Write(old, next)
}

func TestGroupIsReadBack(t *testing.T) {
	k, p := threeKnobs()
	before := k.String()
	r := &rounding{Kernel: k}
	report, err := apply.Run(context.Background(), r, p, newJournal(p, nil), apply.Options{})
	if mismatch, ok := errors.AsType[*apply.MismatchError](err); !ok || mismatch.Key != p.Steps[1].Key() {
		t.Errorf("error %v, want the second file's", err)
	}
	if len(report.Left) > 0 {
		t.Errorf("left %+v: niclane wrote them itself", report.Left)
	}
	wantState(t, "afterwards", before, k)
	keys := []string{p.Steps[0].Key(), p.Steps[1].Key(), p.Steps[2].Key()}
	same(t, "read together (-want +got)", [][]string{keys, keys}, r.together[:min(2, len(r.together))])
}

// TestForeignChangeAfterAKilledGroup: after a kill, the journal knows which objects of the group
// were written. If one of these has another value, another program has changed it.
func TestForeignChangeAfterAKilledGroup(t *testing.T) {
	k, p := threeKnobs()
	j := newJournal(p, nil)
	k.Inject(fakekernel.Fault{Write: 2, When: fakekernel.Before, Kill: true})
	if !killable(func() { _, _ = apply.Run(context.Background(), k, p, j, apply.Options{}) }) {
		t.Fatal("not killed")
	}
	k.Calm()
	theirs := knobs("99")[0]
	k.Put(theirs)
	report, err := apply.Rollback(context.Background(), k, reread(t, j), here, apply.Options{})
	wantLeft(t, err, theirs.Key(), true)
	want := []string{p.Steps[1].Key(), p.Steps[2].Key()}
	slices.Sort(report.Undone)
	same(t, "undone (-want +got)", want, report.Undone)
}

// TestSystemReadMany checks that ReadMany returns the same values as Read, with the real kernel.
func TestSystemReadMany(t *testing.T) {
	onSystem(t, func(t *testing.T, lanes string) {
		p := planHere(t, lanes)
		k := openKernel(t)
		defer k.Close()
		compare := func(when string) {
			t.Helper()
			byKind := map[string][]device.Object{}
			for _, s := range p.Steps {
				byKind[s.Object().Kind()] = append(byKind[s.Object().Kind()], s.Object())
			}
			for kind, objects := range byKind {
				objects = slices.Repeat(objects, 9) // enough objects for one dump
				many, err := k.ReadMany(objects)
				if err != nil || len(many) != len(objects) {
					t.Fatalf("%s, %s: %d values of %d objects, %v", when, kind, len(many), len(objects), err)
				}
				for i, o := range objects {
					one, err := k.Read(o)
					must.Do(t, err)
					if !device.Equal(one, many[i]) {
						t.Errorf("%s, %s: %v alone, %v among many", when, o.Key(), one, many[i])
					}
				}
			}
		}
		compare("before")
		j := memoryJournal(t, journal.Head{Config: testConfig, Generation: 1, Devices: p.Devices, Plan: p})
		k.Prepare(p.Steps)
		if _, err := apply.Run(context.Background(), k, p, j, apply.Options{}); err != nil {
			t.Fatal(err)
		}
		compare("after")
		if _, err := apply.Undo(k, j, apply.Options{}); err != nil {
			t.Error(err)
		}
	})
}

// threeRules returns a kernel, and the journal of an applied plan with three rules. The three
// rules are one group.
func threeRules(t *testing.T) (*fakekernel.Kernel, *journal.Journal, []device.Rule) {
	t.Helper()
	k := fakekernel.New(&device.State{Devices: []device.Device{{Name: "d0"}}})
	p := &plan.Plan{Devices: []string{"d0"}}
	var rules []device.Rule
	for port := range uint16(3) {
		rules = append(rules, device.Rule{Dev: "d0",
			Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80 + port}, Queue: 1})
		p.Steps = append(p.Steps, plan.Step{New: rules[port]})
	}
	return k, applied(t, k, p, nil), rules
}

// TestRollbackLooksOnce: rules that are removed one after the other are read together, before and
// after. Each rule is nevertheless judged by its own value.
func TestRollbackLooksOnce(t *testing.T) {
	k, j, rules := threeRules(t)
	theirs := rules[1]
	theirs.Queue = 2
	k.Put(theirs)
	r := &rounding{Kernel: k}
	report, err := apply.Rollback(context.Background(), r, j, here, apply.Options{})
	wantLeft(t, err, theirs.Key(), true)
	keys := []string{rules[2].Key(), rules[1].Key(), rules[0].Key()}
	same(t, "read together (-want +got)", [][]string{keys, {keys[0], keys[2]}}, r.together)
	same(t, "undone (-want +got)", []string{keys[0], keys[2]}, report.Undone)
	if got := k.Objects(); len(got) != 1 || !device.Equal(got[theirs.Key()], theirs) {
		t.Errorf("there is %v, want theirs alone", got)
	}
}

// TestRollbackGoesOn: if one rule of a group cannot be removed, rollback still removes the
// others. Then it tries that rule again.
func TestRollbackGoesOn(t *testing.T) {
	k, j, rules := threeRules(t)
	k.Inject(fakekernel.Fault{Write: 1, When: fakekernel.Before, Err: unix.EIO})
	report, err := apply.Rollback(context.Background(), k, j, here, apply.Options{})
	must.Do(t, err)
	want := []string{rules[2].Key(), rules[0].Key(), rules[1].Key()}
	if diff := cmp.Diff(want, report.Undone); diff != "" || len(k.Objects()) > 0 {
		t.Errorf("undone (-want +got):\n%s\nthere is %v", diff, k.Objects())
	}
}

// TestRollbackReadsBack: if one of several removed rules is still there, rollback reports it.
func TestRollbackReadsBack(t *testing.T) {
	k, j, rules := threeRules(t)
	_, err := apply.Rollback(context.Background(), deafTo{k, rules[1].Key()}, j, here, apply.Options{})
	wantLeft(t, err, rules[1].Key(), false)
	if len(k.Objects()) != 1 || len(j.Records()) != 1 {
		t.Errorf("there is %v, recorded %v", k.Objects(), j.Records())
	}
}

// deafTo is a kernel that ignores writes to one object, but reports success.
type deafTo struct {
	*fakekernel.Kernel
	key string
}

func (d deafTo) Write(old, next device.Object) error {
	if o := old; o != nil && o.Key() == d.key {
		return nil
	}
	return d.Kernel.Write(old, next)
}
