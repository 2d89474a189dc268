// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/lane/device"
)

// Summary returns the results of a selftest in one line.
func (r *Record) Summary() string {
	lane, others := r.Lost()
	text := fmt.Sprintf("%d ok, %d refused by the planner, %d unproven, %d failed; %s, %s lost",
		r.Count(OK), r.Count(Refused), r.Count(Unproven), r.Count(Failed), count(r.LinkDowns(), "link flap"),
		count(lane+others, "connection"))
	if n := r.Count(Skipped); n > 0 {
		text += fmt.Sprintf("; %d not tried", n)
	}
	return text
}

// Restored returns a sentence that says whether everything was restored.
func (r *Record) Restored() string {
	if len(r.Left) == 0 {
		return "every object that a plan can write is as before"
	}
	return count(len(r.Left), "object") + " not as before"
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Card returns a line that describes the tested card.
func (r *Record) Card() string {
	d := r.Device
	s := cmp.Or(d.Driver, d.Type, "unknown driver")
	if d.Emulated {
		s += ", the lab's emulated card behind it"
	}
	if d.Firmware != "" && d.Firmware != "N/A" {
		s += ", firmware " + d.Firmware
	}
	if d.Speed > 0 {
		s += ", " + result.BitsText(float64(d.Speed))
	}
	return s + fmt.Sprintf(", %d rx and %d tx queues, Linux %s", d.RxQueues, d.TxQueues,
		strings.Fields(r.System.Kernel + " ?")[0])
}

// WriteText writes the record for a terminal.
func WriteText(w io.Writer, r *Record) error {
	var b strings.Builder
	fmt.Fprintln(&b, r.Card())
	if r.Partial != "" {
		fmt.Fprintf(&b, "PARTIAL: %s\n", r.Partial)
	}
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "\nCASE\tOUTCOME\tMADE BY\tSTEPS\tAPPLY\tFLAPS\tLOST\tLONGEST WAIT")
	for _, c := range r.Cases {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Name, c.Outcome, c.MadeBy(), dash(c.Steps),
			duration(c.ApplyTook), c.Flaps(), c.LostText(), c.LongestText())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range r.Cases {
		for _, why := range c.Reasons {
			fmt.Fprintf(&b, "%s: %s: %s\n", c.Name, c.Outcome, why)
		}
	}
	latencyText(&b, r.Latency)
	for _, d := range r.Left {
		fmt.Fprintf(&b, "left: %s: %s, was %s\n", d.Key, cmp.Or(d.After, "absent"), cmp.Or(d.Before, "absent"))
	}
	for _, x := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", x)
	}
	fmt.Fprintf(&b, "%s; %s\n", r.Summary(), r.Restored())
	_, err := io.WriteString(w, b.String())
	return err
}

func latencyText(b *strings.Builder, l *Latency) {
	if l == nil {
		return
	}
	fmt.Fprintf(b, "\nlatency, %s, %.0f requests/s, windows of %s", count(l.Rounds, "round"), l.Rate,
		result.DurationText(float64(l.Window)))
	if l.Noise > 0 {
		fmt.Fprintf(b, ", beside %s of bulk traffic", result.BitsText(float64(l.Noise)))
	}
	fmt.Fprintln(b)
	for _, p := range l.Percentiles {
		fmt.Fprintf(b, "%s  without %s  with %s  with/without %s\n", result.PercentileText(p.P),
			EstimateText(p.Without), EstimateText(p.With), RatioText(p.Ratio))
		for _, m := range p.Missing {
			fmt.Fprintf(b, "  %s\n", m)
		}
	}
	for _, w := range l.Warnings {
		fmt.Fprintf(b, "doubt: %s\n", w)
	}
}

// EstimateText formats a percentile with its 95 % interval; "-" for nil.
func EstimateText(e *stats.Estimate) string {
	if e == nil {
		return "-"
	}
	return fmt.Sprintf("%s (%s)", result.DurationText(float64(e.Value)), result.EndsText(*e))
}

// RatioText formats a ratio with its 95 % interval. It adds "~" if noise may explain the
// difference.
func RatioText(r *stats.Ratio) string {
	if r == nil {
		return "-"
	}
	text := fmt.Sprintf("%.2f (%.2f to %.2f)", r.Estimate, r.Low, r.High)
	if r.Low <= 1 && r.High >= 1 {
		text += " " + stats.Same
	}
	return text
}

func dash(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func duration(ns int64) string {
	if ns == 0 {
		return "-"
	}
	return result.DurationText(float64(ns))
}

// MadeBy returns the case's main mechanisms, in the order in which a packet passes them.
func (c Case) MadeBy() string {
	var out []string
	for _, p := range []device.Part{device.PartQueueSet, device.PartSteering, device.PartMapper, device.PartBandwidth,
		device.PartPoller} {
		if m := c.Made[p]; m != "" {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, ", ")
}

// Flaps returns how often the link went down; "-" if that was not counted.
func (c Case) Flaps() string {
	if c.LinkDowns == nil {
		return "-"
	}
	return strconv.Itoa(*c.LinkDowns)
}

// LostText returns how many connections were lost, and how many there were.
func (c Case) LostText() string {
	if len(c.Connections) == 0 {
		return "-"
	}
	lost, asked := 0, 0
	for _, x := range c.Connections {
		lost, asked = lost+x.Lost, asked+x.Asked
	}
	return fmt.Sprintf("%d of %d", lost, asked)
}

// LongestText returns the longest wait of a connection for an answer.
func (c Case) LongestText() string {
	var longest int64
	for _, x := range c.Connections {
		longest = max(longest, x.Longest)
	}
	return duration(longest)
}

// WriteRow writes the record as a row for docs/hardware.md, for the table of cards that users have
// tested.
func WriteRow(w io.Writer, r *Record) error {
	ok := map[string]bool{}
	var made []string
	for _, c := range r.Cases {
		by := c.Made[device.PartQueueSet] + " + " + c.Made[device.PartSteering]
		if c.Outcome == OK && !ok[by] {
			ok[by] = true
			made = append(made, by)
		}
	}
	lane, others := r.Lost()
	left := "yes"
	if len(r.Left) > 0 || r.Partial != "" {
		left = "no"
	}
	latency := "-"
	if r.Latency != nil {
		for _, p := range r.Latency.Percentiles {
			if p.P == 99 {
				latency = RatioText(p.Ratio)
			}
		}
	}
	_, err := fmt.Fprintf(w, "| %s | %s | %d of %d | %d | %d | %s | %s | %s |\n", cell(r.Card()),
		cell(cmp.Or(strings.Join(made, "; "), "none")),
		r.Count(OK), len(r.Cases)-r.Count(Refused), r.LinkDowns(), lane+others, left, latency, cell(r.Niclane))
	return err
}

// cell escapes a text for a table cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
