// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A FilterLink makes the program of a Filter share a link by departure times: each packet gets the
// time at which it may leave, and fq holds it until then (internal/kernel/bpf/c/depart.h).
type FilterLink struct {
	Filter string `json:"filter"` // Key of the Filter
	Rate   uint64 `json:"rate"`   // that all lanes share, bit/s of frames
	// Horizon and Mark are in ns. A packet that would wait longer than Horizon is dropped, and one
	// that waits longer than Mark is marked, if it has ECN. Both are less, down to a quarter, for a
	// flow with a large part of the link.
	Horizon uint64 `json:"horizon"`
	Mark    uint64 `json:"mark"`
	// Ranks are the ranks of the lanes, ascending, from 1 to 8.
	Ranks []int `json:"ranks"`
}

// Kind implements Object.
func (FilterLink) Kind() string { return "filter-link" }

// Key implements Object.
func (l FilterLink) Key() string { return "link/" + l.Filter }

// Brief implements Object.
func (l FilterLink) Brief() string {
	return fmt.Sprintf("%s, drop after %v, ECN after %v, ranks %s", RateText(l.Rate),
		time.Duration(l.Horizon), time.Duration(l.Mark), FormatCPUList(l.Ranks))
}

func (l FilterLink) commands(c Change) []string {
	return one(fmt.Sprintf("bpftool map update id <link of %s> key 0 value <%s>", l.Filter,
		c.verb(l.Brief(), l.Brief(), "none")))
}

func (l FilterLink) standsOn() []string { return inFilter(l.Filter) }

func (l FilterLink) equal(o Object) bool {
	b, ok := o.(FilterLink)
	return ok && l.Filter == b.Filter && l.Rate == b.Rate && l.Horizon == b.Horizon && l.Mark == b.Mark &&
		slices.Equal(l.Ranks, b.Ranks)
}

// A FilterShare is a lane's share of a FilterLink.
type FilterShare struct {
	Filter string `json:"filter"` // Key of the Filter
	Lane   int    `json:"lane"`   // as in FilterEntry; 0 is the default lane
	// Guarantee and Ceiling are in bit/s of frames, 0 for none. A lane that sent nothing for the time
	// of a burst may send that many bytes at once.
	Guarantee      uint64 `json:"guarantee,omitempty"`
	GuaranteeBurst uint32 `json:"guaranteeBurst,omitempty"`
	Ceiling        uint64 `json:"ceiling,omitempty"`
	CeilingBurst   uint32 `json:"ceilingBurst,omitempty"`
	Rank           int    `json:"rank"` // 1 to 8
	// Lanes is the number of lanes with this rank, at least 1. Part is the lane's guarantee and its part of
	// the rate that no lane is guaranteed, in bit/s. What earlier ranks send is deducted, in equal parts from
	// the lanes of a rank. A lane that sends less than its part waits for earlier ranks only.
	Lanes int    `json:"lanes"`
	Part  uint64 `json:"part"`
	// Fair says what the members are among which the lane is divided if the link is full: "flows",
	// "addresses", or "" for none. Each flow always has Flow, in bit/s.
	Fair string `json:"fair,omitempty"`
	Flow uint64 `json:"flow,omitempty"`
}

// What a FilterShare is divided among.
const (
	FairFlows     = "flows"
	FairAddresses = "addresses"
)

// Kind implements Object.
func (FilterShare) Kind() string { return "filter-share" }

// Key implements Object.
func (s FilterShare) Key() string { return fmt.Sprintf("share/%d/%s", s.Lane, s.Filter) }

// Brief implements Object.
func (s FilterShare) Brief() string {
	parts := []string{fmt.Sprintf("rank %d", s.Rank)}
	if s.Guarantee > 0 {
		parts = append(parts, "at least "+RateText(s.Guarantee))
	}
	if s.Ceiling > 0 {
		parts = append(parts, "at most "+RateText(s.Ceiling))
	}
	if s.Fair != "" {
		parts = append(parts, "fair among "+s.Fair)
	}
	return strings.Join(parts, ", ")
}

func (s FilterShare) commands(c Change) []string {
	return one(fmt.Sprintf("bpftool map update id <shares of %s> key %d value <%s>", s.Filter, s.Lane,
		c.verb(s.Brief(), s.Brief(), "none")))
}

func (s FilterShare) standsOn() []string { return inFilter(s.Filter) }

func (d *Device) putLink(x FilterLink, next Object) {
	if d.hasFilter(x.Filter) {
		replace(&d.SharedLinks, x, next)
	}
}

func (d *Device) putShare(x FilterShare, next Object) {
	if d.hasFilter(x.Filter) {
		replace(&d.Shares, x, next)
	}
}
