// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Doubt is a reason to distrust numbers. If several differ only in their numbers, they are one
// Doubt, with the text of the first.
type Doubt struct {
	Text  string  `json:"text"`
	Where []Where `json:"where,omitempty"`
}

// Where is a load point and a variant to which a doubt applies.
type Where struct {
	Point   string `json:"point"`
	Variant string `json:"variant"`
	// Repeats are the numbers of the repeats with the doubt, from 1; empty: the doubt is about all
	// repeats together. Of is the number of all repeats.
	Repeats []int `json:"repeats,omitempty"`
	Of      int   `json:"of"`
}

// Windows returns the number of windows with the doubt. It is 0 for a doubt about all windows
// together.
func (d Doubt) Windows() (n int) {
	for _, w := range d.Where {
		n += len(w.Repeats)
	}
	return n
}

// String returns the doubt's text and places.
func (d Doubt) String() string {
	if len(d.Where) == 0 {
		return d.Text
	}
	return d.Text + " [" + d.places() + "]"
}

// Places renders the places of a doubt in a run with these load points. It groups load points with
// equal variants and repeats.
func (d Doubt) Places(points []PointSummary) string {
	common := commonEnd(points)
	var order []string // texts about places, without the load point, in order of appearance
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

// commonEnd returns the part of a load point's name after the first comma, if it is the same for
// all load points; otherwise "".
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

// runs renders numbers as "repeats 1-3, 7".
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

// doubts collects doubts and merges those that differ only in numbers.
type doubts struct {
	list []Doubt
	at   map[string]int // index in list, by text without numbers
}

// words matches words that contain digits.
var words = regexp.MustCompile(`[A-Za-z]*[0-9][0-9.,]*[a-zµ]*`)

// withoutNumbers returns a text without the numbers that may differ between windows. It keeps
// numbers after a letter ("P99.9", "tcp4"), because such words are names.
func withoutNumbers(text string) string {
	// The text ends with the processes that used the processors; they differ each time.
	text, _, _ = strings.Cut(text, ", most of it")
	return words.ReplaceAllStringFunc(text, func(word string) string {
		if word[0] >= '0' && word[0] <= '9' {
			return "#"
		}
		return word
	})
}

// add adds a doubt. repeat is the number of the repeat, from 0; -1 means all repeats together.
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
