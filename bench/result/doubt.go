// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Doubt is a reason to distrust numbers. Doubts that differ only in numbers are merged, with
// the text of the first one.
type Doubt struct {
	Text  string  `json:"text"`
	Where []Where `json:"where,omitempty"`
}

// Where is the place of a doubt.
type Where struct {
	Point   string `json:"point"`
	Variant string `json:"variant"`
	// Repeats, from 1, of Of repeats; none: all of them together.
	Repeats []int `json:"repeats,omitempty"`
	Of      int   `json:"of"`
}

// Windows returns the number of windows with the doubt, 0 for a doubt about windows together.
func (d Doubt) Windows() (n int) {
	for _, w := range d.Where {
		n += len(w.Repeats)
	}
	return n
}

// String returns the text and its places.
func (d Doubt) String() string {
	if len(d.Where) == 0 {
		return d.Text
	}
	return d.Text + " [" + d.places() + "]"
}

// Places renders the places of a doubt among the load points of a run. It groups equal places.
func (d Doubt) Places(points []PointSummary) string {
	common := commonEnd(points)
	var order []string // texts about points
	at := map[string][]string{}
	for i := 0; i < len(d.Where); {
		j := i
		for j < len(d.Where) && d.Where[j].Point == d.Where[i].Point {
			j++
		}
		text := Doubt{Where: d.Where[i:j]}.places()
		if at[text] == nil {
			order = append(order, text)
		}
		at[text] = append(at[text], strings.TrimSuffix(d.Where[i].Point, common))
		i = j
	}
	var out []string
	for _, text := range order {
		switch n := len(at[text]); {
		case len(points) == 1:
		case n == len(points):
			text = "At every load point: " + text
		default:
			text = "At " + strings.Join(at[text], ", ") + ": " + text
		}
		out = append(out, text)
	}
	return strings.Join(out, ". ")
}

// commonEnd returns the common end of the load points' names, from a comma on.
func commonEnd(points []PointSummary) string {
	for i, p := range points {
		_, rest, ok := strings.Cut(p.Name, ", ")
		if !ok {
			return ""
		}
		if i == len(points)-1 {
			return ", " + rest
		}
		if !strings.HasSuffix(points[i+1].Name, ", "+rest) {
			return ""
		}
	}
	return ""
}

func (d Doubt) places() string {
	var out []string
	for _, w := range d.Where {
		text := w.Variant
		switch {
		case len(w.Repeats) == 0:
		case len(w.Repeats) == w.Of && w.Of > 1:
			text += fmt.Sprintf(" (all %d windows)", w.Of)
		default:
			text += fmt.Sprintf(" (%s of %d)", runs(w.Repeats), w.Of)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// runs renders "repeats 1-3, 7".
func runs(numbers []int) string {
	var out []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if j == i {
			out = append(out, fmt.Sprint(numbers[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", numbers[i], numbers[j]))
		}
		i = j + 1
	}
	if len(numbers) == 1 {
		return "repeat " + out[0]
	}
	return "repeats " + strings.Join(out, ", ")
}

// doubts collects doubts.
type doubts struct {
	list []Doubt
	at   map[string]int // index by text without numbers
}

// words are words of a text that have digits.
var words = regexp.MustCompile(`[A-Za-z]*[0-9][0-9.,]*[a-zµ]*`)

// withoutNumbers returns the part of a text that does not differ between windows. It keeps
// numbers after a letter ("P99.9", "tcp4"), which name a thing.
func withoutNumbers(text string) string {
	// The list of processes that used the processors differs each time.
	text, _, _ = strings.Cut(text, ", most of it")
	return words.ReplaceAllStringFunc(text, func(word string) string {
		if word[0] >= '0' && word[0] <= '9' {
			return "#"
		}
		return word
	})
}

// add adds a text about a repeat, from 0, or about all repeats with repeat -1.
func (d *doubts) add(text string, w Where, repeat int) {
	if d.at == nil {
		d.at = map[string]int{}
	}
	key := withoutNumbers(text)
	i, ok := d.at[key]
	if !ok {
		i = len(d.list)
		d.at[key] = i
		d.list = append(d.list, Doubt{Text: text})
	}
	x := &d.list[i]
	at := slices.IndexFunc(x.Where, func(o Where) bool { return o.Point == w.Point && o.Variant == w.Variant })
	if at < 0 {
		at = len(x.Where)
		x.Where = append(x.Where, w)
	}
	if repeat >= 0 && !slices.Contains(x.Where[at].Repeats, repeat+1) {
		x.Where[at].Repeats = append(x.Where[at].Repeats, repeat+1)
	}
}

// merge adds the doubts of another load point.
func (d *doubts) merge(list []Doubt) {
	for _, o := range list {
		for _, w := range o.Where {
			repeats := w.Repeats
			w.Repeats = nil
			if len(repeats) == 0 {
				d.add(o.Text, w, -1)
			}
			for _, r := range repeats {
				d.add(o.Text, w, r-1)
			}
		}
	}
}
