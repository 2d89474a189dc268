// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// otherLanes changes a lanes file: fewer queues for redis, another rank for web, and one member
// less.
func otherLanes(lanes string) string {
	lanes = strings.Replace(lanes, "    queues: 2\n    ports: [6379]", "    queues: 1\n    ports: [6379, 6380]", 1)
	lanes = strings.Replace(lanes, "rank: 3", "rank: 5", 1)
	return strings.Replace(lanes, "      - name: plain\n        ports: [80]\n", "", 1)
}

// TestSystemGenerations applies one lanes file, then a changed one, and kills the second apply at
// some writes. Rollback must restore the state before the first apply. After a complete apply, a
// new plan must have no steps.
func TestSystemGenerations(t *testing.T) {
	onSystem(t, func(t *testing.T, lanes string) {
		first, start, dir := planHere(t, lanes), dump(t), t.TempDir()
		for n := 0; ; n += 3 {
			c := quietApplier(dir, first)
			if out, err := c.output(t); err != nil {
				t.Fatalf("first: %v: %s", err, out)
			}
			if again := replanHere(t, lanes, ownedIn(t, dir)); len(again.Steps) > 0 {
				t.Fatalf("planning again after apply: %d steps, first %s", len(again.Steps), again.Steps[0].Key())
			}
			c = quietApplier(dir, replanHere(t, otherLanes(lanes), ownedIn(t, dir)))
			if len(c.Plan.Steps) < 8 {
				t.Fatalf("only %d steps from one config to the other", len(c.Plan.Steps))
			}
			c.Kill, c.After = n, n%2 == 0
			err := c.command(t).Run()
			if err == nil {
				if again := replanHere(t, otherLanes(lanes), ownedIn(t, dir)); len(again.Steps) > 0 {
					t.Errorf("planning again after the second apply: %d steps, first %s", len(again.Steps),
						again.Steps[0].Key())
				}
			}
			if _, rerr := rollback(t, dir); rerr != nil {
				t.Errorf("second killed at write %d: %v", n, rerr)
			}
			wantDump(t, fmt.Sprintf("second killed at write %d, rolled back", n), start)
			if err == nil || t.Failed() {
				t.Logf("%d steps of kinds %v, killed %d times", len(c.Plan.Steps), kinds(c.Plan), n/3)
				return
			}
		}
	})
}

// TestSystemUndoOfOneGeneration applies two lanes files and undoes only the second, as a guardian
// does.
func TestSystemUndoOfOneGeneration(t *testing.T) {
	onSystem(t, func(t *testing.T, lanes string) {
		dir := t.TempDir()
		if out, err := quietApplier(dir, planHere(t, lanes)).output(t); err != nil {
			t.Fatalf("first: %v: %s", err, out)
		}
		between := dump(t)
		if out, err := quietApplier(dir, replanHere(t, otherLanes(lanes), ownedIn(t, dir))).output(t); err != nil {
			t.Fatalf("second: %v: %s", err, out)
		}
		k := openKernel(t)
		defer k.Close()
		if _, err := apply.Undo(k, journalIn(t, dir), apply.Options{}); err != nil {
			t.Error(err)
		}
		wantDump(t, "after undoing the second", between)
		if again := replanHere(t, lanes, ownedIn(t, dir)); len(again.Steps) > 0 {
			t.Errorf("planning the first again: %d steps, first %s", len(again.Steps), again.Steps[0].Key())
		}
	})
}

// journalIn returns the only journal in the state directory of dir.
func journalIn(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	s, err := journal.OpenExisting(dir+"/state", thisHost(t))
	must.Do(t, err)
	t.Cleanup(func() { s.Close() })
	js, err := s.Here()
	must.Do(t, err)
	if len(js) != 1 {
		t.Fatalf("%d journals, want 1", len(js))
	}
	return js[0]
}

func ownedIn(t *testing.T, dir string) plan.Owned {
	t.Helper()
	return owned(journalIn(t, dir).Records())
}

// rollback rolls back the journal of journalIn, as the command does.
func rollback(t *testing.T, dir string) (*apply.Report, error) {
	t.Helper()
	k := openKernel(t)
	defer k.Close()
	return apply.Rollback(context.Background(), k, journalIn(t, dir), thisHost(t), apply.Options{})
}
