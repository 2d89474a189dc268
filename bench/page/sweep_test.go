// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
)

// TestSweeps: the page has a chart for each measure with values, and the values in a table.
func TestSweeps(t *testing.T) {
	both := func(a, b float64) [][]Range {
		return [][]Range{{{a, a / 2, a * 2}, {b, b, b}}, {{a / 10, a / 10, a / 10}, {}}}
	}
	var out bytes.Buffer
	must.Do(t, WriteSweeps(&out, Sweeps{Title: "Lanes & queues", Niclane: "1.2.3", Lead: []string{"A lead"},
		Sweeps: []Sweep{{Title: "Buffers", Text: []string{"A sentence."}, Axis: "buffer", Unit: Bytes, Log: true,
			Cases: []Case{{"as it is", false}, {"a lane", true}}, Values: []float64{64 << 10, 1 << 20},
			Measures: []Measure{{"P99", Time, both(2e6, 3e6)}, {"traffic", Bits, both(5e8, 6e8)},
				{"nothing", Time, [][]Range{make([]Range, 2), make([]Range, 2)}}}}}}))
	page := out.String()
	wellFormed(t, page)
	for _, want := range []string{
		"<h1>Lanes &amp; queues</h1>", "A lead.", "A sentence.", "Virtual time.",
		"as it is, 64 KiB: 2 ms (1 ms to 4 ms)", "a lane, 64 KiB: 200 µs", "a lane, 1 MiB: P99 refused: too few requests",
		`<td data-name="buffer">1 MiB</td><td class="name"><i class="key orange"></i>as it is</td><td data-name="P99">3 ms</td>`,
		`<td data-name="traffic">600 Mbit/s</td>`, `<td data-name="traffic">-</td>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page[strings.Index(page, "<main>"):])
		}
	}
	if n := strings.Count(page, "<svg"); n != 2 {
		t.Errorf("%d charts, want 2", n)
	}
}
