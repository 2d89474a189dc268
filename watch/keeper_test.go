// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/verify"
	"github.com/niclane/niclane/watch"
)

const config = "/etc/niclane/d0.yaml"

// A machine is a watch.Machine in memory. Its map drifted has the objects that have drifted.
type machine struct {
	t       *testing.T
	drifted map[string]verify.Finding
	waits   map[string]string
	// generation is the generation of the lanes; "" means that no lanes are applied.
	generation string
	busy       bool
	lookErr    error
	lookTakes  time.Duration
	repairErr  error
	// futile are the keys of objects that no step repairs.
	futile map[string]bool
	ground string
	// onRepair, if set, is called after each repair.
	onRepair func()
	// napi is the key of the object that Release changes; "": none.
	napi string

	held     bool
	looks    int
	repairs  []time.Duration // times since the start
	began    time.Time
	released int
}

func (m *machine) Look(context.Context) ([]watch.View, error) {
	m.looks++
	if m.lookTakes > 0 {
		time.Sleep(m.lookTakes) // takes time only on synctest's clock
	}
	if m.lookErr != nil {
		return nil, m.lookErr
	}
	if m.generation == "" {
		return nil, nil
	}
	v := watch.View{Config: config, Generation: m.generation, Ground: m.ground, Waits: m.waits}
	for _, f := range m.drifted {
		v.Drifts = append(v.Drifts, f)
	}
	slices.SortFunc(v.Drifts, func(a, b verify.Finding) int { return strings.Compare(a.Key, b.Key) })
	return []watch.View{v}, nil
}

func (m *machine) Hold(context.Context) (func(), error) {
	if m.busy {
		return nil, fmt.Errorf("%w: process 7", engine.ErrBusy)
	}
	m.held = true
	return func() { m.held = false }, nil
}

func (m *machine) Repair(_ context.Context, c string, leave func(string) bool) (engine.Repair, error) {
	if !m.held || c != config {
		m.t.Errorf("repair of %s, held %v", c, m.held)
	}
	m.repairs = append(m.repairs, time.Since(m.began))
	if m.repairErr != nil {
		return engine.Repair{}, m.repairErr
	}
	var r engine.Repair
	for key := range m.drifted {
		if !leave(key) && !m.futile[key] {
			r.Done = append(r.Done, key)
			delete(m.drifted, key)
		}
	}
	if m.onRepair != nil {
		m.onRepair()
	}
	return r, nil
}

func (m *machine) Release(_ context.Context, _ string, missing []verify.Finding) ([]string, error) {
	if m.napi == "" || m.drifted[m.napi].Key != "" {
		return nil, nil
	}
	m.released++
	m.drift(m.napi)
	return []string{m.napi}, nil
}

func (m *machine) drift(key string) {
	m.drifted[key] = verify.Finding{Severity: verify.Drift, Device: "d0", Lane: "web", Key: key, Want: "a", Found: "b",
		Meaning: key + " is wrong", Repair: "niclane apply " + config}
}

// keep runs a keeper on synctest's clock and calls do when the keeper waits. It returns the events
// as texts: time since the start in seconds, kind and key.
func keep(t *testing.T, setUp func(*machine), do func(m *machine, k *watch.Keeper, tell func())) (events []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &machine{t: t, drifted: map[string]verify.Finding{}, futile: map[string]bool{}, generation: "1",
			began: time.Now()}
		if setUp != nil {
			setUp(m)
		}
		k := watch.NewKeeper(m, watch.Options{Report: func(e watch.Event) {
			if e.After > time.Second {
				t.Errorf("%v after it was told", e.After)
			}
			e.After = 0
			events = append(events, fmt.Sprintf("%v %s %s", e.Time.Sub(m.began).Round(time.Second), e.Kind, e.Key))
		}})
		told := make(chan string)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- watch.Run(ctx, k, told) }()
		synctest.Wait()
		do(m, k, func() {
			told <- "something"
			pass(watch.SettleMost + m.lookTakes*3)
		})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for i, e := range events {
		events[i] = strings.TrimSpace(e)
	}
	return events
}

// pass lets time d pass on synctest's clock and then waits until all goroutines block.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestRepairs(t *testing.T) {
	got := keep(t, nil, func(m *machine, _ *watch.Keeper, tell func()) {
		m.drift("qdisc")
		tell()
		if len(m.drifted) > 0 || m.held {
			t.Errorf("drifts %v are left, held %v", m.drifted, m.held)
		}
		tell() // the notification of the repair itself
	})
	same(t, got, "0s begun", "0s drift qdisc", "0s repaired qdisc", "0s ended")
}

// TestFight: if a drift always comes back at once, its repairs come later and later, and then end.
// Later notifications do not start them again.
func TestFight(t *testing.T) {
	var at []time.Duration
	got := keep(t, func(m *machine) { m.onRepair = func() { m.drift("irq") } },
		func(m *machine, _ *watch.Keeper, tell func()) {
			m.drift("irq")
			tell()
			for range 100 {
				time.Sleep(10 * time.Second)
				tell()
			}
			for _, d := range m.repairs {
				at = append(at, d.Round(time.Second))
			}
		})
	var want []time.Duration
	for sum, pause := 0*time.Second, 2*time.Second; len(want) < 9; pause *= 2 {
		want = append(want, sum)
		sum += pause
	}
	if diff := cmp.Diff(want, at); diff != "" {
		t.Errorf("repairs (-want +got):\n%s", diff)
	}
	if n := len(got); n < 3 || got[n-2] != "510s left irq" && got[n-2] != "8m30s left irq" {
		t.Errorf("events %q, want the drift left after 8m30s, and nothing after", got)
	}
}

// TestForgiven: if a drift was absent for a long time, the keeper repairs it as a new one.
func TestForgiven(t *testing.T) {
	keep(t, nil, func(m *machine, _ *watch.Keeper, tell func()) {
		for range 20 {
			m.drift("irq")
			tell()
			if len(m.drifted) > 0 {
				t.Fatalf("not repaired after %v", time.Since(m.began))
			}
			time.Sleep(watch.DefaultPatience.Forget + time.Minute)
		}
	})
}

// TestBackAfterRepairs: if a drift comes back after the last allowed repair, the keeper leaves it
// at once.
func TestBackAfterRepairs(t *testing.T) {
	got := keep(t, nil, func(m *machine, _ *watch.Keeper, tell func()) {
		for range 9 {
			m.drift("irq")
			tell()
			pass(watch.DefaultPatience.Longest)
		}
		if len(m.repairs) != 9 {
			t.Errorf("%d repairs, want 9", len(m.repairs))
		}
		m.drift("irq")
		tell()
		if m.drifted["irq"].Key == "" {
			t.Error("repaired a tenth time")
		}
		m.drift("qdisc") // a second drift has repairs of its own
		tell()
		if m.drifted["irq"].Key == "" || m.drifted["qdisc"].Key != "" {
			t.Errorf("drifts %v, want irq alone", m.drifted)
		}
	})
	if n := len(got); n < 5 || got[n-4][strings.Index(got[n-4], " ")+1:] != "left irq" {
		t.Errorf("events %q", got)
	}
}

func TestWaits(t *testing.T) {
	got := keep(t, nil, func(m *machine, k *watch.Keeper, tell func()) {
		m.waits = map[string]string{"d0": "is down"}
		m.drift("napi")
		tell()
		time.Sleep(10 * time.Minute)
		if len(m.repairs) > 0 {
			t.Error("repaired while the device was down")
		}
		if c, _, _ := k.State(); len(c) != 1 || c[0].Waits["d0"] != "is down" || len(c[0].Drifts) != 1 {
			t.Errorf("state %+v", c)
		}
		if m.looks > 45 {
			t.Errorf("%d looks in 10 minutes", m.looks)
		}
		m.waits = nil
		tell()
	})
	same(t, got, "0s begun", "0s waiting", "0s drift napi", "10m0s repaired napi", "10m0s ended")
}

// TestChanged: if a repair has failed and the drift then changes, the keeper tries again at once.
func TestChanged(t *testing.T) {
	got := keep(t, nil, func(m *machine, _ *watch.Keeper, tell func()) {
		m.repairErr = errors.New("a tbf is there")
		m.drift("qdisc")
		tell()
		pass(time.Hour)
		m.repairErr = nil
		f := m.drifted["qdisc"]
		f.Found = "absent"
		m.drifted["qdisc"] = f
		tell()
	})
	if n := len(got); got[n-3] != "1h0m0s drift qdisc" || got[n-2] != "1h0m0s repaired qdisc" {
		t.Errorf("events %q", got)
	}
}

// TestFlaps: a link goes down and up again and again. Each time this causes a drift, but the keeper
// repairs it every time.
func TestFlaps(t *testing.T) {
	keep(t, nil, func(m *machine, _ *watch.Keeper, tell func()) {
		for i := range 50 {
			m.waits = map[string]string{"d0": "is down"}
			tell()
			m.waits = nil
			m.drift("napi")
			tell()
			if len(m.drifted) > 0 {
				t.Fatalf("not repaired the %dth time", i+1)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// TestBusy: differences while another process applies lanes are no drift.
func TestBusy(t *testing.T) {
	got := keep(t, nil, func(m *machine, _ *watch.Keeper, tell func()) {
		m.busy = true
		m.drift("qdisc")
		tell()
		time.Sleep(2 * time.Second)
		clear(m.drifted)
		m.busy, m.generation = false, "2"
		pass(10 * time.Second)
		m.busy = true
		m.drift("qdisc")
		tell()
		m.busy = false // the apply ended without repairing the object, so it is a drift
		pass(10 * time.Second)
	})
	same(t, withoutTimes(got), "begun", "notice", "drift qdisc", "repaired qdisc", "ended")
}

func withoutTimes(events []string) []string {
	var out []string
	for _, e := range events {
		_, e, _ = strings.Cut(e, " ")
		out = append(out, e)
	}
	return out
}

// TestFutile: if no step can repair a drift, the keeper reports it once. It reports it again only
// if it changes.
func TestFutile(t *testing.T) {
	got := keep(t, nil, func(m *machine, k *watch.Keeper, tell func()) {
		m.futile["foreign"] = true
		m.drift("foreign")
		tell()
		for range 20 {
			time.Sleep(time.Minute)
			tell()
		}
		if c, _, _ := k.State(); !slices.Equal(c[0].Left, []string{"foreign"}) {
			t.Errorf("state %+v", c)
		}
		delete(m.drifted, "foreign")
		tell()
	})
	same(t, withoutTimes(got), "begun", "drift foreign", "left foreign", "returned foreign", "ended")
}

// TestOvertaken: an object changes during its repair. This is a new drift with the same key. For
// example, a slave leaves a bond while it gets its lanes.
func TestOvertaken(t *testing.T) {
	got := keep(t, nil, func(m *machine, k *watch.Keeper, tell func()) {
		m.futile["slave"] = true // a slave is no object, so no step has its key
		m.onRepair = func() {
			switch len(m.repairs) {
			case 1:
				other := m.drifted["slave"]
				other.Found = "c"
				m.drifted["slave"] = other
			case 2:
				delete(m.drifted, "slave")
			}
		}
		m.drift("slave")
		tell()
		pass(time.Minute)
		if c, _, _ := k.State(); len(c[0].Left)+len(c[0].Drifts) > 0 {
			t.Errorf("state %+v", c)
		}
	})
	same(t, withoutTimes(got), "begun", "drift slave", "drift slave", "repaired slave", "ended")
}

// TestRelease: if a lane cannot be completed, the keeper undoes settings that would harm it. It
// makes them again when the lane can be completed.
func TestRelease(t *testing.T) {
	got := keep(t, nil, func(m *machine, _ *watch.Keeper, tell func()) {
		m.repairErr, m.napi = errors.New("io_uring is switched off"), "napi"
		m.drift("poller")
		tell()
		if m.released != 1 || m.drifted["napi"].Key == "" {
			t.Errorf("released %d times, drifts %v", m.released, m.drifted)
		}
		m.repairErr = nil
		pass(5 * time.Second)
		if len(m.drifted) > 0 {
			t.Errorf("drifts %v", m.drifted)
		}
	})
	same(t, got, "0s begun", "0s drift poller", "0s failed poller", "0s released", "2s repaired napi",
		"2s repaired poller", "5s ended")
}

// TestFolded: a drift becomes a part of another drift. The keeper must not report that it has
// returned.
func TestFolded(t *testing.T) {
	got := keep(t, nil, func(m *machine, _ *watch.Keeper, tell func()) {
		m.repairErr = errors.New("no")
		m.drift("poller")
		tell()
		delete(m.drifted, "poller")
		m.drift("napi")
		f := m.drifted["napi"]
		f.With = []string{"poller"}
		m.drifted["napi"] = f
		tell()
	})
	same(t, got, "0s begun", "0s drift poller", "0s failed poller", "0s drift napi", "0s failed napi", "0s ended")
}

// TestFails: the keeper tries a failed repair again, with longer and longer pauses, and then leaves
// it.
func TestFails(t *testing.T) {
	got := keep(t, nil, func(m *machine, _ *watch.Keeper, tell func()) {
		m.repairErr = errors.New("no")
		m.drift("qdisc")
		tell()
		time.Sleep(time.Hour)
		if len(m.repairs) != 9 {
			t.Errorf("%d tries", len(m.repairs))
		}
		m.repairErr, m.ground = nil, "a group was born"
		tell()
	})
	if n := len(got); got[n-3] != "8m30s left qdisc" || got[n-2] != "1h0m0s repaired qdisc" {
		t.Errorf("events %q", got)
	}
}

// TestAgain: the keeper finds drifts even if the kernel does not notify of them. Its looks for them
// take at most their share of a processor.
func TestAgain(t *testing.T) {
	keep(t, nil, func(m *machine, k *watch.Keeper, tell func()) {
		time.Sleep(time.Second)
		m.drift("map")
		pass(watch.Again)
		if len(m.drifted) > 0 {
			t.Error("not repaired")
		}
		m.lookTakes = time.Second
		time.Sleep(time.Minute)
		before := m.looks
		time.Sleep(time.Hour)
		if n := m.looks - before; n != 1 && n != 2 { // one look in 2,000 s
			t.Errorf("%d looks of a second each in an hour", n)
		}
		if _, c, _ := k.State(); c.Repairs != 1 || c.Looks == 0 {
			t.Errorf("count %+v", c)
		}
	})
}

// TestCrowded: if a device changes all the time, the keeper looks at it only at intervals. A drift
// of its lanes is still repaired within a second.
func TestCrowded(t *testing.T) {
	keep(t, nil, func(m *machine, _ *watch.Keeper, tell func()) {
		for range 100 {
			tell()
		}
		before := m.looks
		for began := time.Now(); time.Since(began) < 10*time.Second; {
			tell()
		}
		if n := m.looks - before; n > 25 {
			t.Errorf("%d looks in 10 s", n)
		}
		m.drift("qdisc")
		began := time.Now()
		for len(m.drifted) > 0 && time.Since(began) < time.Minute {
			tell()
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("repaired after %v", took)
		}
	})
}

// TestUnseen: if looks fail with the same error, the keeper reports this once.
func TestUnseen(t *testing.T) {
	got := keep(t, func(m *machine) { m.lookErr = errors.New("no memory") },
		func(m *machine, k *watch.Keeper, tell func()) {
			tell()
			time.Sleep(time.Minute)
			if _, _, failing := k.State(); failing != "no memory" {
				t.Errorf("failing %q", failing)
			}
			m.lookErr = nil
			pass(10 * time.Second)
		})
	same(t, withoutTimes(got), "failed", "begun", "ended")
}

// TestRolledBack: the keeper does not make lanes again that were rolled back.
func TestRolledBack(t *testing.T) {
	got := keep(t, nil, func(m *machine, _ *watch.Keeper, tell func()) {
		m.generation = ""
		m.drift("qdisc")
		tell()
		time.Sleep(time.Hour)
		if len(m.repairs) > 0 {
			t.Error("made again")
		}
	})
	same(t, got, "0s begun", "0s ended")
}

// TestEventsEnd: Run returns an error when the notifications end.
func TestEventsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan string)
		close(told)
		if err := watch.Run(t.Context(), watch.NewKeeper(&machine{t: t}, watch.Options{}), told); err == nil {
			t.Error("no error")
		}
	})
}
