// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/fakekernel"
	"github.com/niclane/niclane/internal/testing/fakekernel/golden"
	"github.com/niclane/niclane/internal/testing/fakekernel/mutate"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// same compares two values, without the cached fields of records.
func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(journal.Record{})); diff != "" {
		t.Errorf("%s:\n%s", what, diff)
	}
}

// seeds is the number of start states for each golden. Seed 0 is the golden's own fixture.
const seeds = 3

var errInjected = errors.New("injected")

var here = journal.Host{BootID: "boot", NetnsCookie: 1}

// A run is a fake kernel, and a plan for it.
type run struct {
	name   string
	kernel *fakekernel.Kernel
	plan   *plan.Plan
	// before are the records of an earlier generation. original is the state before that generation,
	// or the present state if there is none.
	before   []journal.Record
	original string
}

// runs returns a run for every golden and every start state.
func runs(t *testing.T) []run {
	t.Helper()
	var out []run
	refused := 0
	for _, golden0 := range golden.Cases(t, "../plan/testdata") {
		for seed := range uint64(seeds) {
			c := golden0.Random(seed)
			r, err := prepare(c)
			if _, ok := errors.AsType[plan.Errors](err); ok && seed > 0 {
				refused++
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			out = append(out, r)
		}
	}
	if len(out) < 2*refused {
		t.Fatalf("%d random starts were refused by the planner, %d plans are left", refused, len(out))
	}
	return out
}

func prepare(c golden.Case) (run, error) {
	r := run{name: c.Name, kernel: fakekernel.New(c.State)}
	r.original = r.kernel.String()
	st := c.State
	if c.Before != "" {
		p, err := golden.Plan(c.Before, st, plan.Owned{})
		if err != nil {
			return r, err
		}
		j := newJournal(p, nil)
		if _, err := apply.Run(context.Background(), r.kernel, p, j, apply.Options{}); err != nil {
			return r, fmt.Errorf("before: %w", err)
		}
		r.before = j.Records()
		st = st.Clone()
		for _, s := range p.Steps {
			st.Put(s.Old, s.New)
		}
	}
	var err error
	r.plan, err = golden.Plan(c.Lanes, st, owned(r.before))
	return r, err
}

func owned(records []journal.Record) plan.Owned {
	var o plan.Owned
	for _, r := range records {
		o.Records = append(o.Records, plan.Record{Original: r.Original, Last: r.Last, Part: r.Part, Cause: r.Cause})
	}
	return o
}

func newJournal(p *plan.Plan, before []journal.Record) *journal.Journal {
	return journal.New(journal.Head{Host: here, Config: "/etc/niclane/lanes.yaml", Generation: 1, Devices: p.Devices,
		Before: before, Plan: p})
}

// applied applies a plan on k and returns its journal.
func applied(t *testing.T, k *fakekernel.Kernel, p *plan.Plan, before []journal.Record) *journal.Journal {
	t.Helper()
	j := newJournal(p, before)
	if _, err := apply.Run(context.Background(), k, p, j, apply.Options{}); err != nil {
		t.Fatal(err)
	}
	return j
}

func rollBack(t *testing.T, k *fakekernel.Kernel, j *journal.Journal) {
	t.Helper()
	if _, err := apply.Rollback(context.Background(), k, j, here, apply.Options{}); err != nil {
		t.Error(err)
	}
}

// wantLeft checks that err names key as the only object that was not restored. foreign says
// whether another program must be the reason.
func wantLeft(t *testing.T, err error, key string, foreign bool) {
	t.Helper()
	left, ok := errors.AsType[apply.LeftError](err)
	if !ok || len(left) != 1 || left[0].Key != key || left[0].Foreign != foreign {
		t.Fatalf("error %v, want %s alone left, as somebody else's: %v", err, key, foreign)
	}
}

// reread returns the journal as another process would read it.
func reread(t *testing.T, j *journal.Journal) *journal.Journal {
	t.Helper()
	b, err := j.Encode()
	must.Do(t, err)
	back, err := journal.Decode(b)
	must.Do(t, err)
	return back
}

// killable runs f and reports whether the fake kernel killed it.
func killable(f func()) (killed bool) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(fakekernel.Killed); !ok {
				panic(p)
			}
			killed = true
		}
	}()
	f()
	return false
}

var sides = map[string]fakekernel.When{"before": fakekernel.Before, "after": fakekernel.After}

// eachFault calls f for a fault before and after each write of each run.
func eachFault(t *testing.T, f func(t *testing.T, r run, k *fakekernel.Kernel, fault fakekernel.Fault)) {
	t.Helper()
	for _, r := range runs(t) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			for side, when := range sides {
				for n := 0; ; n++ {
					k := r.kernel.Clone()
					f(t, r, k, fakekernel.Fault{Write: n, When: when})
					if t.Failed() {
						t.Fatalf("with the fault %s write %d", side, n)
					}
					if k.Writes() <= n {
						break
					}
				}
			}
		})
	}
}

func wantState(t *testing.T, when, want string, k *fakekernel.Kernel) {
	t.Helper()
	same(t, when+" (-want +got)", strings.Split(want, "\n"), strings.Split(k.String(), "\n"))
}

func TestRunAndRollback(t *testing.T) {
	for _, r := range runs(t) {
		t.Run(r.name, func(t *testing.T) {
			j := newJournal(r.plan, r.before)
			report, err := apply.Run(context.Background(), r.kernel, r.plan, j, apply.Options{})
			must.Do(t, err)
			if len(report.Done) != len(r.plan.Steps) || !j.Ended() {
				t.Errorf("%d of %d steps done, ended %v", len(report.Done), len(r.plan.Steps), j.Ended())
			}
			for key, want := range finals(r.plan.Steps) {
				if want == nil && mutate.OfQueue(r.kernel.Objects()[key]) {
					continue // a queue has this value by default
				}
				if p, ok := r.kernel.Objects()[key].(device.DriverParam); ok && want == nil {
					want = p.Default() // the parameter stays with its class
				}
				if q, _ := r.kernel.Objects()["qdisc/"+r.plan.Devices[0]+"/root"].(device.Qdisc); q.Mode != "" &&
					want != nil && want.Kind() == (device.RSSTable{}).Kind() {
					continue // while the card has traffic classes, the table is theirs
				}
				if got := r.kernel.Objects()[key]; !device.Equal(got, want) {
					t.Errorf("%s: want %v, have %v", key, want, got)
				}
			}
			rollBack(t, r.kernel, reread(t, j))
			wantState(t, "after rollback", r.original, r.kernel)
		})
	}
}

// finals returns the value that each object has after the steps.
func finals(steps []plan.Step) map[string]device.Object {
	m := map[string]device.Object{}
	for _, s := range steps {
		m[s.Key()] = s.New
	}
	return m
}

func TestFailureAtEveryStep(t *testing.T) {
	eachFault(t, func(t *testing.T, r run, k *fakekernel.Kernel, fault fakekernel.Fault) {
		start := k.String()
		fault.Err = errInjected
		k.Inject(fault)
		j := newJournal(r.plan, r.before)
		_, err := apply.Run(context.Background(), k, r.plan, j, apply.Options{})
		if k.Writes() <= fault.Write {
			if err != nil {
				t.Errorf("without a fault: %v", err)
			}
			return
		}
		if !errors.Is(err, errInjected) {
			t.Errorf("error %v, want the injected one", err)
		}
		wantState(t, "after the failure", start, k)
		same(t, "records (-before +after)", r.before, j.Records())
	})
}

func TestKillAtEveryStep(t *testing.T) {
	eachFault(t, func(t *testing.T, r run, k *fakekernel.Kernel, fault fakekernel.Fault) {
		fault.Kill = true
		k.Inject(fault)
		j := newJournal(r.plan, r.before)
		killed := killable(func() {
			if _, err := apply.Run(context.Background(), k, r.plan, j, apply.Options{}); err != nil {
				t.Error(err)
			}
		})
		if want := k.Writes() > fault.Write; killed != want {
			t.Errorf("killed %v, want %v", killed, want)
		}
		k.Calm()
		rollBack(t, k, reread(t, j))
		wantState(t, "after rollback", r.original, k)
	})
}

// TestUndoAfterKill undoes only the last generation after a kill, as the guardian does.
func TestUndoAfterKill(t *testing.T) {
	eachFault(t, func(t *testing.T, r run, k *fakekernel.Kernel, fault fakekernel.Fault) {
		start := k.String()
		fault.Kill = true
		k.Inject(fault)
		j := newJournal(r.plan, r.before)
		killable(func() {
			if _, err := apply.Run(context.Background(), k, r.plan, j, apply.Options{}); err != nil {
				t.Error(err)
			}
		})
		k.Calm()
		j = reread(t, j)
		if _, err := apply.Undo(k, j, apply.Options{}); err != nil {
			t.Error(err)
		}
		wantState(t, "after undo", start, k)
		same(t, "records (-before +after)", r.before, j.Records())
	})
}

// TestKillDuringRollback kills a rollback at each write. A second rollback must restore
// everything.
func TestKillDuringRollback(t *testing.T) {
	eachFault(t, func(t *testing.T, r run, k *fakekernel.Kernel, fault fakekernel.Fault) {
		j := applied(t, k, r.plan, r.before)
		fault.Kill = true
		k.Inject(fault)
		rollback := func() {
			j = reread(t, j)
			rollBack(t, k, j)
		}
		if killable(rollback) {
			k.Calm()
			rollback()
		}
		wantState(t, "after the second rollback", r.original, k)
	})
}

// TestUndoFailsToo makes every write fail from a given one on, so the undo fails too. The report
// must name each object that is not as before. A later rollback must restore these objects.
func TestUndoFailsToo(t *testing.T) {
	eachFault(t, func(t *testing.T, r run, k *fakekernel.Kernel, fault fakekernel.Fault) {
		start := k.Objects()
		fault.Err, fault.Sticky = errInjected, true
		k.Inject(fault)
		j := newJournal(r.plan, r.before)
		report, err := apply.Run(context.Background(), k, r.plan, j, apply.Options{})
		if k.Writes() <= fault.Write {
			return
		}
		if !errors.Is(err, errInjected) {
			t.Errorf("error %v, want the injected one", err)
		}
		left := map[string]bool{}
		for _, l := range report.Left {
			left[l.Key] = true
		}
		now := k.Objects()
		for _, s := range r.plan.Steps {
			made := false // the kernel makes and removes it with another object
			switch s.Object().(type) {
			case device.Thread, device.CPUThread:
				made = true
			case device.DriverParam:
				made = start[s.Key()] == nil
			}
			if start[s.Key()] == nil && mutate.OfQueue(s.Object()) {
				made = left["channels/"+r.plan.Devices[0]]
			}
			if key := s.Key(); !made && !device.Equal(start[key], now[key]) && !left[key] {
				t.Errorf("%s is not as before and not in the report %+v", key, report.Left)
			}
		}
		k.Calm()
		rollBack(t, k, reread(t, j))
		wantState(t, "after rollback", r.original, k)
	})
}

// TestVanishingDevice removes the device at each write in turn. apply must return one error, and
// the undo must report the device's objects as gone.
func TestVanishingDevice(t *testing.T) {
	eachFault(t, func(t *testing.T, r run, k *fakekernel.Kernel, fault fakekernel.Fault) {
		dev := r.plan.Devices[0]
		gone := k.Clone()
		gone.Vanish(dev)
		fault.Vanish = dev
		k.Inject(fault)
		j := newJournal(r.plan, r.before)
		report, err := apply.Run(context.Background(), k, r.plan, j, apply.Options{})
		if k.Writes() <= fault.Write {
			return
		}
		if err == nil && fault.Write < len(r.plan.Steps)-1 {
			t.Error("no error")
		}
		if len(report.Left) > 0 {
			t.Errorf("left %+v", report.Left)
		}
		if err == nil || !errors.Is(err, unix.ENODEV) && !strings.Contains(err.Error(), "found absent") {
			t.Errorf("error %v does not say that the device is gone", err)
		}
		wantState(t, "after the undo", gone.String(), k)
	})
}
