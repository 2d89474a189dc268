// SPDX-License-Identifier: Apache-2.0

package refresh

import (
	"flag"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/power"
)

var update = flag.Bool("update", false, "write what is printed into testdata")

func paper(t *testing.T, name string) Server {
	t.Helper()
	s, err := FromPaper(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPaperClaim checks the claim "200 racks become 72, and more than 1 MW is saved". It follows
// from these two rows of the paper's own table, if the power of a rack is constant.
func TestPaperClaim(t *testing.T) {
	r, err := Replace(paper(t, "2x6252N/live/48"), paper(t, "2x6710E/live/48"),
		Assumptions{Rule: ByPower, Racks: 200, RackPower: 8000, RackUnits: 42, PUE: 1})
	if err != nil {
		t.Fatal(err)
	}
	if r.Whole != 72 || math.Abs(r.Racks.Value-71.875) > 1e-9 {
		t.Errorf("%d racks (%v), want 72 (71.875)", r.Whole, r.Racks)
	}
	if !(r.Racks.Low < 71 && r.Racks.High > 72.5) {
		t.Errorf("racks %v: the table's rounding is not in it", r.Racks)
	}
	if r.Saved.Value < 1e6 || math.Abs(r.Megawatt-7812.5) > 1 {
		t.Errorf("%v W saved; a megawatt at %v W per rack, want 7812.5", r.Saved, r.Megawatt)
	}
	golden(t, "paper", r)
}

// TestUnits checks the same pair by rack units. This saves less, because the new server has two
// units, and so counts twice.
func TestUnits(t *testing.T) {
	r, err := Replace(paper(t, "2x6252N/live/48"), paper(t, "2x6780E/live/100"),
		Assumptions{Rule: ByUnits, Racks: 10, RackUnits: 43, PUE: 1.5, Price: 0.2})
	if err != nil {
		t.Fatal(err)
	}
	// 430 old servers of 195.64 Gbit/s; a rack has 21 new servers.
	want := 10 * 43 * 195.64 / (21 * 1556.67)
	if math.Abs(r.Racks.Value-want) > 1e-9 || r.Whole != 3 {
		t.Errorf("%v racks, whole %d, want %v and 3", r.Racks, r.Whole, want)
	}
	before := 10 * 43 * 195.64 / 0.46 * 1.5
	if math.Abs(r.Power[0].Value-before) > 1e-6 {
		t.Errorf("power before %v, want %v", r.Power[0], before)
	}
	if got := r.Cost.Value / r.Saved.Value; math.Abs(got-8.76*0.2) > 1e-9 {
		t.Errorf("cost per W %v, want 1.752", got)
	}
	golden(t, "units", r)
}

func TestRefused(t *testing.T) {
	good := Assumptions{Rule: ByPower, Racks: 1, RackUnits: 42, PUE: 1}
	old := paper(t, "1x6252N/vod/800")
	for name, c := range map[string]struct {
		change func(s *Server, a *Assumptions)
		want   string
	}{
		"racks":      {func(_ *Server, a *Assumptions) { a.Racks = 0 }, "0 racks"},
		"pue":        {func(_ *Server, a *Assumptions) { a.PUE = 0.9 }, "PUE 0.9"},
		"pue nan":    {func(_ *Server, a *Assumptions) { a.PUE = math.NaN() }, "PUE NaN"},
		"rule":       {func(_ *Server, a *Assumptions) { a.Rule = "hope" }, `rule "hope"`},
		"price":      {func(_ *Server, a *Assumptions) { a.Price = -1 }, "rack power and price: want 0 or more"},
		"efficiency": {func(s *Server, _ *Assumptions) { s.RatePerWatt = power.Interval{} }, "want more than 0"},
		"units": {func(s *Server, a *Assumptions) { a.Rule, s.Units = ByUnits, 0 },
			"takes 0 of a rack's 42 units"},
		"too large": {func(s *Server, a *Assumptions) { a.Rule, s.Units = ByUnits, 43 },
			"takes 43 of a rack's 42 units"},
	} {
		s, a := old, good
		c.change(&s, &a)
		_, err := Replace(s, old, a)
		errtest.Says(t, name, err, c.want)
	}
	_, err := FromPaper("2x6252N")
	errtest.Says(t, "not a row", err, "1x6252N, 2x6252N, 1x6710E")
}

// TestPaperIsConsistent computes watts from two columns of the table. They must be plausible for
// servers, and nearly the same for one server at any load.
func TestPaperIsConsistent(t *testing.T) {
	if n := len(Paper()); n != 48 {
		t.Fatalf("%d rows, want 8 servers x 3 x 2", n)
	}
	for _, s := range Paper() {
		if w := s.Power(); w.Value < 150 || w.Value > 1200 {
			t.Errorf("%s: %v W", s.Name, w)
		}
	}
}

func golden(t *testing.T, name string, r *Result) {
	t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	path := "testdata/" + name + ".golden"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
}
