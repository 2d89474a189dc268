// SPDX-License-Identifier: Apache-2.0

package result

import (
	"testing"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/stats"
)

// TestSLA: a variant meets an SLA only if the whole interval of the percentile does. Each letter of
// a load is the standing there: m meets, e exceeds, u unclear, r refused, s meets it but is short of
// the rate, - was not measured.
func TestSLA(t *testing.T) {
	sla := experiment.SLA{Percentile: 99, At: 1000}
	of := func(letter byte) VariantSummary {
		e := map[byte]*stats.Estimate{'m': {Low: 800, Value: 900, High: 1000}, 's': {Low: 800, Value: 900, High: 1000},
			'e': {Low: 1001, Value: 1100, High: 1200}, 'u': {Low: 900, Value: 950, High: 1001}}[letter]
		v := VariantSummary{Name: "lane", Achieved: 77, Percentiles: []Percentile{{P: 99, Estimate: e}}}
		if letter == 's' {
			v.Short = 0.06
		}
		return v
	}
	for loads, want := range map[string]string{
		"mmm":  "meets it up to 300/s (77/s achieved), the highest load of all",
		"mee":  "meets it up to 100/s (77/s achieved), exceeds it at 200/s",
		"mue":  "meets it up to 100/s (77/s achieved), not known or short of the rate at 200/s, exceeds it at 300/s",
		"ree":  "not known or short of the rate at 100/s, exceeds it at 200/s",
		"eee":  "exceeds it at 100/s",
		"mem":  "meets it up to 100/s (77/s achieved), exceeds it at 200/s, meets it again at 300/s",
		"rmm":  "meets it up to 300/s (77/s achieved), the highest load of all",
		"mms":  "meets it up to 200/s (77/s achieved), not known or short of the rate at 300/s",
		"rrr":  "not known or short of the rate at 100/s, 200/s, 300/s, met at no load for sure",
		"m-e":  "meets it up to 100/s (77/s achieved), exceeds it at 300/s",
		"mess": "meets it up to 100/s (77/s achieved), exceeds it at 200/s",
	} {
		points := make([]PointSummary, len(loads))
		for i := range loads {
			j := len(loads) - 1 - i // the file's order is not that of the loads
			points[j].Rate = float64(100 * (i + 1))
			if loads[i] != '-' {
				points[j].Variants = []VariantSummary{of(loads[i])}
			}
		}
		got := summarizeSLA(sla, points, []Variant{{Name: "lane"}, {Name: "gone"}})
		if len(got.Variants) != 1 || got.Variants[0].Text != want {
			t.Errorf("%s: %+v, want %s", loads, got.Variants, want)
		}
		if got.Text != "P99 ≤ 1.00 µs" {
			t.Error(got.Text)
		}
	}
	if got := (Point{Connections: 220}).Load(); got != "220 connections" {
		t.Errorf("%q", got)
	}
}

// TestMeanRatio: the ratio of means is that of pairs, and is judged with those of the other variants.
func TestMeanRatio(t *testing.T) {
	v := Summarize(fixture()).Points[0].Variants
	if v[0].MeanRatio != nil || v[1].MeanRatio.Estimate < 2.9 || v[1].MeanRatio.Estimate > 3.1 ||
		v[1].MeanRatio.Difference.Text == stats.Same || v[2].MeanRatio.Difference.Text != stats.Same {
		t.Errorf("%+v, %+v, %+v", v[0].MeanRatio, v[1].MeanRatio, v[2].MeanRatio)
	}
}

// TestSLAsOfAResult: each SLA of the experiment has its place in the summary and in the texts, and
// its percentile is among those of the summary.
func TestSLAsOfAResult(t *testing.T) {
	r := fixture()
	r.Experiment.SLA = &experiment.SLA{Percentile: 99, At: 200e3}
	r.Experiment.MoreSLAs = []experiment.SLA{{Percentile: 99.5, At: 1e6}}
	s := Summarize(r)
	want := []string{
		"sla: P99 ≤ 200 µs: idle: meets it up to 2000/s (2000/s achieved), the highest load of all",
		"sla: P99 ≤ 200 µs: no-lane: exceeds it at 2000/s",
		"sla: P99 ≤ 200 µs: twin: meets it up to 2000/s (2000/s achieved), the highest load of all",
	}
	lines := s.slaLines()
	if len(lines) != 6 {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	for i, w := range want {
		if lines[i] != w {
			t.Errorf("%q, want %q", lines[i], w)
		}
	}
	if v := s.SLAs[1].Variants[1]; v.Standings[0] != Meets {
		t.Errorf("%+v", v)
	}
}

// TestJitter: its bounds come from both intervals, and it is refused without one of them.
func TestJitter(t *testing.T) {
	p50, p99 := stats.Estimate{Low: 9, Value: 10, High: 12}, stats.Estimate{Low: 95, Value: 100, High: 110}
	got := jitter([]Percentile{{P: 50, Estimate: &p50}, {P: 99, Estimate: &p99}})
	if got == nil || *got != (Jitter{90, 83, 101}) || got.Text() != "90 ns (83 to 101)" {
		t.Errorf("%+v %s", got, got.Text())
	}
	if got := jitter([]Percentile{{P: 50, Estimate: &p50}, {P: 99, Missing: "few"}}); got != nil || got.Text() != "-" {
		t.Errorf("%+v of a refused P99", got)
	}
}
