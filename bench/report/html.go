// SPDX-License-Identifier: Apache-2.0

package report

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/niclane/niclane/bench/stats"
)

// The page carries everything it needs. Charts are drawn by Apache ECharts
// 6.1.0 (common build, npm echarts@6.1.0 dist/echarts.common.min.js,
// unchanged); everything they show stands in the tables too.
//
//go:embed assets
var assets embed.FS

// page is what the template sees.
type page struct {
	*Result
	CSS          template.CSS
	ECharts      template.JS
	Charts       template.JS
	Data         template.JS
	LoadLine     string
	NoiseLine    string
	Percentiles  []float64
	Claims       []claim
	NoiseGroups  []group
	HopGroups    []group
	CPU          [][]string // rows of a table, the first its head
	SweepTables  []sweepTable
	SweepColumns []string
	HostLine     string
	Headline     string
	Method       string // of the intervals
}

// claim is one goal with its verdict.
type claim struct {
	What, Value, Interval, Verdict, Class, Reason string
}

// group is a set of bars with a common scale.
type group struct {
	Name, Note string
	Bars       []bar
}

type bar struct {
	Label, Class, Text, Detail string
	Percent, Mark              float64 // of the scale; Mark below 0 is not drawn
}

type sweepTable struct {
	Variant, Class string
	Rows           []sweepLine
}

type sweepLine struct {
	Share string
	Cells []sweepCell
}

type sweepCell struct {
	P50, P99 string
	Heat     float64 // 0 to 1
}

// WriteHTML summarizes r and writes one self-contained page.
func WriteHTML(w io.Writer, r *Result) error {
	if err := Summarize(r); err != nil {
		return err
	}
	read := func(name string) string {
		b, err := assets.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // embedded
		}
		return string(b)
	}
	data, err := json.Marshal(chartData(r))
	if err != nil {
		return fmt.Errorf("chart data: %w", err)
	}
	t, err := template.New("page").Funcs(template.FuncMap{
		"duration": func(v any) string { return duration(toFloat(v)) },
		"bitrate":  func(v any) string { return bitrate(toFloat(v)) },
		"size":     func(v any) string { return size(toFloat(v)) },
		"count":    count,
		"times":    times,
		"share":    share,
		"pname":    percentile,
		"class":    class,
		"join":     func(x []int) string { return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(x)), ", "), "[]") },
	}).Parse(read("page.html"))
	if err != nil {
		return fmt.Errorf("page template: %w", err)
	}
	p := page{
		Result: r, CSS: template.CSS(read("style.css")),
		// Our own and a pinned third-party script, neither from the data.
		ECharts: template.JS(read("echarts.common.min.js")), Charts: template.JS(read("charts.js")),
		Data:     template.JS(data), // json.Marshal escapes <, > and &
		LoadLine: loadLine(r), NoiseLine: noiseLine(r), Percentiles: percentiles[:],
		Claims: claims(r), NoiseGroups: noiseGroups(r), HopGroups: hopGroups(r), CPU: cpuTable(r),
		HostLine: hostLine(r), Headline: headline(r),
	}
	p.SweepTables, p.SweepColumns = sweepTables(r)
	for _, t := range r.Summary.Ratios {
		if t.Ratio != nil {
			p.Method = t.Ratio.Method
		}
	}
	return t.Execute(w, p)
}

func toFloat(v any) float64 {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case float64:
		return v
	}
	panic(fmt.Sprintf("%T is not a number", v)) // the template is ours
}

// class is the CSS class of a variant: its colour.
func class(variant string) string {
	switch variant {
	case Idle:
		return "idle"
	case NoLane:
		return "nolane"
	case Lane:
		return "lane"
	}
	return "other"
}

func claims(r *Result) []claim {
	mk := func(what, value, interval string, j *stats.Judgement) claim {
		c := map[stats.Verdict]string{stats.Met: "met", stats.Missed: "missed", stats.TooNoisy: "noisy"}[j.Verdict]
		return claim{what, value, interval, string(j.Verdict), c, j.Reason}
	}
	var list []claim
	for _, t := range r.Summary.Ratios {
		if t.Judgement == nil {
			continue
		}
		what, value, interval := fmt.Sprintf("%s, lane / idle", percentile(t.P)), "~", fmt.Sprintf("goal at most %s", times(t.Judgement.Goal))
		if t.Ratio != nil {
			value = times(t.Ratio.Estimate)
			interval = fmt.Sprintf("%s to %s, %s", times(t.Ratio.Low), times(t.Ratio.High), interval)
		}
		list = append(list, mk(what, value, interval, t.Judgement))
	}
	for _, n := range r.Summary.Noise {
		if n.Judgement != nil {
			list = append(list, mk("noise "+n.Direction+" kept", share(n.Kept.Estimate),
				fmt.Sprintf("%s to %s, goal at least %s", share(n.Kept.Low), share(n.Kept.High), share(n.Judgement.Goal)), n.Judgement))
		}
	}
	return list
}

func noiseGroups(r *Result) []group {
	var groups []group
	scale := 0.0
	for _, n := range r.Summary.Noise {
		scale = max(scale, float64(n.Goodput))
	}
	for _, n := range r.Summary.Noise {
		if len(groups) == 0 || groups[len(groups)-1].Name != n.Direction {
			groups = append(groups, group{Name: n.Direction})
		}
		g := &groups[len(groups)-1]
		detail := fmt.Sprintf("%s segments sent again", count(int64(n.Retransmits)))
		if n.Kept != nil {
			detail = fmt.Sprintf("%s of no lane (%s to %s); %s", share(n.Kept.Estimate), share(n.Kept.Low), share(n.Kept.High), detail)
		}
		g.Bars = append(g.Bars, bar{n.Variant, class(n.Variant), bitrate(float64(n.Goodput)), detail, percentOf(float64(n.Goodput), scale), -1})
	}
	return groups
}

func hopGroups(r *Result) []group {
	var groups []group
	scale := 0.0
	for _, h := range r.Summary.Hops {
		scale = max(scale, float64(h.P99.NS), h.Mean)
	}
	for _, h := range r.Summary.Hops {
		if len(groups) == 0 || groups[len(groups)-1].Name != h.Hop {
			groups = append(groups, group{Name: h.Hop, Note: string(h.Reach)})
		}
		g := &groups[len(groups)-1]
		b := bar{h.Variant, class(h.Variant), size(h.Mean), "", percentOf(h.Mean, scale), -1}
		if h.P99.Missing == "" {
			b.Detail = fmt.Sprintf("P99 %s, ", size(float64(h.P99.NS)))
			b.Mark = percentOf(float64(h.P99.NS), scale)
		}
		b.Detail += fmt.Sprintf("max %s; a packet waits %s, at most %s; %s drops", size(float64(h.Max)),
			duration(float64(h.MeanWait)), duration(float64(h.MaxWait)), count(int64(h.Drops)))
		g.Bars = append(g.Bars, b)
	}
	return groups
}

func percentOf(v, scale float64) float64 {
	if scale <= 0 {
		return 0
	}
	return 100 * v / scale
}

// sweepTables returns one table per variant and the buffers as column heads.
func sweepTables(r *Result) ([]sweepTable, []string) {
	var buffers []int64
	var shares []float64
	top := int64(0)
	for _, s := range r.Summary.Sweep {
		if !slices.Contains(buffers, s.Buffer) {
			buffers = append(buffers, s.Buffer)
		}
		if !slices.Contains(shares, s.NoiseShare) {
			shares = append(shares, s.NoiseShare)
		}
		top = max(top, s.P99.NS)
	}
	slices.Sort(buffers)
	slices.Sort(shares)
	var heads []string
	for _, b := range buffers {
		heads = append(heads, size(float64(b)))
	}
	var tables []sweepTable
	for _, v := range r.Variants {
		t := sweepTable{Variant: v.Name, Class: class(v.Name)}
		found := false
		for _, sh := range shares {
			line := sweepLine{Share: fmt.Sprintf("%.0f %%", 100*sh)}
			for _, b := range buffers {
				cell := sweepCell{"", "", 0}
				for _, s := range r.Summary.Sweep {
					if s.Variant == v.Name && s.NoiseShare == sh && s.Buffer == b {
						found = true
						cell = sweepCell{s.P50.duration(), s.P99.duration(), heat(s.P99.NS, top)}
					}
				}
				line.Cells = append(line.Cells, cell)
			}
			t.Rows = append(t.Rows, line)
		}
		if found {
			tables = append(tables, t)
		}
	}
	return tables, heads
}
