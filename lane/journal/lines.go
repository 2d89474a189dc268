// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// Each record and each step is a line: a keyword and a JSON document. niclane before version 0.2
// also wrote lines with the keyword "like", for a record or step that differs from the one before
// only in match and cause. readLines still reads these.
const (
	recordLine = "record " // recordJSON follows
	stepLine   = "step "   // stepJSON follows
	likeLine   = "like "   // the match follows, and the cause in quotes if it also differs
)

// lines writes the records and steps of a head.
func (h *Head) lines(to *bytes.Buffer) error {
	for i := range h.Before {
		r := &h.Before[i]
		if r.line != "" {
			to.WriteString(r.line)
			continue
		}
		form := recordJSON{envelope(r.Original), envelope(r.Last), r.Uncertain, envelope(r.Next), r.Part, r.Cause}
		at := to.Len()
		if err := writeLine(to, recordLine, form); err != nil {
			return err
		}
		r.line = string(to.Bytes()[at:])
	}
	for _, s := range h.Plan.Steps {
		form := stepJSON{envelope(s.Old), envelope(s.New), s.Part, s.Reason, s.Cause, s.Disruptive}
		if err := writeLine(to, stepLine, form); err != nil {
			return err
		}
	}
	return nil
}

func writeLine(to *bytes.Buffer, kind string, form any) error {
	to.WriteString(kind)
	b, err := json.Marshal(form)
	to.Write(append(b, '\n'))
	return err
}

// readLines reads the lines that lines has written.
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

// readLike reads a "like" line of niclane before version 0.2: the record or step of the line
// before, with another match.
func (h *Head) readLike(kind, own string) error {
	match, quoted, more := strings.Cut(own, " ")
	m, err := device.ParseMatch(match)
	if err != nil {
		return err
	}
	with := func(before, after *device.Object, cause *string) {
		var was, is bool
		*before, was = withMatch(*before, m)
		*after, is = withMatch(*after, m)
		if more {
			*cause, err = strconv.Unquote(quoted)
		}
		if !was || !is {
			err = errors.New("the line before it compares no packets")
		}
	}
	if kind == recordLine {
		r := h.Before[len(h.Before)-1]
		with(&r.Original, &r.Last, &r.Cause)
		h.Before = append(h.Before, r)
		return err
	}
	s := h.Plan.Steps[len(h.Plan.Steps)-1]
	with(&s.Old, &s.New, &s.Cause)
	h.Plan.Steps = append(h.Plan.Steps, s)
	return err
}

// withMatch returns o with another match. It returns false if an object of this kind has no
// match. nil stays nil.
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

func appendRecord(to []Record, body string) ([]Record, error) {
	var r recordJSON
	err := json.Unmarshal([]byte(body), &r)
	return append(to, Record{
		Record:    plan.Record{Original: r.Original.open(), Last: r.Last.open(), Part: r.Part, Cause: r.Cause},
		Uncertain: r.Uncertain, Next: r.Next.open(),
	}), err
}

func appendStep(to []plan.Step, body string) ([]plan.Step, error) {
	var s stepJSON
	err := json.Unmarshal([]byte(body), &s)
	return append(to, plan.Step{
		Old: s.Old.open(), New: s.New.open(), Part: s.Part, Reason: s.Reason, Cause: s.Cause, Disruptive: s.Disruptive,
	}), err
}
