// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/bench/load"
)

// loadLine says what was asked of the server.
func loadLine(r *Result) string {
	l := r.Setup.Load.WithDefaults()
	arrivals := "evenly spaced"
	if l.Arrivals == load.Poisson {
		arrivals = "Poisson"
	}
	return fmt.Sprintf("%s gets/s, %s, over %d connections; keys of %d and values of %d bytes; %d interleaved repeats of %s",
		count(int64(l.Rate)), arrivals, l.Connections, l.KeyBytes, l.ValueBytes, r.Setup.Repeats, duration(float64(l.Duration)))
}

// noiseLine says what was in the way.
func noiseLine(r *Result) string {
	s := r.Setup
	if s.LinkRate == 0 {
		return ""
	}
	parts := []string{fmt.Sprintf("Link of %s in each direction, buffer %s", bitrate(float64(s.LinkRate)), size(float64(s.Buffer)))}
	if s.NoiseShare > 0 {
		parts = append(parts, fmt.Sprintf("noise at %.0f %% of it", 100*s.NoiseShare))
	}
	return strings.Join(parts, "; ")
}

// cpuTable has a row for each consumer and a column for each variant; nil when
// nothing was measured.
func cpuTable(r *Result) [][]string {
	if len(r.Summary.CPU) == 0 {
		return nil
	}
	head := []string{""}
	for _, v := range r.Variants {
		head = append(head, v.Name)
	}
	rows := [][]string{head}
	seen := make(map[string]bool)
	for _, c := range r.Summary.CPU {
		if seen[c.What] {
			continue
		}
		seen[c.What] = true
		row := []string{c.What}
		for _, v := range r.Variants {
			cell := "~"
			for _, o := range r.Summary.CPU {
				if o.What == c.What && o.Variant == v.Name {
					cell = share(o.Share)
				}
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return rows
}

// headline is the result in one sentence, "" when the sample cannot carry it.
func headline(r *Result) string {
	var with, without *RatioRow
	for i, t := range r.Summary.Ratios {
		if t.P != 99 || t.Ratio == nil || t.Ratio.N < minPairs {
			continue
		}
		switch t.Variant {
		case Lane:
			with = &r.Summary.Ratios[i]
		case NoLane:
			without = &r.Summary.Ratios[i]
		}
	}
	if with == nil || without == nil {
		return ""
	}
	return fmt.Sprintf("Noise makes P99 %s what it is on an idle link; with a lane it is %s.",
		times(without.Ratio.Estimate), times(with.Ratio.Estimate))
}
