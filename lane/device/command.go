// SPDX-License-Identifier: Apache-2.0

package device

import "fmt"

// Commands returns command lines that do the same as c. They are for people who check a plan;
// niclane does not run them. <...> stands for a value that only the running kernel knows.
func (c Change) Commands() []string { return c.Object().commands(c) }

// Object returns New, or Old if the change removes the object.
func (c Change) Object() Object {
	if c.New != nil {
		return c.New
	}
	return c.Old
}

// verb returns the word add, change or del, according to what c does.
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

// RateText returns a rate in bit/s as tc(8) writes it, with the largest unit that is not larger
// than the rate: "980mbit".
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
