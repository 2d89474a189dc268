// SPDX-License-Identifier: Apache-2.0

package result

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/niclane/niclane/bench/experiment"
)

// Formats of WriteFormat.
const (
	Text     = "text"
	CSV      = "csv"
	Markdown = "markdown"
	GoBench  = "gobench"
)

// Formats are the names of all formats.
var Formats = []string{Text, CSV, Markdown, GoBench}

// WriteFormat writes the summary of r in one of Formats.
func WriteFormat(out io.Writer, r *Result, format string) error {
	switch format {
	case Text:
		s := Summarize(r)
		if err := WriteText(out, s); err != nil {
			return err
		}
		return writeBehind(out, r, s)
	case CSV:
		return WriteCSV(out, Summarize(r))
	case Markdown:
		return WriteMarkdown(out, Summarize(r))
	case GoBench:
		return WriteGoBench(out, r)
	}
	return fmt.Errorf("format %q: want %s", format, strings.Join(Formats, ", "))
}

// WriteCSV writes a line for each percentile of each variant at each load point. Times are in ns.
// If the sample is too small for a value, the value is empty and the column "missing" says why.
func WriteCSV(out io.Writer, s *Summary) error {
	w := csv.NewWriter(out)
	_ = w.Write([]string{"point", "rate", "connections", "variant", "windows", "requests", "offered", "achieved",
		"errors", "late", "unanswered", "misses",
		"mean_ns", "percentile", "value_ns", "low_ns", "high_ns", "missing", "ratio", "ratio_low", "ratio_high",
		"difference", "partial", "virtual"})
	partial := ""
	if s.Partial != nil {
		partial = s.Partial.Phase
	}
	for _, p := range s.Points {
		for _, v := range p.Variants {
			for _, c := range v.Percentiles {
				line := []string{p.Name, numberText(p.Rate), strconv.Itoa(p.Connections), v.Name,
					strconv.Itoa(v.Windows), whole(v.Requests),
					fmt.Sprintf("%.1f", v.Offered), fmt.Sprintf("%.1f", v.Achieved), whole(v.Errors), whole(v.TimedOut),
					whole(v.Unanswered), whole(v.Misses),
					fmt.Sprintf("%.0f", v.Mean), numberText(c.P), "", "", "", c.Missing, "", "", "", "", partial,
					strconv.FormatBool(s.Virtual)}
				if e := c.Estimate; e != nil {
					line[14], line[15], line[16] = whole(e.Value), whole(e.Low), whole(e.High)
				}
				if x := c.Ratio; x != nil {
					line[18], line[19], line[20] = fmt.Sprintf("%.4g", x.Estimate), fmt.Sprintf("%.4g", x.Low),
						fmt.Sprintf("%.4g", x.High)
				}
				if c.Difference != nil {
					line[21] = c.Difference.Text
				}
				_ = w.Write(line) // w.Error reports the error
			}
		}
	}
	w.Flush()
	return w.Error()
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

// WriteMarkdown writes a table for each load point, with a line for each variant. The warnings
// follow the table.
func WriteMarkdown(out io.Writer, s *Summary) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", cell(s.Title))
	if s.Virtual {
		fmt.Fprintf(&b, "\n**Virtual**: %s\n", VirtualText)
	}
	if s.Partial != nil {
		fmt.Fprintf(&b, "\n**Partial**: ended in phase %s: %s\n", s.Partial.Phase, cell(s.Partial.Reason))
	}
	for _, p := range s.Points {
		fmt.Fprintf(&b, "\n## %s, repeats: %d\n\n| | mean |", p.Name, p.Rounds)
		for _, q := range s.Percentiles {
			fmt.Fprintf(&b, " %s |", PercentileText(q))
		}
		fmt.Fprintf(&b, " server CPU/request | achieved | errors |\n|---|---:|%s---:|---:|---:|\n",
			strings.Repeat("---:|", len(s.Percentiles)))
		for _, v := range p.Variants {
			fmt.Fprintf(&b, "| %s | %s |", cell(v.Name), DurationText(v.Mean))
			for _, c := range v.Percentiles {
				text := cell(c.text())
				if ratio := c.RatioText(); ratio != "" {
					text += "<br>" + cell(ratio)
				}
				fmt.Fprintf(&b, " %s |", text)
			}
			cpu := "-"
			if v.ServerCPU > 0 {
				cpu = DurationText(v.ServerCPU)
			}
			if ratio := v.serverCPURatio(); ratio != "" {
				cpu += "<br>" + cell(ratio)
			}
			fmt.Fprintf(&b, " %s | %.0f/s | %s |\n", cpu, v.Achieved, v.Failures())
		}
		bullets(&b, p.verdicts())
	}
	bullets(&b, s.slaLines())
	bullets(&b, s.Warnings)
	_, err := io.WriteString(out, b.String())
	return err
}

func bullets(b *strings.Builder, lines []string) {
	if len(lines) > 0 {
		b.WriteByte('\n')
	}
	for _, l := range lines {
		fmt.Fprintf(b, "- %s\n", cell(l))
	}
}

// cell escapes a text for a table cell. Without this, "~" could strike text through.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "~", `\~`, "<", "&lt;", "\n", " ").Replace(s)
}

// WriteGoBench writes a line for each window in the format of Go's benchmarks
// (golang.org/design/14313-benchmark-format). benchstat reads it and compares repeats. A percentile
// is left out if a single window has too few samples for it.
func WriteGoBench(out io.Writer, r *Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "niclane: %s\nkernel: %s\ncpu: %s\n", oneLine(r.Niclane), oneLine(r.Environment.Kernel),
		oneLine(r.Environment.CPUModel))
	if r.Virtual {
		fmt.Fprintf(&b, "virtual: %s\n", VirtualText)
	}
	if r.Partial != nil {
		fmt.Fprintf(&b, "partial: %s\n", oneLine(r.Partial.Phase+": "+r.Partial.Reason))
	}
	// The title without spaces, each word with a capital letter.
	var title string
	for _, word := range strings.Fields(r.Title) {
		if word = benchName(word); word != "x" {
			title += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	title = cmp.Or(title, "Run")
	percentiles := r.percentiles()
	for i := range r.Windows {
		w := &r.Windows[i]
		if w.Purpose != Repeat {
			continue
		}
		p := r.Points[w.Point]
		fmt.Fprintf(&b, "Benchmark%s/", title)
		if p.Rate > 0 {
			fmt.Fprintf(&b, "rate=%s/", numberText(p.Rate))
		}
		fmt.Fprintf(&b, "connections=%d/variant=%s %d %.0f mean-ns", p.Connections, benchName(w.Variant),
			max(1, w.Load.Completed), w.Load.Latency.Mean())
		for _, c := range carried(w.Load.Latency, percentiles...) {
			fmt.Fprintf(&b, " %d p%s-ns", c.NS, numberText(c.Percentile))
		}
		fmt.Fprintf(&b, " %.1f req/s", float64(w.Load.Completed)/float64(w.Load.Duration)*1e9)
		to, from := w.noise()
		for _, n := range []struct {
			rate float64
			unit string
		}{{to, experiment.ToSUT}, {from, experiment.FromSUT}} {
			if n.rate > 0 {
				fmt.Fprintf(&b, " %.0f noise-%s-bit/s", n.rate, n.unit)
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// benchName returns a text that can be part of a benchmark's name. It replaces characters that have
// a meaning in the format; for example, "-2" at the end would be a number of processors.
func benchName(s string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r == '-':
			return '_'
		case r == '_', r == '.', r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
			return r
		}
		return -1
	}, s)
	return cmp.Or(name, "x")
}
