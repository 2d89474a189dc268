// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
)

// A Path is the way from this host to an address that is probed.
type Path struct {
	Addr netip.Addr
	// Port accepts connections at Addr; 0: none is known.
	Port uint16
	// Source is the address that the kernel sends from. Sources are all
	// addresses that it may send from on this path.
	Source  netip.Addr
	Sources []netip.Addr
	// VLAN is the tag of the sent packets, 0 for none.
	VLAN int
}

// A Probe is a set of packets that verify sends for one lane to one address,
// and the result.
type Probe struct {
	Lane   string `json:"lane"`
	Device string `json:"device"`
	// Match is the lane's match for the packets; nil for the default lane,
	// whose packets match none.
	Match    *device.Match `json:"match,omitempty"`
	Protocol string        `json:"protocol"`
	// VLAN is the tag of the sent packets, 0 for none.
	VLAN int `json:"vlan,omitempty"`
	// Port 0 means several ports: free local ones, or unused remote ones.
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
	// Connect is a port that accepts connections, used for the first packet; 0:
	// none.
	Connect uint16 `json:"connect,omitempty"`
	// Count is the number of packets to send.
	Count int `json:"count"`

	Sent     int `json:"sent"`
	Accepted int `json:"accepted"`
	Refused  int `json:"refused"`
	// Awaited are the sent packets whose answer verify would see.
	Awaited int `json:"awaited"`
	// Unseen are answers that came and were not seen as packets of the lane.
	// The first TCP probe of a lane has the number for the whole lane.
	Unseen int `json:"unseen,omitempty"`
	// Errors say why packets were not sent or not delivered, without duplicates.
	Errors []string `json:"errors,omitempty"`
}

// The limits of probes.
const (
	MaxProbes    = 256 // packets of all probes together
	perProbe     = 16
	perDatagrams = 4 // more UDP packets prove no more
)

// Probes returns the packets to send so that each lane of a device has traffic.
// For each of a lane's matches, it sends from the local port, or to the remote
// port, to each address. A match for which nothing can be sent gets an unknown
// finding. The default lane is probed too, so that foreign packets could have
// been in the lanes' places.
func Probes(a Applied, dev string, paths []Path) ([]Probe, []Finding) {
	if len(paths) == 0 {
		return nil, nil
	}
	c := &chooser{check: &check{a: a, now: &device.State{}}, dev: dev, paths: paths}
	matches := Matches(a, dev)
	for _, l := range a.Lanes {
		if l.Device == dev && l.Name != intent.DefaultLane {
			c.lane(l, matches[l.Name])
		}
	}
	for _, p := range paths {
		c.probes = append(c.probes, Probe{
			Lane: intent.DefaultLane, Device: dev, Protocol: "tcp", VLAN: p.VLAN, Connect: p.Port, Count: perProbe,
			Local: netip.AddrPortFrom(p.Source, 0), Remote: netip.AddrPortFrom(p.Addr, 0),
		})
	}
	return c.probes, c.out
}

type chooser struct {
	*check
	dev    string
	paths  []Path
	probes []Probe
	out    []Finding
}

// lane adds the probes of one lane. One finding names all matches that cannot
// be probed for the same reason.
func (c *chooser) lane(l plan.FittedLane, ms []device.Match) {
	if group := c.cgroup(l.Name); group != "" {
		c.unknown(l, "not probed: its packets are told apart by control group "+group+
			" on transmit, and verify runs in another")
		return
	}
	if len(ms) == 0 {
		c.unknown(l, "not probed: no address or port identifies its packets")
		return
	}
	follows := c.follows(l)
	var whys []string
	unsent := map[string][]string{}
	for _, m := range ms {
		if why := c.match(l, m, follows); why != "" {
			if unsent[why] == nil {
				whys = append(whys, why)
			}
			unsent[why] = append(unsent[why], m.String())
		}
	}
	for _, why := range whys {
		c.unknown(l, fmt.Sprintf("%s not probed: %s", some(unsent[why]), why))
	}
}

func (c *chooser) unknown(l plan.FittedLane, meaning string) {
	c.out = append(c.out, Finding{Severity: Unknown, Lane: l.Name, Device: c.dev, Meaning: meaning})
}

// cgroup returns a control group by which niclane identifies a lane's packets, "" if none.
func (c *chooser) cgroup(lane string) string {
	for _, r := range c.a.Owned {
		if group := device.GroupOf(r.Last); group != "" && c.laneOf(r.Last, r.Cause) == lane {
			return group
		}
	}
	return ""
}

// match adds the probes of one match, or says why there is none.
func (c *chooser) match(l plan.FittedLane, m device.Match, follows bool) (why string) {
	if m.Protocol == "udp" && follows {
		return "packets leave by the queue of the packets received before, and a UDP probe has received none"
	}
	whys := []string{}
	found := false
	for _, p := range c.paths {
		if p.Addr.Is4() != (m.Family == 4) {
			continue
		}
		probe, why := c.probe(l, m, p)
		if why == "" {
			c.probes = append(c.probes, probe)
			found = true
		} else if !slices.Contains(whys, why) {
			whys = append(whys, why)
		}
	}
	switch {
	case found:
		return ""
	case len(whys) == 0:
		return fmt.Sprintf("no IPv%d address to probe was given", m.Family)
	}
	return strings.Join(whys, "; ")
}

func (c *chooser) probe(l plan.FittedLane, m device.Match, p Path) (Probe, string) {
	if m.VLAN != 0 && m.VLAN != p.VLAN {
		return Probe{}, fmt.Sprintf("packets to %s leave %s", p.Addr, tagged(p.VLAN))
	}
	if !covers(m.Remote, p.Addr) {
		return Probe{}, fmt.Sprintf("%s is not in %s", p.Addr, m.Remote)
	}
	local, ok := source(m, p)
	if !ok {
		return Probe{}, fmt.Sprintf("this host has no address in %s that reaches %s by %s", m.Local, p.Addr, c.dev)
	}
	probe := Probe{
		Lane: l.Name, Device: c.dev, Match: &m, Protocol: m.Protocol, VLAN: p.VLAN, Count: perProbe,
		Local: netip.AddrPortFrom(local, m.LocalPort), Remote: netip.AddrPortFrom(p.Addr, m.RemotePort),
	}
	if m.Protocol == "udp" {
		probe.Count = perDatagrams
	} else if m.RemotePort == 0 || p.Port != 0 && device.SamePort(m.RemotePort, m.RemotePortBits, p.Port, 0) {
		probe.Connect = p.Port
		if m.RemotePort != 0 {
			probe.Remote = netip.AddrPortFrom(p.Addr, p.Port)
		}
	}
	if m.LocalPort != 0 && m.RemotePort != 0 {
		probe.Count = 1 // only one pair of ports exists
	}
	return probe, ""
}

func tagged(vlan int) string {
	if vlan == 0 {
		return "untagged"
	}
	return fmt.Sprintf("in VLAN %d", vlan)
}

// covers reports whether a match's prefix contains an address; "" contains all.
func covers(prefix string, a netip.Addr) bool {
	if prefix == "" {
		return true
	}
	p, err := netip.ParsePrefix(prefix)
	return err == nil && p.Contains(a)
}

// source returns the address of this host to send from.
func source(m device.Match, p Path) (netip.Addr, bool) {
	for _, a := range append([]netip.Addr{p.Source}, p.Sources...) {
		if a.IsValid() && covers(m.Local, a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// Bound limits all probes to MaxProbes packets together. It first reduces the
// packets per probe. If that is not enough, it skips matches evenly, and a
// finding says how many were probed.
func Bound(ps []Probe) ([]Probe, []Finding) {
	if len(ps) == 0 {
		return ps, nil
	}
	most := max(1, MaxProbes/len(ps))
	room, n := MaxProbes, 0
	for _, p := range ps {
		if p.Match == nil {
			room-- // it is kept: without it nothing shows that others' packets stay out
		} else {
			n++
		}
	}
	all, left := tally[lanePlace]{}, tally[lanePlace]{}
	var kept []Probe
	i := 0
	for _, p := range ps {
		if p.Match != nil {
			all.add(lanePlace{p.Lane, p.Device}, 1)
			i++
			// room marks are spread evenly over n probes; a probe with a mark is kept.
			if n > room && (i-1)*room/n == i*room/n {
				left.add(lanePlace{p.Lane, p.Device}, 1)
				continue
			}
		}
		p.Count = min(p.Count, most)
		kept = append(kept, p)
	}
	var out []Finding
	for _, at := range left.keys {
		out = append(out, Finding{Severity: Unknown, Lane: at.lane, Device: at.dev,
			Meaning: fmt.Sprintf("%d of %d matches were probed: verify sends at most %d packets", all.n[at]-left.n[at],
				all.n[at], MaxProbes)})
	}
	return kept, out
}

type lanePlace struct{ lane, dev string }

// tally adds up numbers by key, and keeps the order in which keys came.
type tally[K comparable] struct {
	keys []K
	n    map[K]int
}

func (t *tally[K]) add(k K, n int) {
	if t.n == nil {
		t.n = map[K]int{}
	}
	if _, ok := t.n[k]; !ok {
		t.keys = append(t.keys, k)
	}
	t.n[k] += n
}
