// SPDX-License-Identifier: Apache-2.0

package device

import "fmt"

// Commands returns the command lines that an administrator would have typed
// for c, so that it can be audited. They are for reading: niclane talks to
// the kernel itself. <...> stands for what only the running kernel knows.
func (c Change) Commands() []string { return c.Object().commands(c) }

// Object returns New, or Old where the object is removed.
func (c Change) Object() Object {
	if c.New != nil {
		return c.New
	}
	return c.Old
}

// verb picks the word for a change that adds, changes or removes.
func (c Change) verb(add, change, del string) string {
	switch {
	case c.New == nil:
		return del
	case c.Old == nil:
		return add
	}
	return change
}

func one(line string) []string { return []string{line} }

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// RateText gives bit/s with the largest unit of tc(8) that keeps three
// digits: "980mbit".
func RateText(bps uint64) string {
	for _, u := range []struct {
		name string
		of   uint64
	}{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}} {
		if bps >= u.of {
			return fmt.Sprintf("%.4g%s", float64(bps)/float64(u.of), u.name)
		}
	}
	return fmt.Sprintf("%dbit", bps)
}
