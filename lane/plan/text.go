// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// WriteText prints the steps for people. Each step has the change, the reason, the config path
// that asked for it, and the equivalent command line.
func WriteText(w io.Writer, steps []Step) {
	part := device.Part("")
	for i, s := range steps {
		if s.Part != part {
			part = s.Part
			fmt.Fprintf(w, "%s\n", part)
		}
		s.write(w, i+1)
	}
}

// fewSteps is the largest number of similar steps that WriteFolded prints one by one.
const fewSteps = 2

// WriteFolded prints the steps like WriteText, grouped by part of a lane. Steps on one device are
// similar if they differ only in numbers. If there are more than fewSteps similar steps, it
// prints the first one and the number of the others.
func WriteFolded(w io.Writer, devices []string, steps []Step) {
	type kind struct {
		part                  device.Part
		device, cause, reason string
		disruptive            bool
	}
	var parts []device.Part
	kinds, of := map[device.Part][]kind{}, map[kind][]int{}
	for i, s := range steps {
		k := kind{s.Part, "", s.Cause, digits.ReplaceAllString(s.Reason, "0"), s.Disruptive}
		for _, name := range strings.Split(s.Key(), "/") {
			if slices.Contains(devices, name) {
				k.device = name
			}
		}
		if kinds[s.Part] == nil {
			parts = append(parts, s.Part)
		}
		if of[k] == nil {
			kinds[s.Part] = append(kinds[s.Part], k)
		}
		of[k] = append(of[k], i)
	}
	for _, part := range parts {
		fmt.Fprintf(w, "%s\n", part)
		for _, k := range kinds[part] {
			for n, i := range of[k] {
				steps[i].write(w, i+1)
				if more := len(of[k]) - n - 1; more > 0 && len(of[k]) > fewSteps {
					fmt.Fprintf(w, "      and %d more steps of this kind\n", more)
					break
				}
			}
		}
	}
}

var digits = regexp.MustCompile(`[0-9]+`)

func (s Step) write(w io.Writer, number int) {
	mark := ""
	if s.Disruptive {
		mark = "  (disruptive: packets in flight can be lost)"
	}
	fmt.Fprintf(w, "%4d  %s  [%s]%s\n", number, s.Reason, s.Cause, mark)
	if s.Old != nil && s.New != nil {
		fmt.Fprintf(w, "      %s → %s\n", Brief(s.Old), Brief(s.New))
	}
	for _, c := range s.Commands() {
		fmt.Fprintf(w, "      $ %s\n", c)
	}
}

// WriteChoices prints the mechanism for each part of a lane, and the reasons against better ones.
func WriteChoices(w io.Writer, choices []Choice) {
	for _, c := range choices {
		name := c.Mechanism
		if name == "" {
			name = "none"
		}
		fmt.Fprintf(w, "%-11s %-18s %s\n", c.Part, name, c.Reason)
		for _, r := range c.Rejected {
			fmt.Fprintf(w, "%-11s   not %s: %s\n", "", r.Mechanism, r.Why)
		}
	}
}

// Brief returns an object's value in a few words, for a line "old → new".
func Brief(o device.Object) string {
	if o == nil {
		return "absent"
	}
	return o.Brief()
}
