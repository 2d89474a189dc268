// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/internal/testing/must"
)

func TestPicture(t *testing.T) {
	r := everything()
	r.Title = "a <made-up> run"
	var b bytes.Buffer
	must.Do(t, WritePicture(&b, r))
	svg := b.String()
	wellFormed(t, svg)
	for text, want := range map[string]int{
		"a &lt;made-up&gt; run": 2, "Latency by percentile, 1200/s": 1, "lane: noise and a lane": 1,
		`<path class="stroke bold"`: len(r.Variants), "prefers-color-scheme: dark": 1, "http": 1, // the SVG namespace
	} {
		if n := strings.Count(svg, text); n != want {
			t.Errorf("%d of %s, want %d in\n%s", n, text, want, svg)
		}
	}
	// The points of each curve end where the page refuses a percentile.
	points := regexp.MustCompile(`<path class="stroke bold" d="([^"]*)"`).FindAllStringSubmatch(svg, -1)
	for i, v := range result.Summarize(r).Points[0].Variants {
		most := len(supported(v.Curve, v.Percentiles))
		if n := strings.Count(points[i][1], "L") + 1; n > most || most >= len(v.Curve) {
			t.Errorf("%s: %d points, want at most %d, fewer than the curve's %d", v.Name, n, most, len(v.Curve))
		}
	}
	for name, r := range map[string]*result.Result{
		"no load point": {Experiment: r.Experiment}, "no latencies": {Points: r.Points[:1], Experiment: r.Experiment},
	} {
		if err := WritePicture(&b, r); err == nil {
			t.Errorf("a picture of %s", name)
		}
	}
}

func TestSupported(t *testing.T) {
	curve := []stats.Step{{Percentile: 50, NS: 1}, {Percentile: 99, NS: 2}, {Percentile: 99.9, NS: 3}}
	for want, list := range map[int][]result.Percentile{
		0: {{P: 50}}, 2: {{P: 50, Estimate: &stats.Estimate{}}, {P: 99, Estimate: &stats.Estimate{}}, {P: 99.9}},
		3: {{P: 99.99, Estimate: &stats.Estimate{}}},
	} {
		if got := supported(curve, list); len(got) != want {
			t.Errorf("%v: %d steps, want %d", list, len(got), want)
		}
	}
}
