// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/plan"
)

// TestOnly: an apply of some steps makes only these. The next apply makes the others, and undoing it
// leaves the first ones. A rollback restores what was there before both.
func TestOnly(t *testing.T) {
	dev := vethtest.Uplink(t)
	e := newEngine(t)
	f := shared(t, dev, "50%", 1)
	before, err := e.Plan(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	disruptive := func(s plan.Step) bool { return s.Disruptive }
	var some []string
	for _, s := range before.Steps {
		if s.Disruptive {
			some = append(some, s.Key())
		}
	}
	if len(some) == 0 || len(some) == len(before.Steps) {
		t.Fatalf("%d of %d steps are disruptive: this lane tests nothing", len(some), len(before.Steps))
	}
	r, err := e.Apply(t.Context(), f, ApplyOptions{Only: disruptive})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(some, r.Report.Done); diff != "" {
		t.Error(diff)
	}
	rest, err := e.Plan(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	if len(rest.Steps) != len(before.Steps)-len(some) {
		t.Errorf("%d steps are left of %d", len(rest.Steps), len(before.Steps))
	}
	if fitted, _, err := e.Fitted(""); err != nil || len(fitted) > 0 {
		t.Errorf("lanes %v, %v: they are not complete", fitted, err)
	}
	if _, err := e.Apply(t.Context(), f, ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Rollback(t.Context(), RollbackOptions{Of: f.Name, Last: true}); err != nil {
		t.Fatal(err)
	}
	again, err := e.Plan(t.Context(), f)
	if err != nil || len(again.Steps) != len(rest.Steps) {
		t.Errorf("%d steps after the undo, want %d; %v", len(again.Steps), len(rest.Steps), err)
	}
	rollback(t, e)
	after, err := e.Plan(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	if len(after.Steps) != len(before.Steps) {
		t.Errorf("%d steps after the rollback, want %d", len(after.Steps), len(before.Steps))
	}
}
