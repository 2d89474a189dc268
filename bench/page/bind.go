// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

// What the template calls.

// A pointScope is the view with one load point.
type pointScope struct {
	*view
	Point pointView
}

// With is the view with a load point.
func (v *view) With(p pointView) pointScope { return pointScope{v, p} }

// Columns of the table of percentiles.
func (v *view) Columns() int { return len(v.Summary.Percentiles) + 5 }

// Of is the key of a variant.
func (v *view) Of(name string) key { return keyOf(v.Keys, name) }

// Step is a percentile among some.
func (v *view) Step(list []stats.Step, p float64) string { return stepText(list, p) }

// Three are the percentiles of what has no interval.
func (v *view) Three() []float64 { return []float64{50, 99, 99.9} }

// A mean with its ends.
type mean struct{ Mean, Ends string }

// Bucketed is the mean of a variant's histogram with how far it can be off.
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

// A doubt as it is shown.
type doubt struct {
	Text, Places string
	Windows      int // 0: not worth a word
}

// Doubt is one of those.
func (v *view) Doubt(d result.Doubt) doubt {
	out := doubt{Text: grouped(d.Text), Places: grouped(d.Places(v.Summary.Points))}
	if n := d.Windows(); n > 1 {
		out.Windows = n
	}
	return out
}

// Levels are what a search measured at shares of the rate that it found.
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
