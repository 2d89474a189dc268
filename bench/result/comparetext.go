// SPDX-License-Identifier: Apache-2.0

package result

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"

	"github.com/niclane/niclane/bench/stats"
)

// ComparisonFormats are the formats of WriteComparison.
var ComparisonFormats = []string{Text, CSV, Markdown}

// WriteComparison writes a comparison in one of ComparisonFormats.
func WriteComparison(out io.Writer, c *Comparison, format string) error {
	switch format {
	case Text:
		return c.text(out)
	case CSV:
		return c.csv(out)
	case Markdown:
		return c.markdown(out)
	}
	return fmt.Errorf("format %q: want %s", format, strings.Join(ComparisonFormats, ", "))
}

func (r RunID) String() string {
	s := fmt.Sprintf("%s, niclane %s, %s", r.Title, r.Niclane, r.Started.UTC().Format("2006-01-02 15:04 MST"))
	if r.Virtual {
		s += ", virtual time"
	}
	if r.Partial != nil {
		s += fmt.Sprintf(", PARTIAL: ended in phase %s: %s", r.Partial.Phase, r.Partial.Reason)
	}
	return s
}

// String renders "×1.23 (1.10 to 1.37)". It adds stats.Same if noise may explain the ratio.
func (j *Judged) String() string {
	if j == nil {
		return "no ratio"
	}
	return ratioText(j.Ratio, &j.Difference)
}

// ratioText renders a ratio. It adds stats.Same if d says that noise may explain the ratio. d is
// nil if the ratio was not judged.
func ratioText(r stats.Ratio, d *stats.Difference) string {
	s := fmt.Sprintf("×%.2f (%.2f to %.2f)", r.Estimate, r.Low, r.High)
	if d != nil && d.Text == stats.Same {
		s += " " + stats.Same
	}
	return s
}

// A comparisonRow is one line of a comparison, for all formats.
type comparisonRow struct{ what, a, b, ratio, beside string }

func (v VariantComparison) rows() (out []comparisonRow) {
	cell := func(e *stats.Estimate, missing string) string {
		if e == nil {
			return missing
		}
		return IntervalText(*e)
	}
	for _, p := range v.Percentiles {
		r := comparisonRow{what: PercentileText(p.P), a: cell(p.A, p.MissingA), b: cell(p.B, p.MissingB),
			ratio: p.Ratio.String()}
		if p.BesideBase != nil {
			r.beside = p.BesideBase.String()
		}
		out = append(out, r)
	}
	out = append(out, comparisonRow{what: "achieved", a: fmt.Sprintf("%.0f/s", v.Achieved.A),
		b: fmt.Sprintf("%.0f/s", v.Achieved.B), ratio: v.Achieved.Ratio.String()})
	if t := v.ServerCPU; t != nil {
		out = append(out, comparisonRow{what: "server CPU/request", a: DurationText(t.A), b: DurationText(t.B),
			ratio: t.Ratio.String()})
	}
	for _, n := range v.Noise {
		out = append(out, comparisonRow{what: "noise " + Way(n.Direction), a: BitsText(n.A), b: BitsText(n.B),
			ratio: n.Ratio.String()})
	}
	return out
}

func (c *Comparison) text(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "A: %s\nB: %s\n", c.A.String(), c.B.String())
	list := func(name string, all []Change) {
		if len(all) == 0 {
			fmt.Fprintf(&b, "%s: the same\n", name)
			return
		}
		fmt.Fprintf(&b, "%s, A → B:\n", name)
		for _, x := range all {
			fmt.Fprintf(&b, "  %s\n", x)
		}
	}
	list("environment", c.Environment)
	list("experiment", c.Experiment)
	for _, p := range c.Points {
		fmt.Fprintf(&b, "\n%s\n", p.Name)
		rows := [][]string{{"", "A", "B", "B to A", "beside the base"}}
		for _, v := range p.Variants {
			rows = append(rows, []string{v.Name, "", "", "", ""})
			for _, r := range v.rows() {
				rows = append(rows, []string{"  " + r.what, r.a, r.b, r.ratio, r.beside})
			}
		}
		inColumns(&b, rows)
	}
	if len(c.Only)+len(c.Notes) > 0 {
		b.WriteByte('\n')
	}
	for _, s := range c.Only {
		fmt.Fprintln(&b, s)
	}
	for _, s := range c.Notes {
		fmt.Fprintf(&b, "note: %s\n", s)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (c *Comparison) markdown(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n- A: %s\n- B: %s\n", cell(c.A.Title), cell(c.A.String()), cell(c.B.String()))
	for _, x := range c.Environment {
		fmt.Fprintf(&b, "- environment: %s\n", cell(x.String()))
	}
	for _, x := range c.Experiment {
		fmt.Fprintf(&b, "- experiment: %s\n", cell(x.String()))
	}
	for _, p := range c.Points {
		fmt.Fprintf(&b, "\n## %s\n\n| | | A | B | B to A | beside the base |\n|---|---|---:|---:|---:|---:|\n", p.Name)
		for _, v := range p.Variants {
			for _, r := range v.rows() {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", cell(v.Name), r.what, cell(r.a), cell(r.b),
					cell(r.ratio), cell(r.beside))
			}
		}
	}
	bullets(&b, append(append([]string{}, c.Only...), c.Notes...))
	_, err := io.WriteString(out, b.String())
	return err
}

func (c *Comparison) csv(out io.Writer) error {
	w := csv.NewWriter(out)
	_ = w.Write([]string{"point", "variant", "measure", "a", "a_low", "a_high", "b", "b_low", "b_high", "missing",
		"ratio", "ratio_low", "ratio_high", "difference"})
	for _, p := range c.Points {
		for _, v := range p.Variants {
			for _, x := range v.Percentiles {
				line := []string{p.Name, v.Name, PercentileText(x.P) + "_ns"}
				for _, e := range []*stats.Estimate{x.A, x.B} {
					if e == nil {
						line = append(line, "", "", "")
						continue
					}
					line = append(line, whole(e.Value), whole(e.Low), whole(e.High))
				}
				missing := x.MissingA
				if x.MissingB != "" {
					missing = strings.TrimPrefix(missing+"; "+x.MissingB, "; ")
				}
				_ = w.Write(append(append(line, missing), x.Ratio.columns()...))
			}
			for _, n := range append([]NoiseTwo{{Direction: "", RateTwo: v.Achieved}}, v.Noise...) {
				name := "achieved_per_s"
				if n.Direction != "" {
					name = "noise_" + n.Direction + "_bit_per_s"
				}
				line := []string{p.Name, v.Name, name, fmt.Sprintf("%.1f", n.A), "", "", fmt.Sprintf("%.1f", n.B), "",
					"", ""}
				_ = w.Write(append(line, n.Ratio.columns()...)) // w.Error reports the error
			}
		}
	}
	w.Flush()
	return w.Error()
}

func (j *Judged) columns() []string {
	if j == nil {
		return []string{"", "", "", ""}
	}
	return []string{fmt.Sprintf("%.4g", j.Estimate), fmt.Sprintf("%.4g", j.Low), fmt.Sprintf("%.4g", j.High),
		j.Difference.Text}
}
