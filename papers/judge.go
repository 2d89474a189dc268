// SPDX-License-Identifier: Apache-2.0

package papers

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

// A crossing is an SLA with what one variant does within it.
type crossing struct {
	experiment.SLA
	result.SLAVariant
}

// sla returns the claim's SLA for a variant. ok is false if the experiment has no such SLA, or the
// variant no load point.
func (o *Outcome) sla(c Claim, variant string) (_ crossing, ok bool) {
	all := o.summary(o.Result.Experiment.Base).SLAs
	if c.SLA >= len(all) {
		return crossing{}, false
	}
	for _, v := range all[c.SLA].Variants {
		if v.Name == variant {
			return crossing{all[c.SLA].SLA, v}, true
		}
	}
	return crossing{}, false
}

// standing says whether a variant meets the claim's SLA at all load points at which it achieves 95 % of
// the rate. Beyond these, an open loop's latency is that of a queue that only grows; the papers'
// generators, closed loops, asked for no more than that.
func (o *Outcome) standing(c Claim, variant string) (result.Standing, string) {
	x, ok := o.sla(c, variant)
	if !ok {
		return result.NotMeasured, "not measured"
	}
	points := o.summary(o.Result.Experiment.Base).Points
	met, open := 0, []string{}
	for i, s := range x.Standings {
		short := false
		for _, v := range points[i].Variants {
			short = short || v.Name == variant && v.Short > result.FivePercent
		}
		switch {
		case s == result.NotMeasured || short:
		case s == result.Exceeds:
			return result.Exceeds, x.Text
		case s == result.Meets:
			met++
		default:
			open = append(open, points[i].Load())
		}
	}
	switch {
	case len(open) > 0:
		return result.Unclear, "not known at " + strings.Join(open, ", ")
	case met == 0:
		return result.NotMeasured, "at no load point was 95 % of the rate achieved"
	}
	return result.Meets, x.Text
}

// Verdicts of claims that are not about a ratio.
const (
	BothMeet   Verdict = "as the paper: both meet it"
	LaneMeets  Verdict = "as the paper: only with a lane"
	LaneOnly   Verdict = "met with a lane; not without one, unlike the paper"
	NoneNeeded Verdict = "both meet it: no gain"
	LaneMisses Verdict = "not met with a lane"
	NotKnown   Verdict = "not known"
	OnSlowLink Verdict = "reached, on a far slower link"
)

// judgeSLA judges a claim about which variants meet an SLA, by the SLA and not by a ratio.
func (o *Outcome) judgeSLA(m *Measured) {
	lane, text := o.standing(m.Claim, o.lane())
	m.Value = text
	base := result.NotMeasured
	for i, name := range o.bases() {
		if !o.has(name) {
			continue
		}
		standing, text := o.standing(m.Claim, name)
		m.Against = append(m.Against, Ratio{Base: name, Value: text})
		if i == 0 {
			base = standing
		}
	}
	switch {
	case lane == result.Exceeds:
		m.Verdict = LaneMisses
	case lane == result.NotMeasured || base == result.NotMeasured:
		m.Verdict = Unmeasured
	case lane == result.Unclear || base == result.Unclear:
		m.Verdict = NotKnown
	case base == result.Meets && m.Claim.Both:
		m.Verdict = BothMeet
	case base == result.Meets:
		m.Verdict = NoneNeeded
	case m.Claim.Both:
		m.Verdict = LaneOnly
	default:
		m.Verdict = LaneMeets
	}
}

// over returns the share of a variant's requests that took longer than a time, with its interval; ok is
// false if the sample is too small for any statement.
func (o *Outcome) over(point int, variant string, ns int64) (share, low, high float64, text string, ok bool) {
	var series []*stats.Series
	for _, w := range o.windows(point, variant) {
		if w.Load.Series != nil {
			series = append(series, w.Load.Series)
		} else {
			series = append(series, stats.OneWindow(w.Load.Latency))
		}
	}
	s, err := stats.NewSample(series...).Within(ns)
	if err != nil {
		return 0, 0, 0, "too few requests", false
	}
	share, low, high = 1-s.Within, 1-s.High, 1-s.Low
	if s.Missing != "" { // only the upper bound is known
		return share, 0, high, fmt.Sprintf("at most %.2f %%", 100*high), true
	}
	return share, low, high, fmt.Sprintf("%.2f %% (%.2f to %.2f %%)", 100*share, 100*low, 100*high), true
}

// none is the largest share that the paper's whole percents call none.
const none = 0.005

// judgeBeyond judges a claim that no request of the variant Lane takes longer than a time, and a share of
// those of the first base do.
func (o *Outcome) judgeBeyond(m *Measured, point int) {
	_, low, high, text, ok := o.over(point, o.lane(), m.Claim.Over)
	m.Value = text
	for i, name := range o.bases() {
		if !o.has(name) {
			continue
		}
		_, baseLow, baseHigh, text, baseOK := o.over(point, name, m.Claim.Over)
		m.Against = append(m.Against, Ratio{Base: name, Value: text})
		if i > 0 || !ok || !baseOK {
			continue
		}
		switch {
		case low > baseHigh:
			m.Verdict = Worse
		case high >= baseLow:
			m.Verdict = NoneSeen
		case high < none:
			m.Verdict = AsGood
		default:
			m.Verdict = Less
		}
	}
}

// delivered returns what the variant Lane sent at the load point that has as many connections of each
// client as the paper. If there is none, it takes the load point at which most was sent. ok is false if
// the device's bytes were not counted.
func (o *Outcome) delivered(c Claim) (best result.ServerRun, at string, ok bool) {
	s := o.summary(o.Result.Experiment.Base)
	for _, p := range s.Points {
		for _, v := range p.Variants {
			if v.Name != o.lane() {
				continue
			}
			run := result.Delivered(v)
			if run.Rate == nil {
				best.Missing = run.Missing
				continue
			}
			if p.Connections == c.PerClient*o.Result.Clients() {
				return run, p.Name, true
			}
			if best.Rate == nil || *run.Rate > *best.Rate {
				best, at = run, p.Name+", because there is no load of the paper's"
			}
		}
	}
	return best, at, best.Rate != nil
}

// judgeDelivery judges a claim about what a server delivers. The claim is about a server with a number of
// sockets, so that a server with another number does not confirm it.
func (o *Outcome) judgeDelivery(m *Measured) {
	run, at, ok := o.delivered(m.Claim)
	link := float64(o.Result.Environment.Network.LinkRate) / 1e9
	if !ok || m.Claim.Measure == LinkShare && link <= 0 {
		m.Value = "not measured"
		return
	}
	m.At = at
	sockets := o.Result.Environment.SocketCount()
	other := sockets > 0 && sockets != m.Claim.Sockets
	if m.Claim.Measure == LinkShare {
		share := *run.Rate / link
		m.Value = fmt.Sprintf("%.1f %% of the link", 100*share)
		switch {
		case o.Result.Experiment.Lab != nil && share >= m.Claim.Paper:
			m.Verdict = OnSlowLink
		case o.Result.Experiment.Lab == nil && other:
			m.Verdict = otherServer(m.Claim.Sockets)
		case share >= m.Claim.Paper:
			m.Verdict = AsGood
		default:
			m.Verdict = Verdict(fmt.Sprintf("%.1f points less", 100*(m.Claim.Paper-share)))
		}
		return
	}
	if run.RatePerWatt == nil {
		m.Value = "not measured: " + run.Missing
		return
	}
	p := *run.RatePerWatt
	m.Value = fmt.Sprintf("%.2f Gbit/s per W (%.2f to %.2f)", p.Value, p.Low, p.High)
	switch {
	case !run.WholeHost:
		m.Verdict = Verdict("not comparable: the power of " + run.Covers)
	case other:
		m.Verdict = otherServer(m.Claim.Sockets)
	case p.Low >= m.Claim.Paper:
		m.Verdict = AsGood
	case p.High < m.Claim.Paper:
		m.Verdict = Verdict(fmt.Sprintf("%.0f %% less", 100*(1-p.Value/m.Claim.Paper)))
	default:
		m.Verdict = "within the bounds of the power's reading"
	}
}

func otherServer(sockets int) Verdict {
	if sockets == 1 {
		return "about a server with one socket"
	}
	return Verdict(fmt.Sprintf("about a server with %d sockets", sockets))
}
