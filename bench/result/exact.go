// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"io"
	"strings"

	"github.com/niclane/niclane/bench/stats"
)

// WriteExact writes, for a terminal, the latencies of variants with noise beside those of the same
// experiment in virtual time, and says which percentiles the machine's own noise hid. Both summaries
// have one load point.
func WriteExact(out io.Writer, measured, exact *Summary) error {
	if len(measured.Points) != 1 || len(exact.Points) != 1 {
		return fmt.Errorf("%d and %d load points, want one each", len(measured.Points), len(exact.Points))
	}
	here, there := measured.Points[0], exact.Points[0]
	rows := [][]string{{"", "", "here", "exactly"}}
	hidden := map[float64]bool{}
	for _, v := range there.Variants {
		w := here.variant(v.Name)
		if v.Name == there.Base || w == nil {
			continue
		}
		name := v.Name
		for _, p := range v.Percentiles {
			q := w.percentile(p.P)
			if q == nil {
				continue
			}
			rows = append(rows, []string{name, PercentileText(p.P), q.text(), p.text()})
			name = ""
			hidden[p.P] = hidden[p.P] || p.Estimate != nil && vague(q.Estimate)
		}
	}
	var b strings.Builder
	table(&b, "the same in virtual time: queueing is exact, and this machine's noise is not there", rows)
	var names []string
	for _, p := range exact.Percentiles {
		if hidden[p] {
			names = append(names, PercentileText(p))
		}
	}
	if len(names) > 0 {
		fmt.Fprintf(&b, "This machine hid %s: too few requests, or an interval of more than a factor of two.\n",
			strings.Join(names, ", "))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// vague reports whether an estimate says little.
func vague(e *stats.Estimate) bool { return e == nil || e.High > 2*e.Low }

func (p *PointSummary) variant(name string) *VariantSummary {
	for i := range p.Variants {
		if p.Variants[i].Name == name {
			return &p.Variants[i]
		}
	}
	return nil
}

func (v *VariantSummary) percentile(p float64) *Percentile {
	for i := range v.Percentiles {
		if v.Percentiles[i].P == p {
			return &v.Percentiles[i]
		}
	}
	return nil
}
