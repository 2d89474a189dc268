// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
)

// A Watched has the traffic of a device during the time For.
type Watched struct {
	Device string        `json:"device"`
	For    time.Duration `json:"forNs"`
	// Received and Sent count packets by lane and queue. Classed counts sent packets by lane, and by
	// the lane of the HTB class in which a packet was sent.
	Received []Cell `json:"received,omitempty"`
	Sent     []Cell `json:"sent,omitempty"`
	Classed  []Cell `json:"classed,omitempty"`
	// Marked counts the sent packets of lanes that have a DSCP, by lane and DSCP.
	Marked []Mark `json:"marked,omitempty"`
	// Tagged counts those that have a VLAN tag, of lanes that have a PCP, by lane and PCP.
	Tagged []Tag `json:"tagged,omitempty"`
	// Direct and Handed count packets by lane and processor. Direct are those that the stack got
	// from the driver, Handed those that it got from the cpumap. With generic XDP, a packet in
	// Handed was in Direct before.
	Direct []Cell `json:"direct,omitempty"`
	Handed []Cell `json:"handed,omitempty"`
	// Fragments counts fragments of datagrams whose addresses are those of a lane that is identified
	// by port. A fragment has no ports, so its lane is not known.
	Fragments uint64 `json:"fragments,omitempty"`
	// Missed counts packets that were not read, so their lane is not known.
	Missed uint64 `json:"missed,omitempty"`
}

// A Cell counts the packets of one lane in one queue, processor or class.
type Cell struct {
	// Lane is the lane to which the packets belong, according to their headers. It is "" for none,
	// LaneUnread if the headers could not be read, and LaneUnshaped if sent packets go to an unshaped
	// network.
	Lane string `json:"lane"`
	// Queue is the number of the queue or processor.
	Queue int `json:"queue"`
	// Class is the lane of the HTB class, "" for none. It is used only in Classed.
	Class   string `json:"class,omitempty"`
	Packets uint64 `json:"packets"`
	// Bare counts TCP packets without data.
	Bare uint64 `json:"bare,omitempty"`
}

// A Mark counts the packets of one lane that left with one DSCP (device.FormatDSCP). Lane is as in
// Cell.
type Mark struct {
	Lane    string `json:"lane"`
	DSCP    string `json:"dscp"`
	Packets uint64 `json:"packets"`
}

// A Tag counts the packets of one lane that left with one PCP in their outermost VLAN tag
// (device.FormatPCP). Lane is as in Cell.
type Tag struct {
	Lane    string `json:"lane"`
	PCP     string `json:"pcp"`
	Packets uint64 `json:"packets"`
}

// LaneUnread is the lane of packets whose headers could not be read. LaneUnshaped is that of sent
// packets to unshaped networks, which leave as the default lane's.
const (
	LaneUnread   = "?"
	LaneUnshaped = "(unshaped)"
)

// Unshaped returns the matches of the unshaped networks of a device.
func Unshaped(a Applied, dev string) (out []device.Match) {
	c := &check{a: a, now: &device.State{}}
	for _, r := range a.Owned {
		if e, ok := r.Last.(device.FilterEntry); ok && e.Unshaped() && c.deviceOf(e) == dev {
			out = append(out, e.Match)
		}
	}
	return out
}

// Matches returns, by lane, the matches of the lanes of a device. They are those of niclane's
// rules and classifier entries.
func Matches(a Applied, dev string) map[string][]device.Match {
	c := &check{a: a, now: &device.State{}}
	out := map[string][]device.Match{}
	for _, r := range a.Owned {
		var m device.Match
		switch o := r.Last.(type) {
		case device.Rule:
			m = o.Match
		case device.FilterEntry:
			m = o.Match
		case device.XDPEntry:
			m = o.Match
		default:
			continue
		}
		lane := c.laneOf(r.Last, r.Cause)
		if c.deviceOf(r.Last) == dev && lane != "" && !slices.Contains(out[lane], m) {
			out[lane] = append(out[lane], m)
		}
	}
	return out
}

// Named returns the priorities of those lanes of a device that no match identifies, by lane. Such
// a lane is identified by control group, and the priority (as in FilterEntry) is that of the
// group.
func Named(a Applied, dev string) map[string]string {
	c := &check{a: a, now: &device.State{}}
	matches := Matches(a, dev)
	out := map[string]string{}
	for _, r := range a.Owned {
		var priority string
		switch o := r.Last.(type) {
		case device.CgroupClass:
			priority = o.Priority
		case device.CgroupPriority:
			if o.Dev == dev {
				priority = o.Priority
			}
		}
		if lane := c.laneOf(r.Last, r.Cause); priority != "" && lane != "" && len(matches[lane]) == 0 {
			out[lane] = priority
		}
	}
	return out
}

// CPULanes returns the names of the lanes in niclane's XDP program on a device, by lane number.
// Number 0 is the default lane.
func CPULanes(a Applied, dev string) map[int]string {
	c := &check{a: a, now: &device.State{}}
	out := map[int]string{}
	for _, r := range a.Owned {
		if l, ok := r.Last.(device.CPULane); ok && l.Dev == dev {
			out[l.Lane], out[0] = c.laneOf(l, r.Cause), intent.DefaultLane
		}
	}
	return out
}

// Traffic checks, for each lane, whether the lane's packets were in the lane's queues, processors
// and class, and whether other packets were there. If no packet passed that could show it, the
// finding is unknown.
func Traffic(a Applied, w Watched) []Finding {
	t := &traffic{check: &check{a: a, now: &device.State{}}, w: w}
	named := Named(a, w.Device)
	for _, l := range a.Lanes {
		if l.Device != w.Device || l.Name == intent.DefaultLane {
			continue
		}
		if t.reserves(w.Device) {
			t.place(l, place{part: device.PartSteering, cells: w.Received, verb: "arrived", in: "in",
				noun: "receive queues", queues: l.Queues,
				foreign: "they wait among the lane's packets, and the lane's poller works on them",
				strayed: "they wait among other packets, and the lane's poller never sees them"})
		}
		if cpus := t.cpus(l); cpus != nil {
			t.processors(l, cpus)
		}
		if link := t.link(l.Device); link != "" && named[l.Name] == "" {
			// The program that watches sent packets needs an Ethernet header.
			if t.sends(l) || l.Class != "" {
				t.out = append(t.out, Finding{Severity: Unknown, Lane: l.Name, Device: l.Device,
					Part: device.PartMapper,
					Meaning: fmt.Sprintf("packets that leave by link type %s have no Ethernet header, and "+
						"verify does not "+
						"read them: it is not known whether the lane's packets leave as promised", link)})
			}
			continue
		}
		if first, ok := t.leaves(l); ok {
			t.place(l, place{part: device.PartMapper, cells: w.Sent, verb: "left", in: "by",
				noun: "its own transmit queue, after those of the channels:", queues: t.leaf(l, first),
				foreign: "the lane's packets wait behind them, and the card gives them the lane's share",
				strayed: "the card gives them neither the lane's guarantee nor its ceiling"})
		} else if t.sends(l) {
			t.place(l, place{part: device.PartMapper, cells: w.Sent, verb: "left", in: "by", noun: "transmit queues",
				queues: l.Queues, tolerant: !t.chosen(l), unshaped: t.follows(l),
				foreign: "the lane's packets wait behind them",
				strayed: "they wait behind other packets. A connection from before apply keeps its queue until none " +
					"of its packets is on its way"})
		}
		if named[l.Name] != "" && l.Class != "" {
			t.out = append(t.out, Finding{Severity: Unknown, Lane: l.Name, Device: l.Device, Part: device.PartBandwidth,
				Meaning: fmt.Sprintf("%s left in class %s in %v: only the class identifies the lane's packets, "+
					"so verify cannot tell whether all of them, and no others, were there",
					packets(total(w.Classed, l.Name)), l.Class, w.For)})
		} else if l.Class != "" {
			t.place(l, place{part: device.PartBandwidth, cells: w.Classed, verb: "left", in: "in",
				noun:    "class " + l.Class,
				foreign: "they take the lane's bandwidth and rank",
				strayed: "they have neither the lane's guarantee nor its rank"})
		}
	}
	for _, l := range a.Lanes {
		if l.Device != w.Device || t.link(l.Device) != "" {
			continue
		}
		if l.DSCP != "" {
			t.mark(l, "DSCP", l.DSCP, w.Marked, "no traffic of the lane left")
		}
		if l.PCP != "" {
			var tags []Mark
			for _, m := range w.Tagged {
				tags = append(tags, Mark{m.Lane, m.PCP, m.Packets})
			}
			t.mark(l, "PCP", l.PCP, tags, "no traffic of the lane left with a VLAN tag")
		}
	}
	if t.w.Fragments > 0 {
		t.out = append(t.out, Finding{Severity: Unknown, Device: w.Device, Part: device.PartClassifier,
			Meaning: fmt.Sprintf("%s without ports came or went in %v: those of lanes known by port belonged to "+
				"the default lane (smaller datagrams, or a lane by address, help)",
				strings.Replace(packets(t.w.Fragments), "packet", "fragment", 1), t.w.For)})
	}
	return t.out
}

// mark adds the finding about the DSCP or the PCP of the packets that a lane has sent. marks are the
// packets of all lanes, with what they have as their DSCP. none says that there are no such packets.
func (t *traffic) mark(l plan.FittedLane, what, want string, marks []Mark, none string) {
	f := Finding{Lane: l.Name, Device: l.Device, Part: device.PartClassifier}
	var right, wrong uint64
	var others []string
	for _, m := range marks {
		switch {
		case m.Lane != l.Name:
		case m.DSCP == want:
			right += m.Packets
		default:
			wrong += m.Packets
			others = append(others, packets(m.Packets)+" with "+m.DSCP)
		}
	}
	switch {
	case wrong > 0:
		f.Severity, f.Key, f.Want = Drift, "traffic", fmt.Sprintf("the lane's packets leave with %s %s", what, want)
		f.Found = fmt.Sprintf("%d of %d with another: %s", wrong, wrong+right, strings.Join(others, ", "))
		f.Meaning = fmt.Sprintf("%s of the lane left with another %s in %v: switches give them another class",
			packets(wrong), what, t.w.For)
		f.Repair = t.trafficRepair()
	case right > 0:
		f.Severity, f.Meaning = OK, fmt.Sprintf("%s of the lane left with %s %s, none with another (%v)",
			packets(right), what, want, t.w.For)
	default:
		f.Severity, f.Meaning = Unknown, fmt.Sprintf("%s in %v, so its %s (%s) was not seen", none, t.w.For,
			what, want)
	}
	t.out = append(t.out, f)
}

// link returns the type of the device's link, "" for Ethernet.
func (t *traffic) link(dev string) string {
	if t.a.State != nil {
		if d := t.a.State.Device(dev); d != nil {
			return d.LinkType
		}
	}
	return ""
}

type traffic struct {
	*check
	w   Watched
	out []Finding
}

// A place is where all packets of a lane should be, and no other packets: queues, processors or a
// class.
type place struct {
	part             device.Part
	cells            []Cell
	verb, in, noun   string
	queues           []int // nil: a class
	foreign, strayed string
	// tolerant says that TCP packets without data may be in another place. Some of them have no
	// receive queue to follow: a packet that opens a connection, and an answer for no socket or for
	// one in TIME_WAIT.
	tolerant bool
	// unshaped says that packets to unshaped networks may be there: XPS chooses the queue by their
	// socket, not the classifier.
	unshaped bool
	// unit is what an element of queues is, "" for a queue.
	unit string
	// lost is the number of packets of the lane that were counted in no place.
	lost uint64
}

// inside reports whether the packets of a cell were in the lane's place.
func (p place) inside(l plan.FittedLane, c Cell) bool {
	if p.queues == nil {
		return c.Class == l.Name
	}
	return slices.Contains(p.queues, c.Queue)
}

func (p place) name() string {
	if p.queues == nil {
		return p.noun
	}
	if len(p.queues) == 0 {
		return strings.TrimSuffix(p.noun, ":")
	}
	return p.noun + " " + device.FormatCPUList(p.queues)
}

// sends reports whether a lane has its own transmit queues.
func (c *check) sends(l plan.FittedLane) bool { return c.follows(l) || c.classed(l) || c.chosen(l) }

// leaves reports whether the card has a transmit queue for each HTB class. first is the lowest
// queue that can be one of these.
func (c *check) leaves(l plan.FittedLane) (first int, ok bool) {
	if !slices.ContainsFunc(c.a.Owned, func(r plan.Record) bool {
		q, is := r.Last.(device.Qdisc)
		return is && q.Offload && q.Dev == l.Device
	}) {
		return 0, false
	}
	if c.a.State != nil {
		if d := c.a.State.Device(l.Device); d != nil {
			return d.RxQueues, true
		}
	}
	rx, _ := c.queuesNeeded(l.Device)
	return rx, true
}

// leaf returns the transmit queue of the lane's HTB class: the one by which most of its packets
// left. The kernel does not report that queue, and it can change when classes are made or
// removed. If packets of no other lane left by it, it is the lane's.
func (t *traffic) leaf(l plan.FittedLane, first int) []int {
	most, queues := uint64(0), []int{}
	for _, c := range t.w.Sent {
		if c.Lane == l.Name && c.Queue >= first && c.Packets > most {
			most, queues = c.Packets, []int{c.Queue}
		}
	}
	return queues
}

// follows reports whether the lane's packets leave by the transmit queue that belongs to their
// receive queue (XPS by receive queue). It returns false if there are traffic classes: then the
// class decides which queues are possible, and XPS only chooses among these.
func (c *check) follows(l plan.FittedLane) bool {
	return !c.classed(l) && slices.ContainsFunc(c.a.Owned, func(r plan.Record) bool {
		f, ok := r.Last.(device.File)
		return ok && strings.HasSuffix(f.Path, "/xps_rxqs") && f.Value != device.FormatMask(nil) &&
			c.deviceOf(f) == l.Device && slices.Contains(l.Queues, c.queueOf(f))
	})
}

// classed reports whether traffic classes (mqprio) divide the transmit queues.
func (c *check) classed(l plan.FittedLane) bool {
	return slices.ContainsFunc(c.a.Owned, func(r plan.Record) bool {
		q, ok := r.Last.(device.Qdisc)
		return ok && q.Type == "mqprio" && q.Dev == l.Device
	})
}

// chosen reports whether the classifier chooses the transmit queue for all packets of the lane,
// even for packets without data or without a socket.
func (c *check) chosen(l plan.FittedLane) bool {
	return slices.ContainsFunc(c.a.Owned, func(r plan.Record) bool {
		e, ok := r.Last.(device.FilterEntry)
		return ok && (len(e.Queues) > 0 || c.classed(l)) && c.deviceOf(e) == l.Device && c.laneOf(e, r.Cause) == l.Name
	})
}

// sums has the numbers of packets of one lane's place: the lane's packets inside (target) and
// outside (strayed), and foreign packets inside.
type sums struct {
	target, strayed, bare, foreign, unread uint64
	where, who                             []string
}

func (p place) sum(l plan.FittedLane) sums {
	var s sums
	for _, c := range p.cells {
		inside, own := p.inside(l, c), c.Lane == l.Name
		switch {
		case inside && own:
			s.target += c.Packets
		case own:
			s.strayed += c.Packets
			s.bare += c.Bare
			s.where = append(s.where, p.at(c))
		case inside && c.Lane == LaneUnread:
			s.unread += c.Packets
		case inside && c.Lane == LaneUnshaped && p.unshaped:
		case inside:
			s.foreign += c.Packets
			s.who = append(s.who, fmt.Sprintf("%s of %s %s %s", packets(c.Packets), named(c.Lane), p.within(), p.at(c)))
		}
	}
	return s
}

// within returns the preposition for a message about packets in this place: they "left by" a
// queue, but are "in" it.
func (p place) within() string {
	if p.in == "by" {
		return "in"
	}
	return p.in
}

func (p place) at(c Cell) string {
	if p.queues == nil {
		return "the class of " + named(c.Class)
	}
	unit := p.unit
	if unit == "" {
		unit = "queue"
	}
	return fmt.Sprintf("%s %d", unit, c.Queue)
}

func packets(n uint64) string {
	if n == 1 {
		return "1 packet"
	}
	return fmt.Sprintf("%d packets", n)
}

// place adds the findings about one place of the lane.
func (t *traffic) place(l plan.FittedLane, p place) {
	s := p.sum(l)
	if p.lost > 0 {
		s.strayed += p.lost
		s.where = append(s.where, packets(p.lost)+" handed to no processor")
	}
	f := Finding{Lane: l.Name, Device: l.Device, Part: p.part, Key: "traffic"}
	if s.foreign > 0 {
		bad := f
		bad.Severity, bad.Want = Drift, fmt.Sprintf("no other packets %s %s", p.within(), p.name())
		bad.Found = strings.Join(s.who, ", ")
		bad.Meaning = fmt.Sprintf("%s of others %s there in %v: %s", packets(s.foreign), p.verb, t.w.For, p.foreign)
		bad.Repair = t.trafficRepair()
		t.out = append(t.out, bad)
	}
	lost := s.strayed - s.bare
	if !p.tolerant {
		lost = s.strayed
	}
	if lost > 0 {
		bad := f
		bad.Severity, bad.Want = Drift, fmt.Sprintf("the lane's packets %s %s only", p.within(), p.name())
		bad.Found = fmt.Sprintf("%d of %d elsewhere: %s", s.strayed, s.strayed+s.target, strings.Join(s.where, ", "))
		bad.Meaning = fmt.Sprintf("%s of the lane %s elsewhere in %v: %s", packets(s.strayed), p.verb, t.w.For,
			p.strayed)
		bad.Repair = t.trafficRepair()
		t.out = append(t.out, bad)
	}
	if s.foreign > 0 || lost > 0 {
		return
	}
	f.Key = ""
	switch {
	case t.w.Missed > 0:
		f.Severity, f.Meaning = Unknown, fmt.Sprintf("%s were not looked at", packets(t.w.Missed))
	case s.unread > 0:
		f.Severity, f.Meaning = Unknown, fmt.Sprintf("the headers of %s %s %s could not be read", packets(s.unread),
			p.within(), p.name())
	case s.target == 0 && s.strayed > 0:
		f.Severity = Unknown
		f.Meaning = fmt.Sprintf("%s of the lane seen in %v, none with data: a connection follows no receive "+
			"queue before it has received a packet; no other packets there (%s)",
			packets(s.strayed), t.w.For, p.name())
	case s.target == 0:
		f.Severity, f.Meaning = Unknown, fmt.Sprintf("no traffic of the lane seen in %v; no other packets there (%s)",
			t.w.For, p.name())
	default:
		f.Severity, f.Meaning = OK, fmt.Sprintf("%s of the lane %s %s %s, none elsewhere, no other packets there (%v)",
			packets(s.target), p.verb, p.in, p.name(), t.w.For)
		if s.strayed > 0 {
			f.Meaning = fmt.Sprintf("%s of the lane %s %s %s, %d without data elsewhere, no other packets there (%v)",
				packets(s.target), p.verb, p.in, p.name(), s.strayed, t.w.For)
		}
	}
	t.out = append(t.out, f)
}

func (t *traffic) trafficRepair() string {
	return "fix the drift that is named here, if any; else niclane status " + t.w.Device +
		" and the flows (ss -tn) show the sender"
}
