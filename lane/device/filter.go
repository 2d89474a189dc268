// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"slices"
	"strings"
)

// A Filter is a BPF program of niclane, attached to clsact by cls_bpf in direct-action mode, or
// at TCX egress. The plan chooses its preference and handle. niclane thus finds the filter again
// if it was killed before it could journal it.
type Filter struct {
	Dev    string `json:"dev"`
	Parent string `json:"parent"` // "egress" or "ingress" of clsact, or AttachTCXEgress
	Pref   uint16 `json:"pref"`
	Handle uint32 `json:"handle"`
	// Program is the name of the program in package internal/kernel/bpf:
	// "niclane_egress".
	Program string `json:"program"`
}

// Kind implements Object.
func (Filter) Kind() string { return "filter" }

// Key implements Object.
func (f Filter) Key() string {
	return fmt.Sprintf("filter/%s/%s/%d/%d", f.Dev, f.Parent, f.Pref, f.Handle)
}

// Brief implements Object.
func (f Filter) Brief() string { return f.Program }

func (f Filter) commands(c Change) []string {
	if f.Parent == AttachTCXEgress {
		return one(fmt.Sprintf("bpftool net %s tcx_egress pinned <%s> dev %s", c.verb("attach", "attach", "detach"),
			f.Program, f.Dev))
	}
	line := fmt.Sprintf("tc filter %s dev %s %s protocol all pref %d handle %#x bpf",
		c.verb("add", "replace", "del"), f.Dev, f.Parent, f.Pref, f.Handle)
	if c.New != nil {
		line += " direct-action object-file niclane.o section tc/" + f.Program
	}
	return one(line)
}

func (f Filter) standsOn() []string {
	if f.Parent == AttachTCXEgress {
		return nil
	}
	return []string{Qdisc{Dev: f.Dev, Parent: "clsact"}.Key()}
}

func (d *Device) putFilter(f Filter, next Object) {
	if f.Parent == AttachTCXEgress {
		d.putTCX(f, next)
		return
	}
	replaceBy(&d.Filters, f, next, func(next Object) FilterState {
		f := next.(Filter)
		return FilterState{Filter: f, Type: "bpf", Name: f.Program}
	})
}

func (d *Device) filters(yield func(Object)) {
	for _, f := range d.Filters {
		if f.Type == "bpf" {
			f.Filter.Program = f.Name
			yield(f.Filter)
		}
	}
	if f, ok := d.TCXFilter(); ok {
		yield(f)
	}
}

// A FilterEntry is one entry in the map of a Filter's program: packets that
// match get Priority, one of Queues, a Lane's share, DSCP and PCP. An entry without all of them (see Unshaped) says
// that the packets are of no lane.
type FilterEntry struct {
	Filter string `json:"filter"` // Key of the Filter
	Match  Match  `json:"match"`
	// Priority is the skb->priority that the packets get, as a handle: an HTB class ("1:10") or an
	// mqprio priority ("0:1" to "0:f"). "" leaves it unchanged.
	Priority string `json:"priority"`
	// Queues are transmit queues, ascending without a gap. If empty, the kernel
	// chooses, by XPS where that is set.
	Queues []int `json:"queues,omitempty"`
	// Lane is the number of the packets' lane in FilterShare, 1 to 79; 0 for none.
	Lane int `json:"lane,omitempty"`
	// DSCP is the DSCP that the packets leave with, as FormatDSCP writes it. "" leaves it unchanged.
	DSCP string `json:"dscp,omitempty"`
	// PCP is the priority code point of the packets' outermost VLAN tag, as FormatPCP writes it. ""
	// leaves it unchanged. Packets without a tag get none.
	PCP string `json:"pcp,omitempty"`
}

// Kind implements Object.
func (FilterEntry) Kind() string { return "filter-entry" }

// Unshaped reports whether the entry's packets belong to no lane, whatever other entries they
// match. Only such an entry compares no protocol.
func (e FilterEntry) Unshaped() bool { return e.Match.Protocol == "" }

// Key implements Object.
func (e FilterEntry) Key() string {
	var b [160]byte
	return string(e.Match.AppendTo(append(append(append(b[:0], "entry/"...), e.Filter...), '/')))
}

// Brief implements Object.
func (e FilterEntry) Brief() string {
	var parts []string
	if e.Priority != "" {
		parts = append(parts, e.Priority)
	}
	if len(e.Queues) > 0 {
		parts = append(parts, "queues "+FormatCPUList(e.Queues))
	}
	if e.Lane != 0 {
		parts = append(parts, fmt.Sprintf("share %d", e.Lane))
	}
	if e.DSCP != "" {
		parts = append(parts, "DSCP "+e.DSCP)
	}
	if e.PCP != "" {
		parts = append(parts, "PCP "+e.PCP)
	}
	if len(parts) == 0 {
		return "no lane"
	}
	return strings.Join(parts, ", ")
}

func (e FilterEntry) commands(c Change) []string {
	if c.New == nil {
		return one(fmt.Sprintf("bpftool map delete id <map of %s> key <%s>", e.Filter, e.Match))
	}
	return one(fmt.Sprintf("bpftool map update id <map of %s> key <%s> value <%s>", e.Filter, e.Match, e.Brief()))
}

func (e FilterEntry) standsOn() []string { return inFilter(e.Filter) }

// inFilter returns the keys of a filter and of the clsact qdisc of its device.
func inFilter(filter string) []string {
	dev, _, _ := strings.Cut(strings.TrimPrefix(filter, "filter/"), "/")
	return []string{filter, Qdisc{Dev: dev, Parent: "clsact"}.Key()}
}

func (e FilterEntry) match() Match { return e.Match }

func (e FilterEntry) equal(o Object) bool {
	b, ok := o.(FilterEntry)
	return ok && e.Filter == b.Filter && e.Match == b.Match && e.Priority == b.Priority &&
		e.Lane == b.Lane && e.DSCP == b.DSCP && e.PCP == b.PCP && slices.Equal(e.Queues, b.Queues)
}

func (d *Device) putEntry(e FilterEntry, next Object) {
	if d.hasFilter(e.Filter) {
		replace(&d.Entries, e, next)
	}
}

// A FilterDefault is the rule of a Filter's program for packets that match no
// entry.
type FilterDefault struct {
	Filter string `json:"filter"` // Key of the Filter
	// Queues are the transmit queues that these packets get, by a hash of the
	// flow: ascending without a gap. If empty, the kernel chooses.
	Queues []int `json:"queues,omitempty"`
	// Lanes are the mqprio priorities of lanes, 1 to 15. If a packet of no lane has such a priority,
	// the program clears bit 3 (value 8) of it. If the result is still a lane's priority, it clears
	// the lowest four bits.
	Lanes []int `json:"lanes,omitempty"`
}

// Kind implements Object.
func (FilterDefault) Kind() string { return "filter-default" }

// Key implements Object.
func (d FilterDefault) Key() string { return "default/" + d.Filter }

// Brief implements Object.
func (d FilterDefault) Brief() string {
	if len(d.Queues) == 0 {
		return "priorities " + FormatCPUList(d.Lanes) + " are lanes'"
	}
	return "queues " + FormatCPUList(d.Queues)
}

func (d FilterDefault) commands(c Change) []string {
	return one(fmt.Sprintf("bpftool map update id <map of %s> key 0 value <%s>", d.Filter,
		c.verb(d.Brief(), d.Brief(), "none")))
}

func (d FilterDefault) standsOn() []string { return inFilter(d.Filter) }

func (d *Device) putDefault(x FilterDefault, next Object) {
	if d.hasFilter(x.Filter) {
		replace(&d.Defaults, x, next)
	}
}

// putTCX adds or removes niclane's program at TCX egress. A new program is the first one there.
func (d *Device) putTCX(f Filter, next Object) {
	if f.Dev != d.Name {
		return
	}
	d.Programs = slices.DeleteFunc(slices.Clone(d.Programs), func(p Program) bool {
		return p.Attach == AttachTCXEgress && p.Name == f.Program
	})
	if n, ok := next.(Filter); ok {
		d.Programs = append([]Program{{Attach: AttachTCXEgress, Name: n.Program}}, d.Programs...)
	}
}

func (d *Device) hasFilter(key string) bool {
	if f, ok := d.TCXFilter(); ok && f.Key() == key {
		return true
	}
	return slices.ContainsFunc(d.Filters, func(f FilterState) bool { return f.Filter.Key() == key })
}

// TCXFilter returns niclane's program at TCX egress.
func (d *Device) TCXFilter() (Filter, bool) {
	for _, p := range d.Programs {
		if p.Attach == AttachTCXEgress && strings.HasPrefix(p.Name, ownPrefix) {
			return Filter{Dev: d.Name, Parent: AttachTCXEgress, Program: p.Name}, true
		}
	}
	return Filter{}, false
}

// ownPrefix is the prefix of the names of niclane's BPF programs.
const ownPrefix = "niclane_"
