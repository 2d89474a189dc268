// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/result"
)

// closed returns the fixture as a closed loop over connections.
func closed() *result.Result {
	r := everything()
	for i := range r.Points {
		r.Points[i].Mode, r.Points[i].Rate, r.Points[i].Connections = load.Closed, 0, 8*(i+1)
	}
	r.Searches = nil
	return r
}

// TestSLAIsMarked: the page says where each variant crosses each SLA, and has rings at the highest
// loads that meet one, also in the panel of rates of a closed loop, where they are those of the first
// SLA.
func TestSLAIsMarked(t *testing.T) {
	r := closed()
	r.Experiment.MoreSLAs = []experiment.SLA{{Percentile: 99, At: 300e3}, {Percentile: 90, At: 90e3}}
	page := render(t, r)
	errtest.Has(t, "SLAs", page, "SLA 400 µs, 300 µs", "SLA 90 µs", `colspan="5">P99 ≤ 400 µs</th>`,
		"lane: 16 connections is the highest load that meets P99 ≤ 400 µs",
		`no-lane</td><td data-name="meets it up to">no load</td><td data-name="achieved there">-</td>`+
			`<td class="wrap" data-name="exceeds it at">8 connections</td>`,
		`idle</td><td data-name="meets it up to">16 connections</td><td data-name="achieved there">2,400/s</td>`)
	// idle and lane meet both SLAs of P99: four rings. idle meets that of P90, lane does not. In the
	// panel of rates there are two.
	if n := strings.Count(page, `class="ring"`); n != 4+1+2 {
		t.Errorf("%d rings, want 7", n)
	}
	if n := strings.Count(page, `class="limit"`); n != 3+2 {
		t.Errorf("%d limits, want 3 and 2 beside the titles", n)
	}
}

// TestOneClosedLoop: a closed loop with one load point has its percentiles and its rates as bars.
func TestOneClosedLoop(t *testing.T) {
	r := closed()
	r.Points = r.Points[:1]
	var kept []result.Window
	for _, w := range r.Windows {
		if w.Point == 0 {
			w.Load.FirstByte, w.Load.FirstByteSeries = nil, nil
			kept = append(kept, w)
		}
	}
	r.Windows = kept
	page := render(t, r)
	errtest.Has(t, "bars", page, `id="bytes"`, "<h3>Latency</h3>", "<h4>Requests per second</h4>",
		"lane: 1,200/s achieved", "no-lane, P99: 558 µs (536 to 595)")
	errtest.Lacks(t, "bars", page, "first byte", "Latency over load")
}

// TestNormalised: a bar of the base is 1, the others are the ratios of the summary, in a chart for each
// byte.
func TestNormalised(t *testing.T) {
	r := everything()
	page := render(t, r)
	figure := page[strings.LastIndex(page, `id="normalised"`):]
	figure = figure[:strings.Index(figure, "</figure>")]
	last := result.Summarize(r).Points[1].Variants[1]
	for _, want := range []string{
		"idle, P99.5: the base",
		fmt.Sprintf("no-lane, mean: ×%s (", times(last.MeanRatio.Estimate)),
		fmt.Sprintf("no-lane, P99.5: ×%s (", times(last.Percentiles[3].Ratio.Estimate)),
		"<h4>Time to the first byte</h4>", "<h4>Time to the last byte</h4>",
		fmt.Sprintf("no-lane, mean: ×%s (", times(last.FirstByteMeanRatio.Estimate)),
	} {
		errtest.Has(t, "normalised", figure, want)
	}
	if last.MeanRatio.Estimate < 3.9 || last.MeanRatio.Estimate > 4.1 {
		t.Errorf("the mean of no-lane is %v times that of idle, want 4", last.MeanRatio.Estimate)
	}
	errtest.Lacks(t, "normalised", figure, "P99.99") // refused
	bar := regexp.MustCompile(`<g class="[a-z ]+"><title>([a-z-]+), P99: [^<]*</title>` +
		`<rect class="bar" [^>]*height="([0-9.]+)"`)
	height := map[string]float64{}
	for _, m := range bar.FindAllStringSubmatch(figure, -1) {
		var h float64
		fmt.Sscan(m[2], &h)
		height[m[1]] = h
	}
	if got := height["no-lane"] / height["idle"]; got < 3.8 || got > 4.1 {
		t.Errorf("bars of %v: no-lane is %v times as high as idle", height, got)
	}
}
