// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/niclane/niclane/bench/result"
)

// mostBusy is the share in permille up to which the processor of virtual time hardly shows in P99.
const mostBusy = 400

// width is how wide sentences are, in characters.
const width = 96

// WriteText writes the answer for people.
func WriteText(w io.Writer, r *Result) error {
	var b strings.Builder
	paragraph(&b, "", r.head()+" "+r.Change)
	b.WriteString("\n")
	r.table(&b)
	b.WriteString("\n")
	for _, line := range r.remarks() {
		paragraph(&b, "", line)
	}
	for _, text := range r.LeavesOut {
		paragraph(&b, "left out: ", text)
	}
	for _, n := range r.Notes {
		paragraph(&b, "note: ", n.Text+keys(n.Keys))
	}
	for _, l := range r.Lanes {
		if l.Missing != "" {
			paragraph(&b, "note: ", "lane "+l.Name+" gets no requests: "+l.Missing)
		}
	}
	for _, text := range r.Warnings {
		paragraph(&b, "warning: ", text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// most keys of a note are printed; --json has all.
const mostKeys = 4

func keys(all []string) string {
	if len(all) == 0 {
		return ""
	}
	text := " (" + strings.Join(all[:min(len(all), mostKeys)], ", ")
	if n := len(all) - mostKeys; n > 0 {
		text += fmt.Sprintf(", and %d more keys", n)
	}
	return text + ")"
}

// paragraph writes text in lines of at most width characters, those after the first indented as far
// as prefix is long.
func paragraph(b *strings.Builder, prefix, text string) {
	line, indent := prefix, strings.Repeat(" ", len(prefix))
	empty := true
	for word := range strings.FieldsSeq(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			b.WriteString(line + "\n")
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	b.WriteString(line + "\n")
}

// table writes two lines for each lane: the host as it is, and with the lanes.
func (r *Result) table(b *strings.Builder) {
	rows := [][]string{
		{"", "", "latency of a request", "", "", "", "waits at P99 in", "", "", "", ""},
		{"lane", "", "P50", "P90", "P99", "P99.9", "class", "card", "switch", "sends", "drops"},
	}
	for _, l := range r.Lanes {
		rows = append(rows, r.row(l.Name, "as it is", l.AsItIs, r.AsItIs),
			r.row("", "with lanes", l.WithLanes, r.WithLanes))
	}
	columns := make([]int, len(rows[1]))
	for _, row := range rows[1:] {
		for i, cell := range row {
			columns[i] = max(columns[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			gap := columns[i] - utf8.RuneCountInString(cell)
			switch {
			case n == 0 && cell == "": // the title before it may reach into this column
				if over := utf8.RuneCountInString(line.String()) - end(columns, i); over < 0 {
					line.WriteString(strings.Repeat(" ", -over))
				}
			case n == 0:
				line.WriteString("  " + cell)
			case i < 2:
				line.WriteString(cell + strings.Repeat(" ", gap+2))
			default:
				line.WriteString(strings.Repeat(" ", gap) + cell + "  ")
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// end returns how many characters the columns up to i take.
func end(columns []int, i int) (n int) {
	for _, c := range columns[:i+1] {
		n += c + 2
	}
	return n - 2
}

func (r *Result) row(name, variant string, s *Side, shared Shared) []string {
	row := []string{name, variant}
	if s == nil {
		for range 9 {
			row = append(row, "-")
		}
		return row
	}
	for _, p := range []int64{s.P50, s.P90, s.P99, s.P999} {
		if p == 0 {
			row = append(row, "-") // too few requests
			continue
		}
		row = append(row, result.DurationText(float64(p)))
	}
	class, drops := "-", shared.Card.Drops+shared.Switch.Drops
	if s.Class != nil {
		class = wait(s.Class.P99Wait)
		drops += s.Class.Drops
	}
	return append(row, class, wait(shared.Card.P99Wait), wait(shared.Switch.P99Wait),
		fmt.Sprintf("%.1f %%", 100*float64(s.Sends)/float64(r.Link)), fmt.Sprint(drops))
}

func wait(ns int64) string {
	if ns == 0 {
		return "0"
	}
	return result.DurationText(float64(ns))
}

// remarks say what the table shows, in words.
func (r *Result) remarks() (out []string) {
	var falls []string
	for _, l := range r.Lanes[:len(r.Lanes)-1] {
		if l.AsItIs == nil || l.AsItIs.P99 == 0 || l.WithLanes == nil || l.WithLanes.P99 == 0 {
			continue
		}
		falls = append(falls, fmt.Sprintf("%s from %s to %s", l.Name, result.DurationText(float64(l.AsItIs.P99)),
			result.DurationText(float64(l.WithLanes.P99))))
	}
	if len(falls) > 0 {
		out = append(out, "P99 goes: "+strings.Join(falls, ", ")+".")
	}
	for _, l := range r.Lanes[:len(r.Lanes)-1] {
		if l.Guarantee == "" && l.AsItIs != nil && l.WithLanes != nil && l.WithLanes.P99 > l.AsItIs.P99 {
			out = append(out, fmt.Sprintf("Lane %s gets slower: it has no guarantee, and a full link can leave such a "+
				"lane 1/1000 at any rank. Give it a guarantee.", l.Name))
		}
	}
	if r.Noise > 0 {
		x, z := r.AsItIs, r.WithLanes
		out = append(out, fmt.Sprintf("Other traffic: %s in and %s out as it is, %s and %s with the lanes; "+
			"%d and %d segments sent again.", bits(x.NoiseIn), bits(x.NoiseOut), bits(z.NoiseIn), bits(z.NoiseOut),
			x.Retransmits, z.Retransmits))
	}
	if busy := max(r.AsItIs.Busy, r.WithLanes.Busy); busy > mostBusy {
		out = append(out, fmt.Sprintf("The processor of virtual time was busy for %d %% of it: latencies have some of "+
			"its queueing, too. A slower --link has less.", busy/10))
	}
	for _, l := range r.Lanes {
		for _, s := range []struct {
			name string
			*Side
		}{{"as it is", l.AsItIs}, {"with lanes", l.WithLanes}} {
			if s.Side != nil && s.Unanswered > 0 {
				out = append(out, fmt.Sprintf("%d of %d requests of lane %s got no answer in time, %s.", s.Unanswered,
					s.Requests, l.Name, s.name))
			}
		}
	}
	return out
}

func bits(n int64) string { return result.BitsText(float64(n)) }
