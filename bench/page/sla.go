// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
)

// A limit is a line across a panel: the limit of an SLA, in ns.
type limit struct {
	at   float64
	text string // "1 ms"
}

// limitsOf returns the limits of the SLAs that are about a percentile.
func limitsOf(slas []experiment.SLA, percentile float64) (out []limit) {
	for _, s := range slas {
		if s.Percentile == percentile {
			out = append(out, limit{float64(s.At), tickText(float64(s.At))})
		}
	}
	return out
}

// limitsText names the limits: "SLA 1 ms, 500 µs"; "" if there are none.
func limitsText(limits []limit) string {
	if len(limits) == 0 {
		return ""
	}
	var parts []string
	for _, l := range limits {
		parts = append(parts, l.text)
	}
	return "SLA " + strings.Join(parts, ", ")
}

// rings returns a text for each SLA for which this load point is the variant's highest that meets
// it. It looks only at the SLAs for which of returns true.
func (v *view) rings(variant string, point int, of func(i int, s result.SLASummary) bool) (out []string) {
	for i, s := range v.Summary.SLAs {
		if !of(i, s) {
			continue
		}
		for _, x := range s.Variants {
			if x.Name == variant && x.Holds != nil && x.Holds.Point == point {
				out = append(out,
					fmt.Sprintf("%s: %s is the highest load that meets %s", variant, x.Holds.Load, s.Text))
			}
		}
	}
	return out
}

// An slaTable is the part of the table of SLAs that is about one of them.
type slaTable struct {
	Text string
	Rows []slaRow
}

type slaRow struct {
	Key                            key
	Holds, Achieved, Exceeds, Open string
}

func (v *view) slaTables() (out []slaTable) {
	for _, s := range v.Summary.SLAs {
		t := slaTable{Text: s.Text}
		for _, x := range s.Variants {
			r := slaRow{Key: keyOf(v.Keys, x.Name), Holds: "no load", Achieved: "-", Exceeds: "no load",
				Open: grouped(strings.Join(x.Open, ", "))}
			if x.Holds != nil {
				r.Holds, r.Achieved = grouped(x.Holds.Load), number(x.Holds.Achieved)+"/s"
			}
			if x.Exceeds != nil {
				r.Exceeds = grouped(x.Exceeds.Load)
			}
			if len(x.Again) > 0 {
				r.Exceeds += "; meets it again at " + grouped(strings.Join(x.Again, ", "))
			}
			t.Rows = append(t.Rows, r)
		}
		if len(t.Rows) > 0 {
			out = append(out, t)
		}
	}
	return out
}
