// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// magic is the first word of every journal. On the same line follow the version, the length of
// the head in bytes and the head's SHA-256, so that damage is detected. The head includes its
// records and steps.
const magic = "niclane-journal"

// encodeHead returns the file without progress lines: the line with magic, the head, its records
// and its steps.
func encodeHead(h *Head) ([]byte, error) {
	if h.Plan == nil {
		return nil, errNoPlan
	}
	var w bytes.Buffer
	w.Grow(len(h.ConfigText)*9/8 + 256*(len(h.Before)+len(h.Plan.Steps)) + 1024)
	if err := json.NewEncoder(&w).Encode(h.form()); err != nil {
		return nil, err
	}
	if err := h.lines(&w); err != nil {
		return nil, err
	}
	first := fmt.Appendf(nil, "%s %d %d %x\n", magic, Version, w.Len(), sha256.Sum256(w.Bytes()))
	return append(first, w.Bytes()...), nil
}

// Decode reads a journal. It ignores a last line without a newline, which is left if niclane is
// killed during a write. If progress lines cannot be read, Damage describes them. All other
// problems are errors.
func Decode(b []byte) (*Journal, error) {
	head, progress, err := cutHead(b)
	if err != nil {
		return nil, err
	}
	j := new(Journal)
	if err := j.head.decode(head); err != nil {
		return nil, fmt.Errorf("head: %w", err)
	}
	if j.events, err = decodeProgress(string(progress), len(j.head.Plan.Steps)); err != nil {
		j.damage = err.Error() + ": all steps count as made"
	}
	return j, nil
}

// cutHead divides a journal into its head, with records and steps, and the progress lines. It
// returns an error if the head is damaged.
func cutHead(b []byte) (head, progress []byte, err error) {
	first, rest, ok := bytes.Cut(b, []byte("\n"))
	if !ok {
		return nil, nil, errors.New("first line is cut short")
	}
	size, sum, err := decodeFirst(string(first))
	if err != nil {
		return nil, nil, err
	}
	if size > len(rest) {
		return nil, nil, errors.New("head is cut short")
	}
	if got := sha256.Sum256(rest[:size]); hex.EncodeToString(got[:]) != sum {
		return nil, nil, errors.New("head is damaged: its SHA-256 does not match")
	}
	return rest[:size], rest[size:], nil
}

func decodeFirst(line string) (size int, sum string, err error) {
	f := strings.Fields(line)
	if len(f) < 2 || f[0] != magic {
		return 0, "", fmt.Errorf("not a journal of niclane: begins with %.40q", line)
	}
	v, err := strconv.Atoi(f[1])
	if err != nil {
		return 0, "", fmt.Errorf("version %q is not a number", f[1])
	}
	if v != Version {
		return 0, "", fmt.Errorf("version %d, but this niclane reads version %d", v, Version)
	}
	if len(f) == 4 {
		size, err = strconv.Atoi(f[2])
	}
	if len(f) != 4 || err != nil || size < 0 {
		return 0, "", fmt.Errorf("first line is damaged: %.80q", line)
	}
	return size, f[3], nil
}

// errNoPlan is the error for a head without a plan.
var errNoPlan = errors.New("no plan")

// decode reads the head, with its records and steps, from its bytes in the file.
func (h *Head) decode(b []byte) error {
	body, lines, _ := bytes.Cut(b, []byte("\n"))
	if err := json.Unmarshal(body, h); err != nil {
		return err
	}
	if h.Plan == nil {
		return errNoPlan
	}
	if err := h.readLines(string(lines)); err != nil {
		return err
	}
	return h.check()
}

// check returns an error if a head breaks an assumption of this package.
func (h *Head) check() error {
	if h.Plan == nil {
		return errNoPlan
	}
	for i, s := range h.Plan.Steps {
		if s.Old == nil && s.New == nil {
			return fmt.Errorf("step %d names no object", i)
		}
		if s.Old != nil && s.New != nil && s.Old.Key() != s.New.Key() {
			return fmt.Errorf("step %d changes %s into %s", i, s.Old.Key(), s.New.Key())
		}
	}
	for i, r := range h.Before {
		if r.Original == nil && r.Last == nil {
			return fmt.Errorf("record %d names no object", i)
		}
		if r.Original != nil && r.Last != nil && r.Original.Key() != r.Last.Key() {
			return fmt.Errorf("record %d turns %s into %s", i, r.Original.Key(), r.Last.Key())
		}
	}
	return nil
}

// A verb is the first word of a progress line.
type verb string

const (
	stepBegun   verb = "begin"    // the step is about to be written
	stepDone    verb = "done"     // it was read back
	undoBegun   verb = "undo"     // the step is about to be undone
	undoDone    verb = "undone"   // its old value was read back
	restoreNext verb = "restore"  // the object is about to get its original value
	restoreDone verb = "restored" // it was read back
	ended       verb = "end"      // apply ended with all steps made
)

// An event is one progress line.
type event struct {
	verb verb
	step int    // of begin, done, undo, undone
	key  string // of restore, restored
}

func (e event) append(b []byte) []byte {
	b = append(b, e.verb...)
	switch e.verb {
	case restoreNext, restoreDone:
		b = strconv.AppendQuote(append(b, ' '), e.key)
	case ended:
	default:
		b = strconv.AppendInt(append(b, ' '), int64(e.step), 10)
	}
	return append(b, '\n')
}

// decodeProgress reads progress lines. If it cannot read some of them, err names the first of
// these, and the events say that every step was made.
func decodeProgress(text string, steps int) (out []event, err error) {
	out = make([]event, 0, strings.Count(text, "\n"))
	for n := 1; ; n++ {
		line, rest, ok := strings.Cut(text, "\n")
		if !ok {
			break
		}
		if e, bad := decodeEvent(line, steps); bad == nil {
			out = append(out, e)
		} else if err == nil {
			err = fmt.Errorf("progress line %d: %w", n, bad)
		}
		text = rest
	}
	if err != nil {
		out = allMade(out, steps)
	}
	return out, err
}

func decodeEvent(line string, steps int) (event, error) {
	word, arg, _ := strings.Cut(line, " ")
	e := event{verb: verb(word)}
	switch e.verb {
	case stepBegun, stepDone, undoBegun, undoDone:
		n, err := strconv.Atoi(arg)
		if err != nil || n < 0 || n >= steps || strconv.Itoa(n) != arg {
			return e, fmt.Errorf("%q is not a step of the plan (0 to %d)", arg, steps-1)
		}
		e.step = n
	case restoreNext, restoreDone:
		key, err := strconv.Unquote(arg)
		if err != nil {
			return e, fmt.Errorf("%q is not a quoted key", arg)
		}
		e.key = key
	case ended:
		if arg != "" {
			return e, fmt.Errorf("%q after end", arg)
		}
	default:
		return e, fmt.Errorf("%.40q is not known", line)
	}
	return e, nil
}
