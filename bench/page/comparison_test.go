// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/statstest"
)

func renderTwo(t *testing.T, a, b *result.Result) string {
	t.Helper()
	c, err := result.Compare(a, b, false)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := WriteComparison(&out, c, a, b); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, out.String())
	return out.String()
}

// second returns a result like that of the function everything, from a second run. The second run
// has another kernel and other lanes, and half the latency with a lane.
func second() *result.Result {
	r := everything()
	r.Environment.Kernel = "6.19.0"
	r.Variants[2].Lanes = "version: 1\nlanes: {a: {}}\n"
	for i := range r.Windows {
		l := &r.Windows[i].Load
		if r.Windows[i].Variant != "lane" {
			continue
		}
		half := stats.NewRecorder(interval, intervals)
		for w := range l.Series.Windows() {
			half.Advance(w)
			l.Series.HistogramOf(w).Buckets(func(low, _, n int64) bool {
				for range n {
					half.Record(low / 2)
				}
				return true
			})
		}
		l.Series = half.Series()
		l.Latency = l.Series.Histogram()
	}
	return r
}

func TestComparison(t *testing.T) {
	page := renderTwo(t, everything(), second())
	for name, sign := range map[string]string{
		"title": "a made-up run, two runs", "headline": "At 2400/s, 8 connections, P99 of B beside that of A: idle " +
			"×1.00", "half": "lane ×0.50",
		"doubt": "measured apart: changes of the host between", "own doubts": "Doubts about B alone",
		"kernel": `<td class="text" data-name="B">6.19.0</td>`,
		"lanes":  "&#43; lanes: {a: {}}\n", "nothing else": "lanes of lane", "legend": `class="legend"`,
		"lines": "<h2>Latency over load</h2>", "A dashed": `class="blue hollow"`,
		"ratios": `id="ratios"`, "distribution": `id="distribution"`,
		"points": "<summary>At 1200/s, 8 connections</summary>",
		"values": `<td data-name="B to A" title="`, "base": `data-name="beside the base"`,
		"refused": `<span class="refused">needs `, "noise": "noise to the SUT", "SLA of both": "SLA 400 µs<",
	} {
		errtest.Has(t, name, page, sign)
	}
	other := second()
	other.Experiment.SLA.At = 500e3
	errtest.Lacks(t, "an SLA of one run", renderTwo(t, everything(), other), `class="limit"`)
	errtest.Lacks(t, "the page", page, "http:", "https:", "src=", "<link", "<script", "@import", "url(", "href=",
		"ZgotmplZ", "NaN", "Inf")
	// The page is parsed to see which of the two values is named A and which B.
	var value [2]float64
	for i, letter := range []string{"A", "B"} {
		m := regexp.MustCompile("<title>lane of " + letter + `, 2,400/s: ([0-9.]+) µs`).FindStringSubmatch(page)
		if m == nil {
			t.Fatalf("no point of the lane of %s", letter)
		}
		fmt.Sscan(m[1], &value[i])
	}
	if ratio := value[1] / value[0]; ratio < 0.49 || ratio > 0.51 {
		t.Errorf("%v of A, %v of B, which takes half as long", value[0], value[1])
	}
	if n, m := strings.Count(page, "<figure "), strings.Count(page, "<figcaption>"); n != m || n != 4 {
		t.Errorf("%d figures and %d captions", n, m)
	}
}

// TestComparisonOfLittle checks that the page leaves out parts that the runs lack, and names what
// only one run has.
func TestComparisonOfLittle(t *testing.T) {
	a, b := everything(), everything()
	b.Points = b.Points[:1]
	b.Partial = &result.Partial{Phase: "repeats", Reason: "interrupted"}
	var kept []result.Window
	for _, w := range b.Windows {
		if w.Point == 0 && w.Variant != "lane" && w.Purpose == result.Repeat {
			h := statstest.Equal(1, 1000)
			w.Load.Latency, w.Load.Series = h, stats.OneWindow(h)
			kept = append(kept, w)
		}
	}
	b.Windows, b.Searches = kept, nil
	page := renderTwo(t, a, b)
	errtest.Has(t, "of little", page, "only in A: load point 2400/s, 8 connections", "only in A: variant lane",
		"ended in phase repeats: interrupted", "<h2>At 1200/s, 8 connections</h2>")
	errtest.Lacks(t, "of little", page, "Latency over load", `id="ratios"`, `class="headline"`, "NaN")
}

func TestComparisonEscapes(t *testing.T) {
	const evil = `</style></svg><script>alert(1)</script><b a="'>`
	spoil := func(r *result.Result, kernel string) *result.Result {
		r.Title, r.Niclane, r.Warnings, r.Environment.Kernel = evil+kernel, evil, []string{evil}, evil+kernel
		r.Variants[2].Lanes = evil + "\n" + kernel
		r.Partial = &result.Partial{Phase: evil, Reason: evil}
		for i := range r.Windows {
			r.Windows[i].Load.Warnings = []string{evil}
			if r.Windows[i].Variant == "no-lane" {
				r.Windows[i].Variant = evil
			}
		}
		r.Variants[1].Name = evil
		return r
	}
	page := renderTwo(t, spoil(everything(), "1"), spoil(everything(), "2"))
	errtest.Lacks(t, "text that became markup", page, "<script", `<b a=`)
}
