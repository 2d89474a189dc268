// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/niclane/niclane/bench/experiment"
	y "github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
)

// Limits of the lab's link and card (package lab).
const (
	MaxLink   = lab.MaxLinkRate
	MaxQueues = lab.MaxQueues
)

// Options of Make. A field that is zero has the default.
type Options struct {
	// Link is the rate of the link in bit/s: by default that of the file, of the host's device, or 10
	// Gbit/s.
	Link uint64
	// Noise is the share of the link in permille that other traffic asks for in each direction, up to
	// 2000.
	Noise int
	// Bulk is the share of the link in permille that each lane sends beside its requests.
	Bulk int
	// Queues is the number of the card's queues: by default those of the host's device, or 8, or more
	// if the file needs more.
	Queues int
	// Window is the counted time of each variant in ns: by default long enough for P99.9 with few
	// lanes.
	Window int64
	// PacketCost and WakeupCost are a model of processors, in ns: see lab.Config.
	PacketCost, WakeupCost int64
	// Buffer is the buffer of the switch's port in bytes: by default the lab's.
	Buffer int
	// Host is what "niclane probe --json" printed on the host; nil: the lab's card.
	Host *device.State
}

// A Setup is a simulation that can be run.
type Setup struct {
	// Experiment is the text of the experiment's file.
	Experiment string
	Link       uint64
	Queues     int
	Noise      int
	// PacketCost and WakeupCost are those of the options.
	PacketCost, WakeupCost int64
	// Lanes are those of the file, in its order, and the default lane at the end.
	Lanes []Lane
	Notes []Note
}

// A Lane is a lane of the file, as it is simulated.
type Lane struct {
	Name   string `json:"name"`
	Queues int    `json:"queues"`
	Rank   int    `json:"rank"`
	// Guarantee and Ceiling are in the form of the file; "": none.
	Guarantee string `json:"guarantee,omitempty"`
	Ceiling   string `json:"ceiling,omitempty"`
	// At is the address and port to which the lane's requests go; "": it gets none.
	At string `json:"at,omitempty"`
	// Missing says why the lane gets no requests.
	Missing string `json:"missing,omitempty"`
}

// A Note says what of the file is not simulated, or differs.
type Note struct {
	Text string `json:"text"`
	// Keys are the paths in the file.
	Keys []string `json:"keys,omitempty"`
}

// A mapper collects what becomes of a file.
type mapper struct {
	in *intent.Intent
	o  Options
	s  Setup
	// addresses are those that the lab's SUT needs beside its own.
	addresses []string
	probes    []experiment.Probe
	card      string
	mtu       int
	htb       bool // the host would make rates by htb, so the lab does too
	cgroups   int  // members with a control group
}

// note adds a key to the note with the text.
func (m *mapper) note(text, key string) {
	for i := range m.s.Notes {
		if m.s.Notes[i].Text == text {
			m.s.Notes[i].Keys = append(m.s.Notes[i].Keys, key)
			return
		}
	}
	n := Note{Text: text}
	if key != "" {
		n.Keys = []string{key}
	}
	m.s.Notes = append(m.s.Notes, n)
}

// Make returns the simulation of a lanes file.
func Make(in *intent.Intent, o Options) (*Setup, error) {
	m := &mapper{in: in, o: o}
	m.s.Noise = o.Noise
	d, err := m.device()
	if err != nil {
		return nil, err
	}
	if err := m.link(d); err != nil {
		return nil, err
	}
	if m.card == "none" && (o.PacketCost > 0 || o.WakeupCost > 0) {
		m.o.PacketCost, m.o.WakeupCost = 0, 0
		m.note("the costs of packets and wake-ups are left out: without a card that steers, queues have no processors",
			"")
	}
	m.s.PacketCost, m.s.WakeupCost = m.o.PacketCost, m.o.WakeupCost
	if err := m.queues(d); err != nil {
		return nil, err
	}
	lanes, err := m.lanes()
	if err != nil {
		return nil, err
	}
	ports, err := m.freePorts(3)
	if err != nil {
		return nil, err
	}
	m.s.Experiment = m.experiment(lanes, ports)
	return &m.s, nil
}

// device finds the file's device on the host.
func (m *mapper) device() (*device.Device, error) {
	g := m.in.Group
	if len(g.Devices) > 1 {
		m.note("one of the devices is simulated; each has the same lanes", "globals.dev")
	}
	if len(g.VLANs) > 0 {
		m.note("the lab's packets have no VLAN tag; all of them count as of these VLANs", "globals.vlans")
	}
	if m.o.Host == nil {
		if g.Bond != "" {
			m.note("one link is simulated in place of the bond; rates in bits hold for it", "globals.bond")
		}
		return nil, nil
	}
	if g.Bond != "" {
		var slaves []*device.Device
		for i := range m.o.Host.Devices {
			if d := &m.o.Host.Devices[i]; d.Master == g.Bond {
				slaves = append(slaves, d)
			}
		}
		if len(slaves) == 0 {
			return nil, fmt.Errorf("globals.bond: the host has no slave of %s, it has %s", g.Bond, m.names())
		}
		m.note(fmt.Sprintf("one slave of %d is simulated, and gets its part of rates in bits", len(slaves)),
			"globals.bond")
		m.share(uint64(len(slaves)))
		return slaves[0], nil
	}
	d := m.o.Host.Device(g.Devices[0])
	if d == nil {
		return nil, fmt.Errorf("globals.dev: the host has no %s, it has %s", g.Devices[0], m.names())
	}
	return d, nil
}

func (m *mapper) names() string {
	var names []string
	for _, d := range m.o.Host.Devices {
		names = append(names, d.Name)
	}
	return cmp.Or(strings.Join(names, ", "), "no device")
}

// share divides all rates in bits by n, on a copy of the file.
func (m *mapper) share(n uint64) {
	in := *m.in
	in.Lanes = append([]intent.Lane(nil), in.Lanes...)
	for _, l := range append(lanesOf(&in), &in.Default) {
		l.Bandwidth.Guarantee.BitsPerSecond /= n
		l.Bandwidth.Ceiling.BitsPerSecond /= n
	}
	in.Group.LinkRate /= n
	m.in = &in
}

func lanesOf(in *intent.Intent) (out []*intent.Lane) {
	for i := range in.Lanes {
		out = append(out, &in.Lanes[i])
	}
	return out
}

// link chooses the rate of the link, the MTU, and the kind of card.
func (m *mapper) link(d *device.Device) error {
	m.card = "emulated"
	m.s.Link = cmp.Or(m.o.Link, m.in.Group.LinkRate)
	if d != nil {
		m.s.Link = cmp.Or(m.s.Link, d.Speed)
		if d.MTU >= 1280 && d.MTU <= 9000 {
			m.mtu = d.MTU
		}
		m.mechanisms(d)
	}
	m.s.Link = cmp.Or(m.s.Link, uint64(10e9))
	if m.s.Link > MaxLink && m.o.Link == 0 {
		m.note(fmt.Sprintf("the link is simulated at %s, not at %s; shares of it hold", y.BitsText(MaxLink),
			y.BitsText(m.s.Link)), "globals.link-rate")
		m.s.Link = MaxLink
	}
	if m.s.Link > MaxLink || m.s.Link < 1e6 {
		return fmt.Errorf("--link %s: the lab's link has 1mbit to %s", y.BitsText(m.s.Link), y.BitsText(MaxLink))
	}
	for _, l := range append(lanesOf(m.in), &m.in.Default) {
		for key, r := range map[string]intent.Rate{"guarantee": l.Bandwidth.Guarantee, "ceiling": l.Bandwidth.Ceiling} {
			if r.Of(m.s.Link) > m.s.Link {
				return fmt.Errorf("%s.%s: %s is more than the simulated link of %s", pathOf(l), key,
					y.BitsText(r.BitsPerSecond), y.BitsText(m.s.Link))
			}
		}
	}
	return nil
}

func pathOf(l *intent.Lane) string { return cmp.Or(l.Path, "globals") }

// mechanisms compares what the host's card can do with the lab's.
func (m *mapper) mechanisms(d *device.Device) {
	for _, c := range plan.Choose(m.o.Host, d, m.in.Group.Force) {
		switch {
		case c.Part == device.PartQueueSet && (c.Mechanism == plan.ByRPS || c.Mechanism == plan.ByShared ||
			c.Mechanism == plan.ByCpumap || c.Mechanism == plan.ByCpumapGeneric):
			m.card = "none"
			m.note(fmt.Sprintf("the host's card steers nothing to queues (%s): the lab has no card either",
				c.Mechanism), "")
		case c.Part == device.PartBandwidth && c.Mechanism == plan.ByHTB:
			m.htb = true
		case c.Part == device.PartBandwidth && c.Mechanism != plan.ByEDT:
			m.note(fmt.Sprintf("the host would make rates by %s, the lab makes them by %s",
				cmp.Or(c.Mechanism, "no mechanism"), plan.ByEDT), "")
		}
	}
}

// queues chooses the numbers of queues: of the card and of each lane.
func (m *mapper) queues(d *device.Device) error {
	need := max(1, m.in.Default.Queues)
	for _, l := range m.in.Lanes {
		need += l.Queues
	}
	n := m.o.Queues
	if n == 0 && d != nil {
		n = max(d.RxQueues, d.TxQueues)
		if d.Channels != nil {
			n = max(d.Channels.Combined, d.Channels.RX)
		}
	}
	if n == 0 {
		n = max(8, need)
	}
	m.s.Queues = min(max(1, n), MaxQueues)
	if n > MaxQueues {
		m.note(fmt.Sprintf("the lab's card has %d queues, not %d", MaxQueues, n), "globals.dev")
	}
	for _, l := range append(m.in.Lanes, m.in.Default) {
		m.s.Lanes = append(m.s.Lanes, Lane{Name: l.Name, Queues: l.Queues, Rank: l.Rank,
			Guarantee: rate(l.Bandwidth.Guarantee), Ceiling: rate(l.Bandwidth.Ceiling)})
	}
	own := &m.s.Lanes[len(m.s.Lanes)-1]
	for i := range m.s.Lanes {
		l := &m.s.Lanes[i]
		l.Rank = cmp.Or(l.Rank, 1)
		if l == own {
			l.Name, l.Rank = intent.DefaultLane, cmp.Or(m.in.Default.Rank, 7)
		}
	}
	if need <= m.s.Queues {
		own.Queues = cmp.Or(own.Queues, m.s.Queues-need+1)
		return nil
	}
	if m.o.Queues > 0 || n <= MaxQueues {
		return fmt.Errorf("lanes: the file needs %d queues, and the card has %d", need, n)
	}
	return m.shrink(need)
}

// shrink takes queues from the lanes with the most, until all fit the lab's card.
func (m *mapper) shrink(need int) error {
	own := &m.s.Lanes[len(m.s.Lanes)-1]
	own.Queues = max(1, own.Queues)
	for ; need > m.s.Queues; need-- {
		most := own
		for i := range m.s.Lanes {
			if l := &m.s.Lanes[i]; l.Queues > most.Queues {
				most = l
			}
		}
		if most.Queues == 1 {
			return fmt.Errorf("lanes: %d lanes, and the lab's card has %d queues", len(m.s.Lanes)-1, m.s.Queues)
		}
		most.Queues--
	}
	for i, l := range append(m.in.Lanes, m.in.Default) {
		if now := m.s.Lanes[i].Queues; l.Queues > now {
			m.note(fmt.Sprintf("%d of %d queues, because the lab's card has %d", now, l.Queues, MaxQueues),
				pathOf(&l)+".queues")
		}
	}
	return nil
}

func rate(r intent.Rate) string {
	if r.IsZero() {
		return ""
	}
	return y.Rate{Permille: r.Permille, BitsPerSecond: r.BitsPerSecond}.String()
}
