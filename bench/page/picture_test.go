// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/result"
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
		`<path class="stroke bold"`: len(r.Variants), "prefers-color-scheme: dark": 1, "http": 1, // the name of SVG
	} {
		if n := strings.Count(svg, text); n != want {
			t.Errorf("%d of %s, want %d in\n%s", n, text, want, svg)
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
