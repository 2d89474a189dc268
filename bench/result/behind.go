// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// writeBehind writes the details of a result for a terminal: the queues on the way, what the SUT
// did, the host's own noise, and the differences between the variants. It writes them only for a
// result with one load point. With more load points, only the HTML page has the details.
func writeBehind(out io.Writer, r *Result, s *Summary) error {
	if len(s.Points) != 1 {
		return nil
	}
	var b strings.Builder
	hopsText(&b, s.Points[0].Variants)
	useText(&b, s.Points[0])
	floorText(&b, s.Floor)
	differencesText(&b, r.Variants)
	_, err := io.WriteString(out, b.String())
	return err
}

// table writes rows in columns under a title. The first row is the head of the columns. Without
// further rows, it writes nothing.
func table(b *strings.Builder, title string, rows [][]string) {
	if len(rows) < 2 { // a head without rows
		return
	}
	fmt.Fprintf(b, "\n%s\n", title)
	inColumns(b, rows)
}

// inColumns writes rows in columns.
func inColumns(b *strings.Builder, rows [][]string) {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	_ = t.Flush() // a strings.Builder never fails
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(b, strings.TrimRight(line, " \n"))
	}
}

func hopsText(b *strings.Builder, variants []VariantSummary) {
	rows := [][]string{{"", "", "variant", "mean", "P99", "max", "mean wait", "max wait", "drops"}}
	var order []HopSummary
	seen := map[string]bool{}
	for _, v := range variants {
		for _, h := range v.Hops {
			if !seen[h.Name] {
				seen[h.Name] = true
				order = append(order, h)
			}
		}
	}
	for _, place := range order {
		name, reach := place.Name, string(place.Reach)
		for _, v := range variants {
			for _, h := range v.Hops {
				if h.Name != place.Name {
					continue
				}
				p99 := "-"
				if h.P99 >= 0 {
					p99 = BytesText(float64(h.P99))
				}
				rows = append(rows, []string{name, reach, v.Name, BytesText(h.Mean), p99, BytesText(float64(h.Max)),
					DurationText(h.MeanWait), DurationText(h.MaxWait), fmt.Sprint(h.Drops)})
				name, reach = "", ""
			}
		}
	}
	table(b, "queues on the way; a lane shortens only its own queues, and none beyond the host", rows)
}

// useText writes the SUT's counters. It leaves out the lines of single queues, which only the HTML
// page has.
func useText(b *strings.Builder, p PointSummary) {
	head := []string{""}
	for _, v := range p.Variants {
		head = append(head, v.Name)
	}
	rows := [][]string{head}
	for _, u := range p.Machine {
		if strings.Contains(u.Name, "queue") {
			continue
		}
		row := []string{u.Name}
		for _, v := range u.Values {
			if v == nil {
				row = append(row, "-")
				continue
			}
			row = append(row, u.text(*v))
		}
		rows = append(rows, row)
	}
	table(b, "what the SUT did meanwhile", rows)
}

func (u Use) text(v float64) string {
	switch u.Unit {
	case PerRequestNs:
		return DurationText(v) + "/request"
	case BitsPerS:
		return BitsText(v)
	case OfProcessor, OfPackets, OfPolls:
		return fmt.Sprintf("%.1f %%", 100*v)
	case PerMillion:
		return fmt.Sprintf("%.3g", v)
	case PerRequest, PerPoll:
		return fmt.Sprintf("%.2f%s", v, u.Unit)
	case PerSecond:
		return fmt.Sprintf("%.0f%s", v, u.Unit)
	}
	return fmt.Sprintf("%.0f", v)
}

func floorText(b *strings.Builder, floor []Floor) {
	rows := [][]string{{"", "", "P50", "P99", "P99.9", "max", "steal", "others"}}
	for _, f := range floor {
		row := []string{f.When, fmt.Sprintf("cpu %d", f.CPU)}
		for i := range 3 {
			if i < len(f.Percentiles) {
				row = append(row, DurationText(float64(f.Percentiles[i].NS)))
			} else {
				row = append(row, "-")
			}
		}
		rows = append(rows, append(row, DurationText(float64(f.Max)), fmt.Sprintf("%.1f %%", 100*f.Steal),
			fmt.Sprintf("%.1f %%", 100*f.Busy)))
	}
	table(b, "how late the host woke a thread that only slept", rows)
}

func differencesText(b *strings.Builder, variants []Variant) {
	some := false
	for _, v := range variants {
		some = some || len(v.Differences) > 0
	}
	if !some {
		return
	}
	fmt.Fprint(b, "\neach variant's differences from the one before; at the first: the host's tuning in all variants\n")
	for _, v := range variants {
		fmt.Fprintln(b, strings.TrimRight(v.Name+": "+v.Title, " "))
		for _, d := range v.Differences {
			fmt.Fprintf(b, "  - %s\n", d)
		}
	}
}
