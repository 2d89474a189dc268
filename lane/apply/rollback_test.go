// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/fakekernel"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

var (
	knob     = device.File{Path: "/proc/sys/net/core/knob", Format: device.FileText, Value: "1"}
	knob2    = device.File{Path: "/proc/sys/net/core/knob", Format: device.FileText, Value: "2"}
	knob3    = device.File{Path: "/proc/sys/net/core/knob", Format: device.FileText, Value: "3"}
	clsact   = device.Qdisc{Dev: "d0", Parent: "clsact", Type: "clsact", Handle: "ffff:"}
	rootHTB  = device.Qdisc{Dev: "d0", Parent: "root", Type: "htb", Handle: "1:"}
	theClass = device.Class{Dev: "d0", ID: "1:1", Parent: "1:", Rate: 8, Ceil: 8, Quantum: 1}
)

// small returns a kernel with one device, and the journal of a small plan that was applied to it.
func small(t *testing.T) (*fakekernel.Kernel, *journal.Journal) {
	t.Helper()
	k := fakekernel.New(&device.State{
		Files:   map[string]device.File{knob.Path: knob},
		Devices: []device.Device{{Name: "d0"}},
	})
	p := &plan.Plan{Devices: []string{"d0"}, Steps: []plan.Step{
		{Old: knob, New: knob2}, {New: clsact}, {New: rootHTB}, {New: theClass},
	}}
	return k, applied(t, k, p, nil)
}

func TestRollbackLeavesWhatOthersChanged(t *testing.T) {
	k, j := small(t)
	k.Put(knob3)
	report, err := apply.Rollback(context.Background(), k, j, here, apply.Options{})
	wantLeft(t, err, knob.Key(), true)
	for _, want := range []string{`"2"`, `"3"`, `"1"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	if len(report.Undone) != 3 {
		t.Errorf("undone: %v, want the three others", report.Undone)
	}
	if got := k.Objects(); len(got) != 1 || !device.Equal(got[knob.Key()], knob3) {
		t.Errorf("left: %v", got)
	}
	// The object stays in the journal, so that Force can restore it later.
	j = reread(t, j)
	if got := j.Records(); len(got) != 1 {
		t.Fatalf("records: %+v", got)
	}
	if _, err := apply.Rollback(context.Background(), k, j, here, apply.Options{Force: true}); err != nil {
		t.Fatal(err)
	}
	if got := k.Objects(); !device.Equal(got[knob.Key()], knob) {
		t.Errorf("forced: %v", got)
	}
}

func TestRollbackLeavesWhatOthersUse(t *testing.T) {
	for name, tt := range map[string]struct {
		hang func(k *fakekernel.Kernel)
		left []string
		who  string
	}{
		"filter on clsact": {func(k *fakekernel.Kernel) {
			k.Put(device.Filter{Dev: "d0", Parent: "egress", Pref: 9, Handle: 1, Program: "theirs"})
		}, []string{clsact.Key()}, "filter/d0/egress/9/1"},
		"u32 on clsact": {func(k *fakekernel.Kernel) { k.Foreign(clsact.Key(), "u32 filter pref 4") },
			[]string{clsact.Key()}, "pref 4"},
		"class on htb": {func(k *fakekernel.Kernel) {
			c := theClass
			c.ID = "1:99"
			k.Put(c)
		}, []string{rootHTB.Key()}, "class/d0/1:99"},
		"class below a class": {func(k *fakekernel.Kernel) {
			c := theClass
			c.ID, c.Parent = "1:99", "1:1"
			k.Put(c)
		}, []string{theClass.Key(), rootHTB.Key()}, "class/d0/1:99"},
		"qdisc on a class": {func(k *fakekernel.Kernel) {
			k.Put(device.Qdisc{Dev: "d0", Parent: "1:1", Type: "pfifo", Handle: "30:"})
		}, []string{theClass.Key(), rootHTB.Key()}, "qdisc/d0/1:1"},
	} {
		for _, force := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				k, j := small(t)
				tt.hang(k)
				report, err := apply.Rollback(context.Background(), k, j, here, apply.Options{Force: force})
				if force {
					if err != nil || len(k.Objects()) != 1 ||
						!strings.Contains(strings.Join(report.Removed, "\n"), tt.who) {
						t.Errorf("error %v, removed %q, want %s; there is\n%s", err, report.Removed, tt.who, k)
					}
					return
				}
				var left apply.LeftError
				if !errors.As(err, &left) || !strings.Contains(err.Error(), tt.who) || !j.RolledBack() {
					t.Fatalf("error %v, want one that names %s", err, tt.who)
				}
				if strings.Contains(err.Error(), "not niclane's, and removed together with it: class/d0/1:1;") {
					t.Errorf("niclane's own class is somebody else's: %v", err)
				}
				if len(left) != len(tt.left) {
					t.Errorf("left %v, want %v", left, tt.left)
				}
				for i, key := range tt.left {
					if i < len(left) && left[i].Key != key {
						t.Errorf("left %v, want %v", left, tt.left)
					}
					if k.Objects()[key] == nil {
						t.Errorf("%s was removed", key)
					}
				}
				if got := k.Objects()[knob.Key()]; !device.Equal(got, knob) {
					t.Errorf("the file was not restored: %v", got)
				}
			})
		}
	}
}

// TestRollbackRuleToContext: a rule of another program leads to niclane's RSS context, so the
// kernel refuses to remove the context. With Force, rollback removes that rule first.
func TestRollbackRuleToContext(t *testing.T) {
	k := fakekernel.New(&device.State{Devices: []device.Device{{Name: "d0",
		Channels: &device.Channels{Dev: "d0", Combined: 4}}}})
	context := device.RSSTable{Dev: "d0", Context: 1, Queues: []int{2, 3}}
	ours := device.Rule{Dev: "d0", Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80}, Context: 1}
	theirs := ours
	theirs.Match.LocalPort = 81
	p := &plan.Plan{Devices: []string{"d0"}, Steps: []plan.Step{{New: context}, {New: ours}}}
	j := applied(t, k, p, nil)
	k.Put(theirs)
	_, err := apply.Rollback(t.Context(), k, j, here, apply.Options{})
	var left apply.LeftError
	if !errors.As(err, &left) || len(left) != 1 || !left[0].Foreign || !strings.Contains(err.Error(), theirs.Key()) {
		t.Fatalf("error %v, want one that names %s", err, theirs.Key())
	}
	if k.Objects()[theirs.Key()] == nil || k.Objects()[ours.Key()] != nil {
		t.Errorf("left: %s", k)
	}
	report, err := apply.Rollback(t.Context(), k, reread(t, j), here, apply.Options{Force: true})
	if err != nil || k.Objects()[context.Key()] != nil ||
		!strings.Contains(strings.Join(report.Removed, "\n"), theirs.Key()) {
		t.Errorf("forced: %v, removed %q, left %s", err, report.Removed, k)
	}
}

// A replacing kernel puts an object of another program in the place of niclane's, before or after
// niclane's is added.
type replacing struct {
	*fakekernel.Kernel
	ours, theirs device.Object
	before       bool
}

func (r *replacing) Write(old, next device.Object) error {
	is := device.Equal(next, r.ours)
	if is && r.before {
		r.Put(r.theirs)
		return fmt.Errorf("add: %w", unix.EEXIST)
	}
	err := r.Kernel.Write(old, next)
	if is {
		r.Put(r.theirs)
	}
	return err
}

// TestRunReplacedMeanwhile: during an apply, an object of another program takes the place of
// niclane's. If the apply fails, its undo must leave that object.
func TestRunReplacedMeanwhile(t *testing.T) {
	filter := device.Filter{Dev: "d0", Parent: "egress", Pref: 1, Handle: 1, Program: "niclane_egress"}
	theirFilter := filter
	theirFilter.Program = "theirs"
	for name, c := range map[string]struct{ ours, theirs device.Object }{
		"qdisc of another kind": {rootHTB, device.Qdisc{Dev: "d0", Parent: "root", Type: "pfifo", Handle: "7:"}},
		"qdisc of the kind":     {rootHTB, device.Qdisc{Dev: "d0", Parent: "root", Type: "htb", Handle: "7:"}},
		"filter":                {filter, theirFilter},
		"XDP": {device.XDP{Dev: "d0", Mode: "generic", Program: "niclane_ingress"},
			device.XDP{Dev: "d0", Mode: "generic", Program: "theirs"}},
	} {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, before ours %t", name, before), func(t *testing.T) {
				st := &device.State{
					Files:   map[string]device.File{knob.Path: knob},
					Devices: []device.Device{{Name: "d0", Qdiscs: []device.QdiscState{{Qdisc: clsact}}}},
				}
				k := &replacing{fakekernel.New(st), c.ours, c.theirs, before}
				p := &plan.Plan{Devices: []string{"d0"}, Steps: []plan.Step{{Old: knob, New: knob2}, {New: c.ours}}}
				_, err := apply.Run(t.Context(), k, p, newJournal(p, nil), apply.Options{})
				if err == nil {
					t.Error("no error")
				}
				got := k.Objects()
				if len(got) != 3 || !device.Equal(got[c.theirs.Key()], c.theirs) || got[knob.Key()] != knob ||
					got[clsact.Key()] != clsact {
					t.Errorf("%v; there is\n%s", err, k)
				}
			})
		}
	}
}

func TestRunDoesNotRemoveWhatOthersUse(t *testing.T) {
	k, j := small(t)
	k.Foreign(clsact.Key(), "u32 filter pref 4")
	before := k.String()
	p := &plan.Plan{Devices: []string{"d0"}, Steps: []plan.Step{{Old: knob2, New: knob}, {Old: clsact}}}
	_, err := apply.Run(context.Background(), k, p, newJournal(p, j.Records()), apply.Options{})
	if _, ok := errors.AsType[*apply.OccupiedError](err); !ok {
		t.Errorf("error %v, want one that names the filter", err)
	}
	wantState(t, "after the failure", before, k)
}

func TestRunFindsAnotherState(t *testing.T) {
	k := fakekernel.New(&device.State{Files: map[string]device.File{knob.Path: knob3},
		Devices: []device.Device{{Name: "d0"}}})
	before := k.String()
	p := &plan.Plan{Devices: []string{"d0"}, Steps: []plan.Step{{New: clsact}, {Old: knob, New: knob2}}}
	_, err := apply.Run(context.Background(), k, p, newJournal(p, nil), apply.Options{})
	var mismatch *apply.MismatchError
	if !errors.As(err, &mismatch) || !device.Equal(mismatch.Want, knob) || !device.Equal(mismatch.Found, knob3) {
		t.Errorf("error %v, want the value planned and the one found", err)
	}
	wantState(t, "afterwards", before, k)
}

// TestRevert: a lanes file is applied, then a changed one. If the second apply is undone, after a
// failure or by the user, the first journal must be valid again.
func TestRevert(t *testing.T) {
	s, err := journal.Open(filepath.Join(t.TempDir(), "s"), here)
	must.Do(t, err)
	defer s.Close()
	k, _ := small(t)
	class := theClass
	class.Rate = 16
	run := func(steps ...plan.Step) (*journal.Journal, error) {
		p := &plan.Plan{Devices: []string{"d0"}, Steps: steps}
		j, err := s.Begin(journal.Head{Config: "/l.yaml", Devices: p.Devices, Plan: p, Undoable: true})
		must.Do(t, err)
		_, err = apply.Run(t.Context(), k, p, j, apply.Options{})
		return j, err
	}
	first := func(when string) {
		t.Helper()
		js, err := s.Here()
		if err != nil || len(js) != 1 || js[0].Head().Generation != 1 || len(js[0].Records()) != 1 ||
			js[0].AllUndone() || !js[0].Ended() {
			t.Errorf("%s: %d journals, %v; the first: %+v", when, len(js), err, js[0].Head())
		}
	}
	if _, err := run(plan.Step{Old: knob2, New: knob3}); err != nil {
		t.Fatal(err)
	}
	before := k.String()
	for _, fails := range []bool{true, false} {
		if fails {
			k.Inject(fakekernel.Fault{Write: 1, Err: unix.ENOMEM})
		}
		j, err := run(plan.Step{Old: knob3, New: knob}, plan.Step{Old: theClass, New: class})
		k.Calm()
		if (err != nil) != fails {
			t.Fatal(err)
		}
		if !fails {
			if !j.Revertible() {
				t.Error("the first is not on record")
			}
			if _, err := apply.Undo(k, j, apply.Options{}); err != nil {
				t.Fatal(err)
			}
		}
		first(fmt.Sprintf("failed %v", fails))
		wantState(t, "afterwards", before, k)
	}
	// The process was killed before its first step.
	p := &plan.Plan{Devices: []string{"d0"}, Steps: []plan.Step{{Old: knob3, New: knob}}}
	if _, err := s.Begin(journal.Head{Config: "/l.yaml", Devices: p.Devices, Plan: p, Undoable: true}); err != nil {
		t.Fatal(err)
	}
	if notes, err := s.Tidy(); len(notes) > 0 || err != nil {
		t.Errorf("tidy: %q, %v", notes, err)
	}
	first("tidied")
}

// A deaf kernel accepts writes of the file knob, but writes another value.
type deaf struct{ *fakekernel.Kernel }

func (d deaf) Write(old, next device.Object) error {
	if next == device.Object(knob2) {
		next = knob3
	}
	return d.Kernel.Write(old, next)
}

func TestRunReadsBack(t *testing.T) {
	k := fakekernel.New(&device.State{Files: map[string]device.File{knob.Path: knob},
		Devices: []device.Device{{Name: "d0"}}})
	before := k.String()
	p := &plan.Plan{Devices: []string{"d0"}, Steps: []plan.Step{{New: clsact}, {Old: knob, New: knob2}}}
	_, err := apply.Run(context.Background(), deaf{k}, p, newJournal(p, nil), apply.Options{})
	var mismatch *apply.MismatchError
	if !errors.As(err, &mismatch) || !device.Equal(mismatch.Want, knob2) || !device.Equal(mismatch.Found, knob3) {
		t.Errorf("error %v, want what was written and what is there", err)
	}
	wantState(t, "afterwards", before, k)
}

func TestRunStops(t *testing.T) {
	k, j := small(t)
	before := k.String()
	ctx, cancel := context.WithCancel(context.Background())
	p := &plan.Plan{Devices: []string{"d0"}, Steps: []plan.Step{{Old: knob2, New: knob3}, {Old: theClass}}}
	stop := apply.Options{Progress: func(e apply.Event) {
		if e.Index == 0 {
			cancel()
		}
	}}
	if _, err := apply.Run(ctx, k, p, newJournal(p, j.Records()), stop); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want canceled", err)
	}
	wantState(t, "afterwards", before, k)
}

func TestRollbackElsewhere(t *testing.T) {
	k, j := small(t)
	before := k.String()
	other := here
	other.NetnsCookie++
	if _, err := apply.Rollback(context.Background(), k, j, other, apply.Options{}); err == nil ||
		!strings.Contains(err.Error(), "namespace") {
		t.Errorf("in another namespace: %v", err)
	}
	wantState(t, "in another namespace", before, k)

	rebooted := here
	rebooted.BootID = "another"
	report, err := apply.Rollback(context.Background(), k, j, rebooted, apply.Options{})
	if err != nil || !report.Rebooted {
		t.Errorf("after a reboot: %+v, %v", report, err)
	}
	wantState(t, "after a reboot", before, k)
}

func TestRebootRemovesTheJournal(t *testing.T) {
	s, err := journal.Open(filepath.Join(t.TempDir(), "s"), here)
	must.Do(t, err)
	defer s.Close()
	p := &plan.Plan{Devices: []string{"d0"}, Steps: []plan.Step{{Old: knob, New: knob2}}}
	j, err := s.Begin(journal.Head{Config: "/etc/lanes.yaml", Plan: p})
	must.Do(t, err)
	must.Do(t, j.Begin(0))
	rebooted := here
	rebooted.BootID = "another"
	if _, err := apply.Rollback(context.Background(), nil, j, rebooted, apply.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(j.Path()); !os.IsNotExist(err) {
		t.Errorf("the journal is still there: %v", err)
	}
}

func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	first, err := apply.TryLock(dir)
	must.Do(t, err)
	_, err = apply.TryLock(dir)
	var locked *apply.LockedError
	if !errors.As(err, &locked) || locked.Holder.PID != os.Getpid() ||
		!strings.Contains(err.Error(), filepath.Base(os.Args[0])) {
		t.Errorf("second: %v, want one that names process %d and its command", err, os.Getpid())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := apply.WaitLock(ctx, dir); !errors.As(err, &locked) || !errors.Is(err, context.Canceled) {
		t.Errorf("waiting in vain: %v", err)
	}
	got := make(chan error)
	go func() {
		l, err := apply.WaitLock(context.Background(), dir)
		if err == nil {
			err = l.Unlock()
		}
		got <- err
	}()
	must.Do(t, first.Unlock())
	if err := <-got; err != nil {
		t.Errorf("waiting: %v", err)
	}
	// The waiter that gave up may get the lock now, but then releases it at once.
	soon, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	again, err := apply.WaitLock(soon, dir)
	if err != nil {
		t.Fatalf("after unlock: %v", err)
	}
	if err := again.Unlock(); err != nil {
		t.Error(err)
	}
	must.Do(t, os.Chmod(dir, 0o755))
	if _, err := apply.TryLock(dir); err == nil {
		t.Error("a run directory that others can enter was taken")
	}
}
