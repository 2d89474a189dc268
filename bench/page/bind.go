// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

// The methods in this file are called by the HTML template.

// A pointScope is the view together with one load point.
type pointScope struct {
	*view
	Point pointView
}

// With returns the view with a load point.
func (v *view) With(p pointView) pointScope { return pointScope{v, p} }

// Columns is the number of columns of the table of percentiles.
func (v *view) Columns() int { return len(v.Summary.Percentiles) + 6 }

// Of returns the key of the variant with this name.
func (v *view) Of(name string) key { return keyOf(v.Keys, name) }

// Step renders the value at percentile p from a list.
func (v *view) Step(list []stats.Step, p float64) string { return stepText(list, p) }

// Three are the percentiles shown for values without an interval.
func (v *view) Three() []float64 { return []float64{50, 99, 99.9} }

// A mean is a rendered mean, with the bounds of its interval.
type mean struct{ Mean, Ends string }

// Bucketed renders the mean that the buckets of a variant's histogram allow, and its bounds.
func (v *view) Bucketed(s result.VariantSummary) mean {
	b := s.Bucketed
	if b == nil {
		return mean{"-", ""}
	}
	ends := result.DurationText(b.Low) + " to " + result.DurationText(b.High)
	if b.Beyond > 0 {
		ends = fmt.Sprintf("%s or more: %s lie beyond", result.DurationText(b.Low), share(b.Beyond))
	}
	return mean{result.DurationText(b.Mean), ends}
}

// A doubt is a doubt of the result, as text.
type doubt struct {
	Text, Places string
	Windows      int // 0: not shown
}

// Doubt renders a doubt.
func (v *view) Doubt(d result.Doubt) doubt {
	out := doubt{Text: grouped(d.Text), Places: grouped(d.Places(v.Summary.Points))}
	if n := d.Windows(); n > 1 {
		out.Windows = n
	}
	return out
}

// Levels renders the latencies that a search measured at shares of the rate that it found.
func (v *view) Levels(s result.Search) (out []string) {
	for _, l := range s.Result.Levels {
		if l.Test == nil {
			continue
		}
		what := l.Test.Missing
		if e := l.Test.Estimate; e != nil {
			what = result.PercentileText(e.Percentile) + " " + result.IntervalText(*e)
		}
		out = append(out, fmt.Sprintf("at %s of it, %s/s: %s", tickShare(l.Share), number(l.Test.Rate), what))
	}
	return out
}
