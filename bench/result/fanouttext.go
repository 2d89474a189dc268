// SPDX-License-Identifier: Apache-2.0

package result

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// WriteFanOuts writes FanOuts as Text, CSV or Markdown.
func WriteFanOuts(out io.Writer, all []FanOut, format string) error {
	switch format {
	case Text:
		return fanOutText(out, all)
	case CSV:
		return fanOutCSV(out, all)
	case Markdown:
		return fanOutMarkdown(out, all)
	}
	return fmt.Errorf("format %q: want %s", format, strings.Join(ComparisonFormats, ", "))
}

// rows returns a table with a head, a line for each time and a column for each variant.
func (f FanOut) rows() [][]string {
	head := []string{"within"}
	for _, v := range f.Variants {
		head = append(head, v.Name)
	}
	out := [][]string{head}
	for i, t := range f.Times {
		line := []string{DurationText(float64(t))}
		for _, v := range f.Variants {
			text := v.Missing
			if i < len(v.Answers) {
				a := v.Answers[i]
				text = a.String()
				if a.Missing != "" { // the reason is only in CSV and JSON
					text = fmt.Sprintf("at least %d", a.Low)
				}
			}
			if i < len(v.More) {
				text += " " + v.More[i]
			}
			line = append(line, text)
		}
		out = append(out, line)
	}
	return out
}

func (f FanOut) title() string {
	return fmt.Sprintf("%s: servers that one request can ask in parallel, all answers in time with a probability of %s",
		f.Point, numberText(f.Probability))
}

func fanOutText(out io.Writer, all []FanOut) error {
	var b strings.Builder
	for i, f := range all {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintln(&b, f.title())
		if len(f.Times) == 0 {
			fmt.Fprintln(&b, "no response times: the samples have too few requests")
			continue
		}
		inColumns(&b, f.rows())
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func fanOutMarkdown(out io.Writer, all []FanOut) error {
	var b strings.Builder
	for i, f := range all {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "## %s\n\n", f.title())
		for i, row := range f.rows() {
			for _, c := range row {
				fmt.Fprintf(&b, "| %s ", cell(c))
			}
			b.WriteString("|\n")
			if i == 0 {
				b.WriteString("|---|" + strings.Repeat("---:|", len(f.Variants)) + "\n")
			}
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func fanOutCSV(out io.Writer, all []FanOut) error {
	w := csv.NewWriter(out)
	_ = w.Write([]string{"point", "variant", "probability", "time_ns", "servers", "low", "high", "within", "within_low",
		"within_high", "missing", "more"})
	for _, f := range all {
		for _, v := range f.Variants {
			for i, a := range v.Answers {
				servers, more := strconv.FormatInt(a.Servers, 10), ""
				if a.Missing != "" {
					servers = ""
				}
				if i < len(v.More) {
					more = v.More[i]
				}
				_ = w.Write([]string{f.Point, v.Name, numberText(f.Probability), whole(a.Time), servers, whole(a.Low),
					whole(a.High),
					// w.Error reports the error
					fmt.Sprintf("%.9g", a.Share.Within), fmt.Sprintf("%.9g", a.Share.Low),
					fmt.Sprintf("%.9g", a.Share.High), a.Missing, more})
			}
		}
	}
	w.Flush()
	return w.Error()
}
