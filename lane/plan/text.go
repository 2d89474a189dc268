// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"io"

	"github.com/niclane/niclane/lane/device"
)

// WriteText prints the steps for people: what, why, who asked for it, and the
// command line that would do the same.
func WriteText(w io.Writer, steps []Step) {
	part := device.Part("")
	for i, s := range steps {
		if s.Part != part {
			part = s.Part
			fmt.Fprintf(w, "%s\n", part)
		}
		mark := ""
		if s.Disruptive {
			mark = "  (disruptive: packets in flight can be lost)"
		}
		fmt.Fprintf(w, "%4d  %s  [%s]%s\n", i+1, s.Reason, s.Cause, mark)
		if s.Old != nil && s.New != nil {
			fmt.Fprintf(w, "      %s → %s\n", Brief(s.Old), Brief(s.New))
		}
		for _, c := range s.Commands() {
			fmt.Fprintf(w, "      $ %s\n", c)
		}
	}
}

// WriteChoices prints how each part of a lane is made, and why the better
// realisations are out.
func WriteChoices(w io.Writer, choices []Choice) {
	for _, c := range choices {
		name := c.Realisation
		if name == "" {
			name = "none"
		}
		fmt.Fprintf(w, "%-11s %-18s %s\n", c.Part, name, c.Reason)
		for _, r := range c.Rejected {
			fmt.Fprintf(w, "%-11s   not %s: %s\n", "", r.Realisation, r.Why)
		}
	}
}

// Brief gives an object's value in a few words, for a line "old → new".
func Brief(o device.Object) string {
	if o == nil {
		return "absent"
	}
	return o.Brief()
}
