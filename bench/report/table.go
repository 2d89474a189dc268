// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// WriteTable summarizes r and prints it for a terminal, at most 100 columns.
func WriteTable(w io.Writer, r *Result) error {
	if err := Summarize(r); err != nil {
		return err
	}
	p := &printer{bufio.NewWriter(w)}
	p.latency(r)
	p.ratios(r)
	p.noise(r)
	p.hops(r)
	p.cpu(r)
	p.floor(r)
	p.sweep(r)
	p.differences(r)
	p.warnings(r)
	return p.w.Flush()
}

type printer struct{ w *bufio.Writer }

func (p *printer) linef(format string, a ...any) { fmt.Fprintf(p.w, format+"\n", a...) }

// grid prints rows in columns; the first left columns are aligned left.
func (p *printer) grid(left int, rows [][]string) {
	var width []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i > 0 {
				b.WriteString("  ")
			}
			if i < left {
				b.WriteString(c + pad)
			} else {
				b.WriteString(pad + c)
			}
		}
		p.linef("  %s", strings.TrimRight(b.String(), " "))
	}
}

func (p *printer) latency(r *Result) {
	p.linef("%s", r.Title)
	if h := headline(r); h != "" {
		p.linef("  %s", h)
	}
	p.linef("  %s", loadLine(r))
	if l := noiseLine(r); l != "" {
		p.linef("  %s", l)
	}
	p.linef("")
	p.linef("Latency from the intended send time")
	rows := [][]string{{"", "mean"}}
	for _, q := range percentiles {
		rows[0] = append(rows[0], percentile(q))
	}
	rows[0] = append(rows[0], "samples", "unanswered")
	var missing []string
	for _, l := range r.Summary.Latency {
		row := []string{l.Variant, l.mean()}
		for _, v := range l.Values {
			row = append(row, v.duration())
			if v.Missing != "" {
				missing = append(missing, fmt.Sprintf("~ %s of %s: %s", percentile(v.P), l.Variant, v.Missing))
			}
		}
		rows = append(rows, append(row, count(l.Samples), count(l.Unanswered)))
	}
	p.grid(1, rows)
	for _, m := range append(missing, r.Summary.Notes...) {
		p.linef("  %s", m)
	}
}

func (p *printer) ratios(r *Result) {
	if len(r.Summary.Ratios) == 0 {
		return
	}
	p.linef("")
	p.linef("Paired ratio to %s (95 %% interval)", Idle)
	var rows [][]string
	var after []string
	last := ""
	for _, t := range r.Summary.Ratios {
		name := t.Variant
		if name == last {
			name = ""
		}
		last = t.Variant
		if t.Ratio == nil {
			rows = append(rows, []string{name, percentile(t.P), "~"})
			after = append(after, fmt.Sprintf("~ %s of %s: %s", percentile(t.P), t.Variant, t.Missing))
		} else {
			rows = append(rows, []string{name, percentile(t.P), times(t.Ratio.Estimate),
				fmt.Sprintf("(%s to %s)", times(t.Ratio.Low), times(t.Ratio.High)), fmt.Sprintf("%d pairs", t.Ratio.N)})
		}
		if t.Judgement != nil {
			after = append(after, fmt.Sprintf("goal: lane/idle %s at most %.2f: %s; %s",
				percentile(t.P), t.Judgement.Goal, strings.ToUpper(string(t.Judgement.Verdict)), t.Judgement.Reason))
		}
	}
	p.grid(2, rows)
	for _, t := range r.Summary.Ratios {
		if t.Variant == Lane && t.Floor != nil {
			after = append(after, fmt.Sprintf("noise floor: two idle repeats in a row differ so much in %s that %d pairs can tell %s from 1",
				percentile(t.P), t.Floor.ForPairs, times(t.Floor.Detectable)))
		}
	}
	for _, l := range after {
		p.linef("  %s", l)
	}
}

func (p *printer) noise(r *Result) {
	if len(r.Summary.Noise) == 0 {
		return
	}
	p.linef("")
	p.linef("The noise's own throughput while latency was counted")
	rows := [][]string{{"", "", "goodput", "of no lane", "", "sent again"}}
	var after []string
	for _, n := range r.Summary.Noise {
		row := []string{n.Direction, n.Variant, bitrate(float64(n.Goodput)), "", "", count(int64(n.Retransmits))}
		if n.Kept != nil {
			row[3] = share(n.Kept.Estimate)
			row[4] = fmt.Sprintf("(%.1f to %.1f)", 100*n.Kept.Low, 100*n.Kept.High)
		}
		if n.Judgement != nil {
			after = append(after, fmt.Sprintf("goal: noise %s keeps at least %s: %s; %s", n.Direction,
				share(n.Judgement.Goal), strings.ToUpper(string(n.Judgement.Verdict)), n.Judgement.Reason))
		}
		rows = append(rows, row)
	}
	p.grid(2, rows)
	for _, l := range after {
		p.linef("  %s", l)
	}
}

func (p *printer) hops(r *Result) {
	if len(r.Summary.Hops) == 0 {
		return
	}
	p.linef("")
	p.linef("Queueing per hop")
	rows := [][]string{{"", "", "mean", "P99", "max", "mean wait", "max wait", "drops"}}
	last := ""
	for _, h := range r.Summary.Hops {
		name := ""
		if h.Hop != last {
			name = fmt.Sprintf("%s (%s)", h.Hop, h.Reach)
		}
		last = h.Hop
		p99 := "~"
		if h.P99.Missing == "" {
			p99 = size(float64(h.P99.NS))
		}
		rows = append(rows, []string{name, h.Variant, size(h.Mean), p99, size(float64(h.Max)),
			duration(float64(h.MeanWait)), duration(float64(h.MaxWait)), count(int64(h.Drops))})
	}
	p.grid(2, rows)
	p.linef("  %s", reachSentence)
}

// reachSentence says what a lane can and cannot change.
const reachSentence = "A lane shortens the wait only where it has a queue of its own; what queues beyond the host,\n" +
	"  at the switch toward it, no setting on the host can change."

func (p *printer) cpu(r *Result) {
	if len(r.Summary.CPU) == 0 {
		return
	}
	p.linef("")
	p.linef("CPU time, share of one processor")
	p.grid(1, cpuTable(r))
}

func (p *printer) floor(r *Result) {
	if len(r.Summary.Floor) == 0 {
		return
	}
	p.linef("")
	p.linef("Host noise floor: how late a sleeping thread woke with nothing else of ours running")
	rows := [][]string{{"", "", "P50", "P99", "P99.9", "max", "steal", "busy"}}
	for _, f := range r.Summary.Floor {
		row := []string{f.When, fmt.Sprintf("cpu %d", f.CPU)}
		for _, v := range f.Values {
			row = append(row, v.duration())
		}
		rows = append(rows, append(row, duration(float64(f.Max)), share(f.Steal), share(f.Busy)))
	}
	p.grid(2, rows)
}

func (p *printer) sweep(r *Result) {
	if len(r.Summary.Sweep) == 0 {
		return
	}
	p.linef("")
	p.linef("Sweep of noise and buffer")
	rows := [][]string{{"noise", "buffer", "", "P50", "P99", "noise got"}}
	for _, s := range r.Summary.Sweep {
		rows = append(rows, []string{fmt.Sprintf("%.0f %%", 100*s.NoiseShare), size(float64(s.Buffer)), s.Variant,
			s.P50.duration(), s.P99.duration(), bitrate(float64(s.NoiseRate))})
	}
	p.grid(3, rows)
}

func (p *printer) differences(r *Result) {
	p.linef("")
	p.linef("Differences between the variants")
	for _, v := range r.Variants {
		p.linef("  %s: %s", v.Name, v.Title)
		for _, d := range v.Differences {
			p.linef("    - %s", d)
		}
	}
}

// shownWarnings bounds what the terminal gets; result.json has all.
const shownWarnings = 8

func (p *printer) warnings(r *Result) {
	list := r.Summary.Warnings
	if len(list) == 0 {
		return
	}
	p.linef("")
	p.linef("Warnings")
	for _, w := range list[:min(len(list), shownWarnings)] {
		p.linef("  %s", w)
	}
	if n := len(list) - shownWarnings; n > 0 {
		p.linef("  and %d more in result.json", n)
	}
}
