// SPDX-License-Identifier: Apache-2.0

package result

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/niclane/niclane/bench/experiment"
)

// FivePercent is the share of a requested rate that a server may fall short of, by the papers' rule.
const FivePercent = 0.05

// A Standing says whether a variant meets an SLA at a load point. It compares the limit with the
// 95 % interval of the percentile.
type Standing string

// Values of Standing.
const (
	Meets       Standing = "meets"        // the whole interval is at or below the limit
	Exceeds     Standing = "exceeds"      // the whole interval is above the limit
	Unclear     Standing = "unclear"      // the limit is in the interval
	Refused     Standing = "refused"      // the sample is too small for the percentile
	NotMeasured Standing = "not measured" // the variant has no window at the load point
)

// An SLASummary says up to which load each variant meets an SLA of the experiment.
type SLASummary struct {
	experiment.SLA
	Text     string       `json:"text"` // "P99.9 ≤ 1.00 ms"
	Variants []SLAVariant `json:"variants"`
}

// An SLAVariant says where the latency of a variant crosses the limit of an SLA.
type SLAVariant struct {
	Name string `json:"name"`
	// Standings has one for each load point, in the order of Summary.Points.
	Standings []Standing `json:"standings"`
	// Exceeds is the lowest load at which the variant exceeds the SLA; nil: at none.
	Exceeds *SLALoad `json:"exceeds,omitempty"`
	// Holds is the highest load below Exceeds at which the variant meets the SLA and achieves at least
	// 95 % of the requested rate; nil: at none.
	Holds *SLALoad `json:"holds,omitempty"`
	// Open are the loads above Holds and below Exceeds: at these the samples do not tell, or less than
	// 95 % of the requested rate was achieved.
	Open []string `json:"open,omitempty"`
	// Again are loads above Exceeds at which the variant meets the SLA.
	Again []string `json:"again,omitempty"`
	Text  string   `json:"text"` // all of this as a sentence without a full stop
}

// An SLALoad is a load point.
type SLALoad struct {
	Point int    `json:"point"` // index of the load point
	Load  string `json:"load"`  // "10000/s", or "220 connections" for a closed loop
	// Achieved is the rate that the variant achieved there, per second.
	Achieved float64 `json:"achievedPerSecond"`
}

// Load returns what differs between load points: "10000/s", or "220 connections" for a closed loop.
func (p Point) Load() string {
	if p.Rate > 0 {
		return numberText(p.Rate) + "/s"
	}
	name, _, _ := strings.Cut(p.Name(), ",")
	return name
}

// summarizeSLA says where the variants cross an SLA.
func summarizeSLA(sla experiment.SLA, points []PointSummary, variants []Variant) SLASummary {
	s := SLASummary{SLA: sla,
		Text: fmt.Sprintf("%s ≤ %s", PercentileText(sla.Percentile), DurationText(float64(sla.At)))}
	order := make([]int, len(points)) // load points by rising load
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(points[a].Rate, points[b].Rate),
			cmp.Compare(points[a].Connections, points[b].Connections))
	})
	for _, variant := range variants {
		v := SLAVariant{Name: variant.Name, Standings: make([]Standing, len(points))}
		for _, i := range order {
			v.add(i, points[i], sla)
		}
		if v.Text = v.text(); slices.ContainsFunc(v.Standings, func(s Standing) bool { return s != NotMeasured }) {
			s.Variants = append(s.Variants, v)
		}
	}
	return s
}

// add adds the next higher load point.
func (v *SLAVariant) add(point int, p PointSummary, sla experiment.SLA) {
	standing, here, short := NotMeasured, SLALoad{Point: point, Load: p.Load()}, false
	for _, s := range p.Variants {
		if s.Name == v.Name {
			standing = standingOf(at(s.Percentiles, sla.Percentile), sla.At)
			here.Achieved, short = s.Achieved, s.Short > FivePercent
		}
	}
	v.Standings[point] = standing
	switch {
	case standing == NotMeasured:
	case standing == Exceeds && v.Exceeds == nil:
		v.Exceeds = &here
	case v.Exceeds != nil:
		if standing == Meets && !short {
			v.Again = append(v.Again, here.Load)
		}
	case standing == Meets && !short:
		v.Holds, v.Open = &here, nil
	default:
		v.Open = append(v.Open, here.Load)
	}
}

func standingOf(c Percentile, limit int64) Standing {
	switch e := c.Estimate; {
	case e == nil:
		return Refused
	case e.High <= limit:
		return Meets
	case e.Low > limit:
		return Exceeds
	}
	return Unclear
}

func (v *SLAVariant) text() string {
	var parts []string
	if v.Holds != nil {
		parts = append(parts, fmt.Sprintf("meets it up to %s (%.0f/s achieved)", v.Holds.Load, v.Holds.Achieved))
	}
	if len(v.Open) > 0 {
		parts = append(parts, "not known or short of the rate at "+strings.Join(v.Open, ", "))
	}
	switch {
	case v.Exceeds != nil:
		parts = append(parts, "exceeds it at "+v.Exceeds.Load)
	case v.Holds != nil && len(v.Open) == 0:
		parts = append(parts, "the highest load of all")
	case v.Holds == nil:
		parts = append(parts, "met at no load for sure")
	}
	if len(v.Again) > 0 {
		parts = append(parts, "meets it again at "+strings.Join(v.Again, ", "))
	}
	return strings.Join(parts, ", ")
}

// slaLines returns a line for each SLA and variant.
func (s *Summary) slaLines() (lines []string) {
	for _, a := range s.SLAs {
		for _, v := range a.Variants {
			lines = append(lines, fmt.Sprintf("sla: %s: %s: %s", a.Text, v.Name, v.Text))
		}
	}
	return lines
}
