// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

// cpuCell returns the cell with the server's processor time per request.
func cpuCell(s result.VariantSummary) cell {
	c := cell{Name: "server CPU", Refused: "not known"}
	if s.ServerCPU > 0 {
		c.Value, c.Interval = result.DurationText(s.ServerCPU), "a request"
	}
	if r := s.ServerCPURatio; r != nil {
		c.Ratio, c.Ends = "×"+times(r.Estimate), times(r.Low)+" to "+times(r.High)
	}
	return c
}

// An exceedRow is a threshold, with each variant's share of requests above it.
type exceedRow struct {
	Threshold string
	Cells     []exceedCell
}

type exceedCell struct{ Share, Interval, Refused string }

func (v *view) exceedRows(p result.PointSummary) (out []exceedRow) {
	for i, t := range p.Thresholds {
		r := exceedRow{Threshold: tickText(float64(t))}
		for _, s := range p.Variants {
			c := exceedCell{Refused: "too few windows"}
			if i < len(s.Exceed) {
				e := s.Exceed[i]
				c = exceedCell{Share: share(1 - e.Within), Interval: share(1-e.High) + " to " + share(1-e.Low)}
				if e.Missing != "" { // only the share's upper bound is known
					c = exceedCell{Refused: "at most " + share(1-e.Low)}
				}
			}
			r.Cells = append(r.Cells, c)
		}
		out = append(out, r)
	}
	return out
}

// bars are horizontal bars that share a scale.
type bars struct {
	Name, Note string
	Bars       []hbar
}

type hbar struct {
	Key           key
	Text, Detail  string
	Percent, Mark float64 // both in percent of the scale; Mark below 0: no mark
	MarkTitle     string
}

func percentOf(v, scale float64) float64 {
	if scale <= 0 {
		return 0
	}
	return math.Min(100, 100*v/scale)
}

func (v *view) noiseBars(p result.PointSummary) (out []bars) {
	top := 0.0
	for _, s := range p.Variants {
		for _, n := range s.Noise {
			top = max(top, n.Achieved, n.Asked)
		}
	}
	at := map[string]int{}
	for _, s := range p.Variants {
		for _, n := range s.Noise {
			i, ok := at[n.Direction]
			if !ok {
				i = len(out)
				at[n.Direction] = i
				out = append(out, bars{Name: "noise " + result.Way(n.Direction),
					Note: result.BitsText(n.Asked) + " asked for"})
			}
			detail := fmt.Sprintf("%s segments sent again", count(int64(n.Retransmits)))
			if n.Datagrams > 0 {
				detail = fmt.Sprintf("%s of %s datagrams lost", count(n.Lost), count(n.Datagrams))
			}
			for i, s := range n.Latency {
				if i == 0 {
					detail += "; " + n.LatencyOf
				} else {
					detail += ","
				}
				detail += fmt.Sprintf(" %s %s", result.PercentileText(s.Percentile), result.DurationText(float64(s.NS)))
			}
			out[i].Bars = append(out[i].Bars, hbar{Key: keyOf(v.Keys, s.Name), Text: result.BitsText(n.Achieved),
				Detail:  detail,
				Percent: percentOf(n.Achieved, top), Mark: percentOf(n.Asked, top), MarkTitle: "asked for"})
		}
	}
	return out
}

// hopBars returns bars for the queues on the path, and the names of the queues that were always
// empty.
func (v *view) hopBars(p result.PointSummary) (out []bars, empty []string) {
	top := 0.0
	used := map[string]bool{}
	for _, s := range p.Variants {
		for _, h := range s.Hops {
			top = max(top, h.Mean, float64(h.P99))
			used[h.Name] = used[h.Name] || h.Max > 0 || h.Drops > 0
		}
	}
	at := map[string]int{}
	for _, s := range p.Variants {
		for _, h := range s.Hops {
			if !used[h.Name] {
				if !slices.Contains(empty, h.Name) {
					empty = append(empty, h.Name)
				}
				continue
			}
			i, ok := at[h.Name]
			if !ok {
				i = len(out)
				at[h.Name] = i
				out = append(out, bars{Name: h.Name, Note: string(h.Reach)})
			}
			b := hbar{Key: keyOf(v.Keys, s.Name), Text: result.BytesText(h.Mean), Percent: percentOf(h.Mean, top),
				Mark: -1}
			var detail []string
			if h.P99 >= 0 {
				b.Mark, b.MarkTitle = percentOf(float64(h.P99), top), "P99"
				detail = append(detail, "P99 "+result.BytesText(float64(h.P99)))
			}
			most := "max " + result.BytesText(float64(h.Max))
			if h.Limit > 0 {
				most += " of " + result.BytesText(float64(h.Limit))
			}
			detail = append(detail, most)
			if h.Rate > 0 {
				detail = append(detail, fmt.Sprintf("a packet waits %s, at most %s", result.DurationText(h.MeanWait),
					result.DurationText(h.MaxWait)))
			}
			detail = append(detail, fmt.Sprintf("%s drops", count(int64(h.Drops))))
			b.Detail = strings.Join(detail, "; ")
			if h.Max == 0 && h.Drops == 0 {
				b.Detail, b.Mark = "empty in every sample", -1
			}
			out[i].Bars = append(out[i].Bars, b)
		}
	}
	return out, empty
}

// A useRow is one counter of the machine, with its value in each variant.
type useRow struct {
	Name   string
	Values []string
}

func useRows(p result.PointSummary) (out []useRow) {
	for _, u := range p.Machine {
		r := useRow{Name: u.Name}
		if u.Unit == result.PerRequest || u.Unit == result.PerRequestNs {
			r.Name += ", per request"
		}
		for _, v := range u.Values {
			r.Values = append(r.Values, useText(v, u.Unit))
		}
		out = append(out, r)
	}
	return out
}

func useText(v *float64, unit string) string {
	if v == nil {
		return "-"
	}
	switch unit {
	case result.PerRequestNs:
		return result.DurationText(*v)
	case result.PerRequest:
		return number(*v)
	case result.PerSecond:
		return number(*v) + "/s"
	case result.BitsPerS:
		return result.BitsText(*v)
	case result.OfProcessor, result.OfPackets, result.OfPolls:
		return share(*v)
	}
	return number(*v)
}

// A powerRow is what one power source measured in one variant.
type powerRow struct {
	Key                                      key
	Source, Covers                           string
	Power, RatePerWatt, Joules, Rate, Reason string
}

func (v *view) powerRows(p result.PointSummary) (out []powerRow) {
	for _, s := range p.Variants {
		for _, w := range s.Power {
			r := powerRow{Key: keyOf(v.Keys, s.Name), Source: w.Provenance.Source, Covers: w.Provenance.Covers,
				Reason: w.Missing,
				Power:  "-", RatePerWatt: "-", Joules: "-", Rate: "-"}
			if w.Power != nil {
				r.Power = boundsText(*w.Power, "W", 1)
			}
			if d := w.Derived; d != nil {
				if d.RatePerWatt != nil {
					r.RatePerWatt = boundsText(*d.RatePerWatt, "", 1)
				}
				if d.Rate != nil {
					r.Rate = number(d.Rate.Value) + " Gbit/s"
				}
				if d.JoulesPerRequest != nil {
					r.Joules = boundsText(*d.JoulesPerRequest, "mJ", 1e3)
				}
			}
			out = append(out, r)
		}
	}
	return out
}

func boundsText(i power.Interval, unit string, k float64) string {
	high := "no upper bound"
	if i.High < math.MaxFloat64/1e6 {
		high = number(i.High * k)
	}
	text := number(i.Value * k)
	if unit != "" {
		text += " " + unit
	}
	return fmt.Sprintf("%s (%s to %s)", text, number(i.Low*k), high)
}

// powerMissing returns the reason why the result has no power at all.
func (v *view) powerMissing() string {
	why := "the experiment names no power source"
	for _, p := range v.Summary.Points {
		for _, s := range p.Variants {
			for _, w := range s.Power {
				if w.Power != nil {
					return ""
				}
				why = w.Missing
			}
		}
	}
	return why
}

// A fanOutRow is one response time in the table of fan-outs.
type fanOutRow struct {
	Time  string
	Cells []fanOutCell
}

type fanOutCell struct{ Text, More string }

func fanOutRows(f result.FanOut) (out []fanOutRow) {
	for i, t := range f.Times {
		r := fanOutRow{Time: tickText(float64(t))}
		for _, s := range f.Variants {
			c := fanOutCell{Text: s.Missing}
			if i < len(s.Answers) {
				c.Text = answerText(s.Answers[i])
			}
			if i < len(s.More) && s.More[i] != "" {
				c.More = s.More[i]
			}
			r.Cells = append(r.Cells, c)
		}
		out = append(out, r)
	}
	return out
}

// A heat is one variant's table of a sweep.
type heat struct {
	Key  key
	Rows []heatRow
}

type heatRow struct {
	Share string
	Cells []heatCell
}

type heatCell struct {
	P50, P99, Refused string
	Heat              float64 // intensity of the cell's colour, 0 to 1
}

// sweeps returns a table for each variant, and the heads of the columns, which are the switch
// buffers.
func (v *view) sweeps() ([]heat, []string) {
	var buffers []int64
	var shares []int
	top := int64(0)
	for _, s := range v.Summary.Sweep {
		buffers, shares = append(buffers, s.SwitchBuffer), append(shares, s.Noise)
		for _, c := range s.Percentiles {
			if c.P == 99 && c.Estimate != nil {
				top = max(top, c.Estimate.Value)
			}
		}
	}
	slices.Sort(buffers)
	slices.Sort(shares)
	buffers, shares = slices.Compact(buffers), slices.Compact(shares)
	var heads []string
	for _, b := range buffers {
		heads = append(heads, result.BytesText(float64(b)))
	}
	var out []heat
	for _, k := range v.Keys {
		t := heat{Key: k}
		found := false
		for _, n := range shares {
			r := heatRow{Share: tickShare(float64(n) / 1000)}
			for _, b := range buffers {
				c := heatCell{Refused: "-"}
				for _, s := range v.Summary.Sweep {
					if s.Variant == k.Name && s.Noise == n && s.SwitchBuffer == b {
						found = true
						c = heatOf(s.Percentiles, top)
					}
				}
				r.Cells = append(r.Cells, c)
			}
			t.Rows = append(t.Rows, r)
		}
		if found {
			out = append(out, t)
		}
	}
	return out, heads
}

func heatOf(list []result.Percentile, top int64) (c heatCell) {
	for _, x := range list {
		switch {
		case x.P == 50 && x.Estimate != nil:
			c.P50 = result.DurationText(float64(x.Estimate.Value))
		case x.P == 99 && x.Estimate != nil:
			c.P99 = result.DurationText(float64(x.Estimate.Value))
			// Colours cover a factor of 100 below the highest value.
			c.Heat = math.Min(1, math.Max(0, 1+math.Log10(float64(x.Estimate.Value)/float64(top))/2))
		case x.P == 99:
			c.Refused = grouped(x.Missing)
		}
	}
	return c
}

// stepText renders the value at percentile p; "-" if the list does not have it.
func stepText(list []stats.Step, p float64) string {
	for _, s := range list {
		if s.Percentile == p {
			return result.DurationText(float64(s.NS))
		}
	}
	return "-"
}
