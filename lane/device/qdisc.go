// SPDX-License-Identifier: Apache-2.0

package device

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Qdisc is a queueing discipline. It has option fields only for the types that niclane writes.
// The kernel's default qdisc (handle 0) counts as absent.
type Qdisc struct {
	Dev string `json:"dev"`
	// Parent is "root", "clsact", or a class "1:10".
	Parent string `json:"parent"`
	Type   string `json:"type"` // "htb", "clsact", "pfifo", ...
	// Handle is the major number, such as "1:". The plan chooses it; the kernel never does.
	Handle string `json:"handle"`
	// DefaultClass is htb's default class, by minor number. It takes the packets that no filter or
	// priority gives to another class.
	DefaultClass uint16 `json:"defaultClass,omitempty"`
	// Offload: the card implements the htb (tc-htb(8), "offload").
	Offload bool `json:"offload,omitempty"`
	// Limit is in packets for pfifo leaves and fq, in bytes for tbf. For fq, it is the limit of a single
	// flow, too.
	Limit uint32 `json:"limit,omitempty"`
	// Rate (bit/s) and Burst (bytes) are those of tbf. For cake, Rate is its bandwidth limit.
	Rate  uint64 `json:"rate,omitempty"`
	Burst uint32 `json:"burst,omitempty"`
	// Cake has the settings of a cake in the words of tc-cake(8): its diffserv
	// mode, its flow mode, and whether it splits large packets.
	Cake string `json:"cake,omitempty"`
	// FQ has the settings of a fq, in the words of tc-fq(8), by which it drops, delays or marks packets.
	// It is "" for those that niclane's have: the kernel's defaults, but no pacing.
	FQ string `json:"fq,omitempty"`
	// Map and Queues are mqprio's, as in tc-mqprio(8): the traffic class of
	// each of the 16 priorities ("0 0 1 ..."), and the transmit queues of each
	// class ("4@0 2@4": COUNT@FIRST). Adding or removing an mqprio clears all
	// transmit packet steering of the device (net/core/dev.c:
	// netdev_set_num_tc).
	Map    string `json:"map,omitempty"`
	Queues string `json:"queues,omitempty"`
	// Mode is the mode of an mqprio that the card implements (hw 1): ModeChannel or ModeDCB. It is
	// "" for a software mqprio. MinRates and MaxRates are the rates of its classes in bit/s ("0
	// 1000000000"), "" for none.
	Mode     string `json:"mode,omitempty"`
	MinRates string `json:"minRates,omitempty"`
	MaxRates string `json:"maxRates,omitempty"`
}

// CakeByHost makes cake share fairly among source addresses, and among the flows of each address.
// It ignores the packets' DSCP. It does not split large packets, so the card gets them as without
// cake.
const CakeByHost = "besteffort dual-srchost no-split-gso"

// Modes of an mqprio in the card (tc-mqprio(8)).
const (
	ModeChannel = "channel"
	ModeDCB     = "dcb"
)

// Kind implements Object.
func (Qdisc) Kind() string { return "qdisc" }

// Key implements Object.
func (q Qdisc) Key() string { return "qdisc/" + q.Dev + "/" + q.Parent }

// Brief implements Object.
func (q Qdisc) Brief() string {
	if q.Type == "mqprio" {
		text := fmt.Sprintf("mqprio %s queues %s", q.Handle, q.Queues)
		if q.Mode != "" {
			text += " hw " + q.hardware()
		}
		return text
	}
	return q.Named() + " " + q.Handle
}

func (q Qdisc) commands(c Change) []string {
	verb, where := c.verb("add", "replace", "del"), "parent "+q.Parent
	if q.Parent == "root" {
		where = "root"
	}
	if q.Type == "clsact" {
		return one(fmt.Sprintf("tc qdisc %s dev %s clsact", verb, q.Dev))
	}
	if c.New == nil {
		return one(fmt.Sprintf("tc qdisc del dev %s %s", q.Dev, where))
	}
	line := fmt.Sprintf("tc qdisc %s dev %s %s handle %s %s", verb, q.Dev, where, q.Handle, q.Type)
	if q.Type == "mqprio" {
		line += fmt.Sprintf(" num_tc %d map %s queues %s hw %s", len(strings.Fields(q.Queues)), q.Map, q.Queues,
			q.hardware())
	}
	if q.DefaultClass != 0 {
		line += fmt.Sprintf(" default %x", q.DefaultClass)
	}
	if q.Offload {
		line += " offload"
	}
	if q.Cake != "" {
		line += " " + q.Cake
	}
	if q.Rate != 0 {
		line += fmt.Sprintf(" rate %dbit burst %d", q.Rate, q.Burst)
	}
	if q.Limit != 0 {
		line += fmt.Sprintf(" limit %d", q.Limit)
	}
	if q.Type == "fq" {
		line += fmt.Sprintf(" flow_limit %d %s", q.Limit, cmp.Or(q.FQ, "nopacing"))
	}
	return one(line)
}

func (q Qdisc) standsOn() []string {
	if q.Parent == "root" || q.Parent == "clsact" {
		return nil
	}
	return []string{Class{Dev: q.Dev, ID: q.Parent}.Key(), Qdisc{Dev: q.Dev, Parent: "root"}.Key()}
}

func (q Qdisc) equal(o Object) bool {
	b, ok := o.(Qdisc)
	return ok && q.asKept() == b.asKept()
}

func (s *State) putQdisc(q Qdisc, next Object) {
	if q.Type == "mqprio" {
		s.clearXPS(q.Dev)
	}
	d := s.Device(q.Dev)
	if d == nil {
		return
	}
	if q.Type == "mqprio" {
		d.classTable(q, next != nil)
	}
	replaceBy(&d.Qdiscs, q, next, func(next Object) QdiscState { return QdiscState{Qdisc: next.(Qdisc)} })
}

func (s *State) qdiscs(yield func(Object)) {
	for _, d := range s.Devices {
		for _, q := range d.Qdiscs {
			if q.Handle != "0:" {
				yield(q.Qdisc)
			}
		}
	}
}

// asKept returns q as the kernel stores it: the rate in bytes/s and the burst in ticks of 64 ns.
func (q Qdisc) asKept() Qdisc {
	q.Rate /= 8
	q.Burst = BurstTicks(q.Rate, q.Burst)
	return q
}

// classTable changes the default RSS table when traffic classes are made (there) or removed, on
// cards whose classes have receive queues. While classes exist, the table is the default class's
// and cannot be set (ice_ethtool.c: ice_get_rxfh).
func (d *Device) classTable(q Qdisc, there bool) {
	limits, _ := FindClassLimits(d.Driver)
	for i, t := range d.RSS {
		if t.Context == 0 && q.Mode == ModeChannel && limits.Receive {
			d.RSS = slices.Clone(d.RSS)
			d.RSS[i] = t.OfClasses(q, d.RxQueues, there)
		}
	}
}

// hardware returns the arguments after mqprio's "hw".
func (q Qdisc) hardware() string {
	if q.Mode == "" {
		return "0"
	}
	text := "1 mode " + q.Mode
	if q.MinRates+q.MaxRates != "" {
		text += " shaper bw_rlimit"
	}
	for _, r := range []struct{ name, rates string }{{"min_rate", q.MinRates}, {"max_rate", q.MaxRates}} {
		if r.rates != "" {
			text += " " + r.name + " " + strings.Join(strings.Fields(r.rates), "bit ") + "bit"
		}
	}
	return text
}

// Replaces reports whether next takes the place of the qdisc old: all that is attached to old goes
// with it.
func Replaces(old, next Object) bool {
	a, is := old.(Qdisc)
	b, both := next.(Qdisc)
	return is && both && a.Key() == b.Key() && (a.Type != b.Type || a.Handle != b.Handle)
}

// PlainRoot reports whether q is a root qdisc mq with the kernel's default qdisc at each transmit
// queue, as the kernel makes it for a card, but with a handle: "tc qdisc replace dev DEV root mq"
// made it. It holds no settings, so niclane replaces it, and rollback makes it again.
func (d *Device) PlainRoot(q Qdisc) bool {
	if q.Parent != "root" || q.Type != "mq" {
		return false
	}
	return !slices.ContainsFunc(d.Qdiscs, func(leaf QdiscState) bool {
		return leaf.Handle != "0:" && strings.HasPrefix(leaf.Parent, q.Handle)
	})
}

// Named returns the type, followed by "offload" if the card implements the qdisc.
func (q Qdisc) Named() string {
	if q.Offload {
		return q.Type + " offload"
	}
	return q.Type
}
