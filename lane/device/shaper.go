// SPDX-License-Identifier: Apache-2.0

package device

import "fmt"

// A Shaper is the card's own shaper of one transmit queue (the net-shaper
// family, Linux 6.13). Rates are bit/s, 0 for none.
type Shaper struct {
	Dev   string `json:"dev"`
	Queue int    `json:"queue"`
	Min   uint64 `json:"min,omitempty"`
	Max   uint64 `json:"max,omitempty"`
	// Other: another program has set something else than rates in bit/s: a group, a burst, a
	// priority, a weight, or a rate in packets.
	Other bool `json:"other,omitempty"`
}

// Kind implements Object.
func (Shaper) Kind() string { return "shaper" }

// Key implements Object.
func (s Shaper) Key() string { return fmt.Sprintf("shaper/%s/%d", s.Dev, s.Queue) }

// Brief implements Object.
func (s Shaper) Brief() string {
	if s.Other {
		return "more than rates"
	}
	most := "any rate"
	if s.Max != 0 {
		most = RateText(s.Max)
	}
	return fmt.Sprintf("at least %s, at most %s", RateText(s.Min), most)
}

func (s Shaper) commands(c Change) []string {
	// ynl is the kernel's own tool for generic netlink families.
	const line = `ynl --family net-shaper --do %s --json '{"ifindex": <index of %s>, ` +
		`"handle": {"scope": "queue", "id": %d}%s}'`
	if c.New == nil {
		return one(fmt.Sprintf(line, "delete", s.Dev, s.Queue, ""))
	}
	return one(fmt.Sprintf(line, "set", s.Dev, s.Queue, fmt.Sprintf(`, "metric": "bps", "bw-min": %d, "bw-max": %d`,
		s.Min, s.Max)))
}
