// SPDX-License-Identifier: Apache-2.0

package papers

import (
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/niclane/niclane/bench/page"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

//go:embed assets/index.html
var assets embed.FS

// A view is what the template of the page gets.
type view struct {
	CSS     template.CSS
	Version string
	// Environment and Where describe all studies, if they are the same for all. Otherwise they are "",
	// Differ is true, and each study has its own.
	Environment, Where string
	Differ             bool
	Studies            []studyView
	// Headline says what was measured and what was not.
	Headline string
}

type studyView struct {
	*Outcome
	Title    string
	Claims   []claimView
	At       string // name of the load point
	Repeats  string
	Warnings []string
	Rows     []row
	Delivery []varnishRow
	Spent    []spent
	Why      string
	HTTP     bool
	Sized    string
	Other    []string // differences from the paper's experiment
	// Tuning is what the first variant lists: how the hosts are tuned in all variants, and its noise.
	Tuning string
	// Environment is the machine, and Where is the place of the measurement; "" if the page states
	// them for all studies.
	Environment, Where string
}

type claimView struct {
	Text, Paper, Value, At string
	Against                []against
	Verdict, Class         string
}

type against struct{ Base, Text, Ends, Missing string }

// Name is the base, unless the head of the column does.
func (a against) Name() string {
	if a.Base == "off" || a.Base == "tuned" {
		return ""
	}
	return a.Base
}

// A row is a variant's values at the load point.
type row struct {
	Name, Title, Mean, P50, P99, P999, FirstByte, Rate, Errors string
}

// A varnishRow is a row of a table like that of the Varnish paper, with some more columns.
type varnishRow struct {
	Connections                                                            int
	Variant, Sent, Payload, Share, PerWatt, Hits, First50, First99, Last50 string
	Last99, Errors                                                         string
}

// Write writes the page of outcomes.
func Write(out io.Writer, outcomes []Outcome, version string) error {
	v := view{CSS: page.CSS(), Version: version}
	for i := range outcomes {
		o := &outcomes[i]
		s := studyView{Outcome: o, Title: o.Experiment, Other: o.differences()}
		if r := o.Result; r != nil {
			s.Title = r.Title
			s.Environment, s.Where = environment(r), where(r)
			s.Warnings = warnings(r)
			s.Sized = sized(r)
		}
		for _, m := range o.Measure() {
			s.Claims = append(s.Claims, claim(m))
		}
		if point, ok := o.Point(); ok {
			p := o.Result.Points[point]
			s.At, s.Repeats = p.Name(), fmt.Sprintf("%d repeats of %s", p.Rounds,
				result.DurationText(float64(o.Result.Experiment.Load.Window)))
			s.HTTP = len(o.Result.Experiment.Workload.Objects) > 0
			for _, x := range o.Result.Variants {
				if w := o.windows(point, x.Name); len(w) > 0 {
					s.Rows = append(s.Rows, o.row(x, w))
				}
			}
			first := o.Result.Variants[0]
			s.Tuning = first.Name + ": " + cmp.Or(strings.Join(first.Differences, "; "), "nothing is recorded")
			if s.Spent = o.spent(point); o.Result.Experiment.Lab != nil {
				s.Why = o.WhyInLab
			}
			if slices.ContainsFunc(o.Study.Claims, func(c Claim) bool { return c.Measure == LinkShare }) {
				s.Delivery = o.delivery()
			}
		}
		v.Studies = append(v.Studies, s)
	}
	v.Headline = v.headline()
	v.gather()
	t, err := template.ParseFS(assets, "assets/index.html")
	if err != nil {
		return fmt.Errorf("papers: %w", err)
	}
	return t.Execute(out, v)
}

// gather moves texts that are the same for all measured studies from the studies to the page.
func (v *view) gather() {
	for _, x := range []struct {
		all *string
		of  func(*studyView) *string
	}{
		{&v.Environment, func(s *studyView) *string { return &s.Environment }},
		{&v.Where, func(s *studyView) *string { return &s.Where }},
	} {
		values := map[string]bool{}
		for i := range v.Studies {
			if text := *x.of(&v.Studies[i]); text != "" {
				values[text] = true
			}
		}
		if len(values) > 1 {
			v.Differ = true
			continue
		}
		for i := range v.Studies {
			own := x.of(&v.Studies[i])
			*x.all, *own = cmp.Or(*x.all, *own), ""
		}
	}
}

// where says on which hosts a result was measured.
func where(r *result.Result) string {
	if r.Experiment.Lab != nil {
		return "All hosts are network namespaces of one machine with an emulated card (docs/lab.md): absolute " +
			"figures hold for this machine only; only ratios within a run are comparable"
	}
	hosts := r.Environment.Hosts
	var names, shared []string
	for _, h := range hosts {
		names = append(names, fmt.Sprintf("%s (%s)", h.Name, h.Role))
		if slices.ContainsFunc(hosts, func(o result.Host) bool { return o.Name != h.Name && oneMachine(h, o) }) {
			shared = append(shared, h.Name)
		}
	}
	text := fmt.Sprintf("Measured with agents on %d hosts: %s", len(hosts), strings.Join(names, ", "))
	if len(shared) > 0 {
		text += fmt.Sprintf(". %s are one machine, as its name and its clock show: absolute figures hold for it only",
			strings.Join(shared, ", "))
	}
	return text
}

// oneMachine reports whether two hosts are namespaces of one machine. Such hosts have the same name
// and the same clock. Two machines have different clocks: their values of CLOCK_MONOTONIC differ by
// the time between their boots.
func oneMachine(a, b result.Host) bool {
	apart := a.ClockAhead - b.ClockAhead
	return a.Hostname != "" && a.Hostname == b.Hostname && max(apart, -apart) <= a.ClockUncertainty+b.ClockUncertainty
}

func environment(r *result.Result) string {
	e := r.Environment
	out := []string{fmt.Sprintf("%d processors (%s)", e.CPUs, e.CPUModel), "Linux " + e.Kernel}
	if e.Virtualisation != "" {
		out = append(out, "in "+e.Virtualisation)
	}
	if e.Network.LinkRate > 0 {
		out = append(out, "link of "+result.BitsText(float64(e.Network.LinkRate)))
	}
	return strings.Join(out, ", ")
}

var classes = map[Verdict]string{AsGood: "met", Less: "noisy", NoneSeen: "noisy", Worse: "missed", BothMeet: "met",
	LaneMeets: "met", LaneOnly: "met", NoneNeeded: "noisy", LaneMisses: "missed"}

func claim(m Measured) claimView {
	c := claimView{Text: m.Claim.Text, Value: m.Value, Verdict: string(m.Verdict), Class: classes[m.Verdict],
		Paper: "no figure", At: m.At}
	switch {
	case m.Claim.Measure == LinkShare:
		c.Paper = fmt.Sprintf("%.1f %% of the link", 100*m.Claim.Paper)
	case m.Claim.Measure == PerWatt:
		c.Paper = fmt.Sprintf("%.2f Gbit/s per W", m.Claim.Paper)
	case m.Claim.Measure == MeetsSLA && m.Claim.Both:
		c.Paper = "both meet it"
	case m.Claim.Measure == MeetsSLA:
		c.Paper = "only with a lane"
	case m.Claim.Measure == Beyond:
		c.Paper = fmt.Sprintf("0 %% instead of %.0f %%", 100*m.Claim.Paper)
	case m.Claim.Paper > 0:
		c.Paper = change(m.Claim.Paper)
	}
	if c.Value == "" {
		c.Value = "not measured"
	}
	for _, r := range m.Against {
		a := against{Base: r.Base, Text: r.Value, Missing: r.Missing}
		if r.Ratio != nil {
			a.Text, a.Ends = change(r.Estimate), ends(*r.Ratio)
		}
		c.Against = append(c.Against, a)
	}
	return c
}

// change renders a ratio as the papers do: 0.4 as −60 %.
func change(ratio float64) string {
	if ratio >= 10 {
		return fmt.Sprintf("×%.0f", ratio)
	}
	p := math.Round(100 * (ratio - 1))
	switch {
	case p < 0:
		return fmt.Sprintf("−%.0f %%", -p)
	case p > 0:
		return fmt.Sprintf("+%.0f %%", p)
	}
	return "±0 %"
}

func ends(r stats.Ratio) string {
	switch {
	case r.N < 2:
		return "no interval"
	case r.Low < 0.001 || r.High > 1000:
		return fmt.Sprintf("%d repeats, too far apart", r.N)
	}
	return change(r.Low) + " to " + change(r.High)
}

// merged returns the sums over a variant's windows.
func merged(windows map[int]*result.Window) (all, first *stats.Histogram, rate float64, failed, intended int64) {
	all, first = stats.NewHistogram(), stats.NewHistogram()
	for _, w := range windows {
		all = stats.Merge(all, w.Load.Latency)
		if w.Load.FirstByte != nil {
			first = stats.Merge(first, w.Load.FirstByte)
		}
		rate += w.Load.AchievedRate / float64(len(windows))
		failed += w.Load.Errors + w.Load.TimedOut + w.Load.Unanswered
		intended += w.Load.Intended
	}
	return all, first, rate, failed, intended
}

func percentileText(h *stats.Histogram, p float64) string {
	v, err := stats.Percentile(h, p)
	if err != nil {
		return "too few"
	}
	return result.DurationText(float64(v))
}

func (o *Outcome) row(v result.Variant, windows map[int]*result.Window) row {
	all, first, rate, failed, intended := merged(windows)
	return row{
		Name: v.Name, Title: v.Title, Mean: result.DurationText(all.Mean()),
		P50: percentileText(all, 50), P99: percentileText(all, 99), P999: percentileText(all, 99.9),
		FirstByte: percentileText(first, 99),
		Rate:      fmt.Sprintf("%.0f/s", rate), Errors: fmt.Sprintf("%d of %d", failed, intended),
	}
}

// run returns what a variant sent at a load point.
func (o *Outcome) run(point int, variant string) result.ServerRun {
	for _, v := range o.summary(o.Result.Experiment.Base).Points[point].Variants {
		if v.Name == variant {
			return result.Delivered(v)
		}
	}
	return result.ServerRun{}
}

// delivery returns the rows of Table 2 of the Varnish paper, with this result's values. There is a
// row for each number of connections and variant.
func (o *Outcome) delivery() []varnishRow {
	var out []varnishRow
	for i, p := range o.Result.Points {
		for _, v := range o.Result.Variants {
			windows := o.windows(i, v.Name)
			if len(windows) == 0 {
				continue
			}
			all, first, _, failed, intended := merged(windows)
			d := varnishRow{
				Connections: p.Connections, Variant: v.Name, Sent: "not counted", Share: "-", PerWatt: "not measured",
				Hits:    "not counted",
				First50: percentileText(first, 50), First99: percentileText(first, 99), Last50: percentileText(all, 50),
				Last99: percentileText(all, 99),
				Errors: fmt.Sprintf("%d of %d", failed, intended),
			}
			var payload, ns float64
			var hits, requests int64
			for _, w := range windows {
				payload, ns = payload+8*float64(w.Load.Payload), ns+float64(w.Load.Duration)
				if w.Cache != nil {
					hits, requests = hits+w.Cache.Hits, requests+w.Cache.Requests
				}
			}
			d.Payload = result.BitsText(payload / ns * 1e9)
			run := o.run(i, v.Name)
			if run.Rate != nil {
				d.Sent = result.BitsText(*run.Rate * 1e9)
				if link := o.Result.Environment.Network.LinkRate; link > 0 {
					d.Share = fmt.Sprintf("%.1f %%", 100*(*run.Rate*1e9/float64(link)))
				}
			}
			if x := run.RatePerWatt; x != nil {
				d.PerWatt = fmt.Sprintf("%.2f", x.Value)
			}
			if requests > 0 {
				d.Hits = fmt.Sprintf("%.2f %%", 100*float64(hits)/float64(requests))
			}
			out = append(out, d)
		}
	}
	return out
}
