// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// What a lane's members own differs in nothing but the match, mostly. Such
// records and steps are written as "like MATCH" after the one that they are
// like: a thousand members are read in a hundredth of the time that as many JSON
// documents take. One that was asked for by another key of the config has that
// key after its match.
const (
	recordLine = "record " // and recordJSON
	stepLine   = "step "   // and stepJSON
	likeLine   = "like "   // and the match of one like the line before
)

// A line is what a record or a step is about.
type line struct {
	old, new device.Object
	cause    string
}

// like appends what l has of its own if it is otherwise as the line before.
// spelled are words that are known to be read as they are written.
func (l line) like(b []byte, before line, spelled *device.Match) (own []byte, ok bool) {
	o := l.new
	if o == nil {
		o = l.old
	}
	m, ok := matchOf(o)
	if !ok || !alike(l.old, before.old) || !alike(l.new, before.new) {
		return nil, false
	}
	if l.old != nil && l.new != nil {
		if other, _ := matchOf(l.old); other != m {
			return nil, false
		}
	}
	if w := words(m); w != *spelled {
		own := m.String()
		if back, err := device.ParseMatch(own); err != nil || back != m || strings.ContainsAny(own, " \n") {
			return nil, false // of no match that niclane makes
		}
		*spelled = w
	}
	own = m.AppendTo(b)
	if l.cause != before.cause {
		own = strconv.AppendQuote(append(own, ' '), l.cause)
	}
	return own, true
}

// words are what of m is neither a number nor an address: members of a lane have
// them in common.
func words(m device.Match) device.Match {
	m.VLAN, m.LocalPort, m.RemotePort, m.LocalPortBits, m.RemotePortBits = 0, 0, 0, 0, 0
	for _, addr := range []*string{&m.Local, &m.Remote} {
		if strings.Trim(*addr, "0123456789abcdef.:/") == "" {
			*addr = ""
		}
	}
	return m
}

// with gives the line with another match and cause; false if it has no match.
func (l line) with(m device.Match, cause string) (line, bool) {
	var okOld, okNew bool
	l.old, okOld = withMatch(l.old, m)
	l.new, okNew = withMatch(l.new, m)
	l.cause = cause
	return l, okOld && okNew
}

// parse is the inverse of like.
func (l line) parse(own string) (line, error) {
	match, quoted, more := strings.Cut(own, " ")
	m, err := device.ParseMatch(match)
	if err != nil {
		return line{}, err
	}
	cause := l.cause
	if more {
		if cause, err = strconv.Unquote(quoted); err != nil {
			return line{}, fmt.Errorf("%q is not a quoted key of the config", quoted)
		}
	}
	out, ok := l.with(m, cause)
	if !ok {
		return line{}, errors.New("what comes before it compares no packets")
	}
	return out, nil
}

func matchOf(o device.Object) (device.Match, bool) {
	switch o := o.(type) {
	case device.FilterEntry:
		return o.Match, true
	case device.XDPEntry:
		return o.Match, true
	case device.Rule:
		return o.Match, true
	}
	return device.Match{}, false
}

// withMatch returns o with another match. Absence stays absence.
func withMatch(o device.Object, m device.Match) (device.Object, bool) {
	switch o := o.(type) {
	case nil:
		return nil, true
	case device.FilterEntry:
		o.Match = m
		return o, true
	case device.XDPEntry:
		o.Match = m
		return o, true
	case device.Rule:
		o.Match = m
		return o, true
	}
	return nil, false
}

// alike reports whether a and b are both absent, or differ in nothing but the
// match.
func alike(a, b device.Object) bool {
	switch a := a.(type) {
	case nil:
		return b == nil
	case device.FilterEntry:
		b, ok := b.(device.FilterEntry)
		return ok && a.Filter == b.Filter && a.Priority == b.Priority && slices.Equal(a.Queues, b.Queues)
	case device.XDPEntry:
		b, ok := b.(device.XDPEntry)
		b.Match = a.Match
		return ok && a == b
	case device.Rule:
		b, ok := b.(device.Rule)
		b.Match = a.Match
		return ok && a == b
	}
	return false
}

// A writer writes the records and steps of a head.
type writer struct {
	bytes.Buffer
	before  line
	kind    string
	spelled device.Match
}

// short writes l if it is like the line before, and reports whether it did.
func (w *writer) short(kind string, l line) bool {
	if w.kind != kind {
		return false
	}
	own, ok := l.like(append(w.AvailableBuffer(), likeLine...), w.before, &w.spelled)
	if !ok {
		return false
	}
	w.before = l
	w.Write(append(own, '\n'))
	return true
}

func (w *writer) whole(kind string, l line, form any) error {
	w.before, w.kind = l, kind
	b, err := json.Marshal(form)
	w.WriteString(kind)
	w.Write(b)
	w.WriteByte('\n')
	return err
}

// A text is a record's line, with its newline.
type text struct {
	line string
	// like says that it is short: it is this line after any record of the same family
	// that has the same cause, or if not same, that has another.
	like, same bool
	*family
}

// A family is records that are like each other. One record can be of another family
// than a second that it is like, but not of the same as one that it is not.
type family struct{ _ byte } // so that each has its own address

// record writes the record after the one before it, nil if it is the first.
func (w *writer) record(r, before *Record) error {
	t := r.text
	if before != nil && t != nil && t.like && t.family == before.text.family && t.same == (r.Cause == before.Cause) {
		w.WriteString(t.line)
		return nil
	}
	l, at := line{r.Original, r.Last, r.Cause}, w.Len()
	if before != nil && r.Uncertain == before.Uncertain && r.Next == nil && before.Next == nil && r.Part == before.Part {
		w.before, w.kind = line{before.Original, before.Last, before.Cause}, recordLine
		if w.short(recordLine, l) {
			r.text = &text{string(w.Bytes()[at:]), true, r.Cause == before.Cause, before.text.family}
			return nil
		}
	}
	if t != nil && !t.like {
		w.WriteString(t.line)
		return nil
	}
	form := recordJSON{envelope(r.Original), envelope(r.Last), r.Uncertain, envelope(r.Next), r.Part, r.Cause}
	err := w.whole(recordLine, l, form)
	r.text = &text{line: string(w.Bytes()[at:]), family: new(family)}
	if t != nil {
		r.text.family = t.family
	}
	return err
}

func (w *writer) lines(h *Head) error {
	var before *Record
	for i := range h.Before {
		if err := w.record(&h.Before[i], before); err != nil {
			return err
		}
		before = &h.Before[i]
	}
	steps := h.Plan.Steps
	for i, s := range steps {
		alike := i > 0 && s.Part == steps[i-1].Part && s.Reason == steps[i-1].Reason && s.Disruptive == steps[i-1].Disruptive
		l := line{s.Old, s.New, s.Cause}
		if alike && w.short(stepLine, l) {
			continue
		}
		form := stepJSON{envelope(s.Old), envelope(s.New), s.Part, s.Reason, s.Cause, s.Disruptive}
		if err := w.whole(stepLine, l, form); err != nil {
			return err
		}
	}
	return nil
}

// readLines is the inverse of lines.
func (h *Head) readLines(text string) error {
	steps := &h.Plan.Steps
	kind := ""
	for n := 1; text != ""; n++ {
		var l string
		l, text, _ = strings.Cut(text, "\n")
		var err error
		if own, ok := strings.CutPrefix(l, likeLine); ok && kind != "" {
			err = h.readLike(kind, own)
		} else if body, ok := strings.CutPrefix(l, recordLine); ok {
			kind = recordLine
			h.Before, err = appendRecord(h.Before, body)
		} else if body, ok := strings.CutPrefix(l, stepLine); ok {
			kind = stepLine
			*steps, err = appendStep(*steps, body)
		} else {
			err = fmt.Errorf("%.40q is not known", l)
		}
		if err != nil {
			return fmt.Errorf("line %d after it: %w", n, err)
		}
	}
	return nil
}

func (h *Head) readLike(kind, own string) error {
	if kind == recordLine {
		r := h.Before[len(h.Before)-1]
		l, err := line{r.Original, r.Last, r.Cause}.parse(own)
		r.Original, r.Last, r.Cause = l.old, l.new, l.cause
		h.Before = append(h.Before, r)
		return err
	}
	s := h.Plan.Steps[len(h.Plan.Steps)-1]
	l, err := line{s.Old, s.New, s.Cause}.parse(own)
	s.Old, s.New, s.Cause = l.old, l.new, l.cause
	h.Plan.Steps = append(h.Plan.Steps, s)
	return err
}

func appendRecord(to []Record, body string) ([]Record, error) {
	var r recordJSON
	err := json.Unmarshal([]byte(body), &r)
	return append(to, Record{Original: r.Original.open(), Last: r.Last.open(), Uncertain: r.Uncertain, Next: r.Next.open(), Part: r.Part, Cause: r.Cause}), err
}

func appendStep(to []plan.Step, body string) ([]plan.Step, error) {
	var s stepJSON
	err := json.Unmarshal([]byte(body), &s)
	return append(to, plan.Step{
		Old: s.Old.open(), New: s.New.open(), Part: s.Part, Reason: s.Reason, Cause: s.Cause, Disruptive: s.Disruptive,
	}), err
}
