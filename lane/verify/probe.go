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

// A Path is the way from this host to an address to which probes are sent.
type Path struct {
	Addr netip.Addr
	// Port is a port at Addr that accepts connections; 0: none is known.
	Port uint16
	// Source is the address from which the kernel sends on this path. Sources are all addresses from
	// which it may send.
	Source  netip.Addr
	Sources []netip.Addr
	// VLAN is the VLAN tag of the packets on this path, 0 for none.
	VLAN int
}

// A Probe is a set of packets that verify sends to one address, so that one lane has traffic. It
// also has the result.
type Probe struct {
	Lane   string `json:"lane"`
	Device string `json:"device"`
	// Match is the match of the lane that the packets have; nil for the default lane, whose packets
	// match no lane.
	Match    *device.Match `json:"match,omitempty"`
	Protocol string        `json:"protocol"`
	// VLAN is the VLAN tag of the packets, 0 for none.
	VLAN int `json:"vlan,omitempty"`
	// Local and Remote are the two ends. Port 0 means several ports: free ones at the local end,
	// unused ones at the remote end.
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
	// Connect is a remote port that accepts connections. The first packet goes to it. 0: none.
	Connect uint16 `json:"connect,omitempty"`
	// Count is the number of packets to send.
	Count int `json:"count"`

	Sent     int `json:"sent"`
	Accepted int `json:"accepted"`
	Refused  int `json:"refused"`
	// Awaited is the number of sent packets whose answers verify would receive.
	Awaited int `json:"awaited"`
	// Unseen is the number of answers that arrived but that the watching programs did not count for
	// the lane. The lane's first TCP probe has the number for the whole lane.
	Unseen int `json:"unseen,omitempty"`
	// Errors are the reasons why packets were not sent or not delivered, each only once.
	Errors []string `json:"errors,omitempty"`
}

// The limits of probes.
const (
	MaxProbes    = 256 // packets of all probes together
	perProbe     = 16
	perDatagrams = 4 // more UDP packets would prove nothing more
)

// Probes returns packets with which each lane of a device gets traffic. There are packets for
// each match of a lane and each address in paths. They have the match's local port or remote
// port. If no packets are possible for a match, the match gets an unknown finding. The default
// lane also gets packets: they would show if packets of no lane arrived in a lane's place.
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

// lane adds the probes of one lane. Matches that cannot be probed for the same reason share one
// finding.
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

// cgroup returns the control group by which niclane identifies the lane's packets, "" if it does
// not use one.
func (c *chooser) cgroup(lane string) string {
	for _, r := range c.a.Owned {
		if group := device.GroupOf(r.Last); group != "" && c.laneOf(r.Last, r.Cause) == lane {
			return group
		}
	}
	return ""
}

// match adds the probes of one match. If there are none, it returns the reason.
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
		probe.Count = 1 // there is only one pair of ports
	}
	return probe, ""
}

func tagged(vlan int) string {
	if vlan == 0 {
		return "untagged"
	}
	return fmt.Sprintf("in VLAN %d", vlan)
}

// covers reports whether the prefix of a match contains the address. "" contains all.
func covers(prefix string, a netip.Addr) bool {
	if prefix == "" {
		return true
	}
	p, err := netip.ParsePrefix(prefix)
	return err == nil && p.Contains(a)
}

// source returns the address of this host from which the probes of m are sent, false if none is
// in the match.
func source(m device.Match, p Path) (netip.Addr, bool) {
	for _, a := range append([]netip.Addr{p.Source}, p.Sources...) {
		if a.IsValid() && covers(m.Local, a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// Bound limits the number of packets of all probes to MaxProbes. It first reduces the packets of
// each probe. If there are still too many, it leaves out probes, evenly over the list, and a
// finding says how many are left.
func Bound(ps []Probe) ([]Probe, []Finding) {
	if len(ps) == 0 {
		return ps, nil
	}
	most := max(1, MaxProbes/len(ps))
	room, n := MaxProbes, 0
	for _, p := range ps {
		if p.Match == nil {
			room-- // it stays: only it shows whether packets of no lane stay out of the lanes
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
			// Keep room of the n probes, evenly distributed over the list.
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

// tally adds numbers by key. It keeps the keys in the order in which they came.
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
