// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/uniseg"

	"github.com/niclane/niclane/lane/status"
)

// frameLines counts the lines that are not rows: title, header, keys.
const frameLines = 3

// A column is a column of the table. Its width is in cells of the terminal.
type column struct {
	title string
	width int
	text  func(status.Row) string
	// alarm reports whether a value is shown in the alarm style.
	alarm func(status.Row) bool
}

var never = func(status.Row) bool { return false }

// nameColumn is always the first column.
var nameColumn = column{"LANE", 20, name, never}

// traffic and polling return the two halves of the columns. A wide terminal shows both, a narrow
// one shows one at a time.
func traffic() []column {
	return append(rateColumns("RX", func(r status.Row) *status.Rate { return r.Rx }),
		rateColumns("TX", func(r status.Row) *status.Rate { return r.Tx })...)
}

func rateColumns(title string, of func(status.Row) *status.Rate) []column {
	value := func(f func(*status.Rate) float64) func(status.Row) string {
		return func(r status.Row) string {
			if of(r) == nil {
				return "-"
			}
			return short(f(of(r)))
		}
	}
	return []column{
		{title + "/S", 8, value(func(r *status.Rate) float64 { return r.Packets }), never},
		{title + " BIT/S", 9, value(func(r *status.Rate) float64 { return r.Bytes * 8 }), never},
		{"DROPS/S", 8, value(func(r *status.Rate) float64 { return r.Drops }),
			func(r status.Row) bool { return of(r) != nil && of(r).Drops > 0 }},
	}
}

func polling() []column {
	return []column{
		{"IRQ/S", 8, func(r status.Row) string {
			if r.Interrupts == nil {
				return "-"
			}
			return short(*r.Interrupts)
		}, never},
		{"POLLED BY", 23, polledBy, func(r status.Row) bool {
			return r.Poller != nil &&
				(r.Poller.Doing == "hung" || r.Poller.State == "Z")
		}},
		{"POLLS/S", 8, func(r status.Row) string {
			if r.Poller == nil || r.Poller.Polls == nil {
				return "-"
			}
			return short(*r.Poller.Polls)
		}, never},
		{"CPU", 5, func(r status.Row) string {
			if r.Poller == nil || r.Poller.State == "" {
				return "-"
			}
			return fmt.Sprintf("%.0f%%", r.Poller.CPU*100)
		}, never},
		{"SWITCH/S", 9, func(r status.Row) string {
			if r.Poller == nil || r.Poller.State == "" {
				return "-"
			}
			return short(r.Poller.Voluntary + r.Poller.Involuntary)
		}, never},
	}
}

func polledBy(r status.Row) string {
	p := r.Poller
	switch {
	case p == nil:
		return "-"
	case p.PID == 0:
		return "softirq"
	case p.Doing != "":
		return fmt.Sprintf("poller %d %s", p.PID, p.Doing)
	}
	return strings.TrimSpace(fmt.Sprintf("thread %d %s", p.PID, p.State))
}

// name returns the name of a lane, or the indented name of a part of a lane.
func name(r status.Row) string {
	if r.What == "lane" {
		return r.Device + " " + r.Lane
	}
	s := "  " + r.What
	if r.Number >= 0 {
		s += fmt.Sprint(" ", r.Number)
	}
	if r.Owner != "" {
		s += " of " + r.Owner
	}
	return s
}

// short formats a number in at most 6 characters: 999, 9.99k, 99.9M.
func short(v float64) string {
	if v < 999.5 {
		if v > 0 && v < 9.95 {
			return fmt.Sprintf("%.1f", v)
		}
		return fmt.Sprintf("%.0f", v)
	}
	for _, unit := range []string{"k", "M", "G", "T"} {
		if v /= 1000; v < 999.5 {
			return fmt.Sprintf("%.3g%s", v, unit)
		}
	}
	return fmt.Sprintf("%.0fT", v)
}

// columns returns the columns that fit; all is true if every column does.
func (v *view) columns(width int) (cs []column, all bool) {
	cs = append(append([]column{nameColumn}, traffic()...), polling()...)
	total := 0
	for _, c := range cs {
		total += c.width
	}
	if total <= width {
		return cs, true
	}
	if v.polling {
		return append([]column{nameColumn}, polling()...), false
	}
	return append([]column{nameColumn}, traffic()...), false
}

// The styles of the table's cells.
var (
	plain  = tcell.StyleDefault
	bold   = plain.Bold(true)
	dim    = plain.Dim(true)
	header = plain.Reverse(true)
	alarm  = plain.Foreground(tcell.ColorRed).Bold(true)
)

// draw draws the whole screen.
func (v *view) draw() {
	s := v.screen
	s.Clear()
	width, height := s.Size()
	cs, all := v.columns(width)
	rows := v.rows()
	room := max(0, height-frameLines)
	v.first = max(0, min(v.first, len(rows)-room))
	title := "niclane top, every " + v.interval.String()
	if !v.frame.Time.IsZero() {
		title += ", " + v.frame.Time.Format(time.TimeOnly)
	}
	if len(rows) > room {
		title += fmt.Sprintf(", rows %d to %d of %d", v.first+1, v.first+min(room, len(rows)), len(rows))
	}
	x := put(s, 0, 0, width, bold, title)
	if v.paused {
		x = put(s, x, 0, width, alarm, " paused")
	}
	if v.frame.Notice != "" {
		put(s, x, 0, width, alarm, "  "+v.frame.Notice)
	}
	if height > 1 {
		v.line(1, width, header, cs, func(c column) (string, bool) { return c.title, false })
	}
	for i := 0; i < room && v.first+i < len(rows); i++ {
		r := rows[v.first+i]
		style := plain
		if r.What == "lane" {
			style = bold
		}
		v.line(2+i, width, style, cs, func(c column) (string, bool) { return c.text(r), c.alarm(r) })
	}
	if height > 2 {
		keys := "q quit  p pause  l lanes only  arrows scroll"
		if !all {
			keys += "  Tab polling"
			if v.polling {
				keys = strings.Replace(keys, "Tab polling", "Tab traffic", 1)
			}
		}
		put(s, 0, height-1, width, dim, keys)
	}
	s.Show()
}

func (v *view) rows() []status.Row {
	if !v.lanes {
		return v.frame.Rows
	}
	var out []status.Row
	for _, r := range v.frame.Rows {
		if r.What == "lane" || r.What == "class" {
			out = append(out, r)
		}
	}
	return out
}

// line draws one line of the table at row y. The first column is left-aligned, the others are
// right-aligned.
func (v *view) line(y, width int, style tcell.Style, cs []column, text func(column) (string, bool)) {
	x := 0
	for i, c := range cs {
		t, bad := text(c)
		t = cut(t, c.width-1)
		st := style
		if bad {
			st = alarm
		}
		pad := strings.Repeat(" ", max(0, c.width-uniseg.StringWidth(t)))
		if i == 0 {
			t += pad
		} else {
			t = pad + t
		}
		x = put(v.screen, x, y, width, st, t)
	}
	if style == header {
		put(v.screen, x, y, width, style, strings.Repeat(" ", max(0, width-x)))
	}
}

// cut shortens a text to a number of cells. The text then ends with "…".
func cut(s string, cells int) string {
	if uniseg.StringWidth(s) <= cells {
		return s
	}
	g, out, n := uniseg.NewGraphemes(s), "", 0
	for g.Next() {
		if n += g.Width(); n > cells-1 {
			break
		}
		out += g.Str()
	}
	return out + "…"
}

// put writes a text into row y, from column x to column width at most. It returns the column after
// the text.
func put(s tcell.Screen, x, y, width int, style tcell.Style, text string) int {
	g := uniseg.NewGraphemes(text)
	for g.Next() {
		if x+g.Width() > width {
			return x
		}
		r := g.Runes()
		s.SetContent(x, y, r[0], r[1:], style)
		x += g.Width()
	}
	return x
}
