// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// This file shares the link by departure times: the classifier gives each packet the time at which
// it may leave, and a fq for each transmit queue holds it until then. There is no queue, and no
// lock, for the whole link.

// firstFQ is the major handle number of the fq of the first transmit queue (see firstLeaf).
const firstFQ = 0x3100

// FQHandle returns the handle of the fq of a transmit queue, "3100:" for queue 0.
func FQHandle(queue int) string { return fmt.Sprintf("%x:", firstFQ+queue) }

// fqLimit is the number of packets that can wait in one fq. It is so high that the classifier,
// which knows how much waits for the link, drops first: a packet that fq drops has taken its time.
const fqLimit = 1 << 18

// The horizon is the time of 10,000 full frames, as many as fq and fq_codel hold by themselves, but at
// most 50 ms, unless that is less than 256 frames. ECN begins at a tenth of it.
const (
	horizonFrames  = 10_000
	leastFrames    = 256
	mostHorizon    = 50_000_000 // ns
	markOfHorizon  = 10
	ceilingBurstNs = 100_000 // 1 % of 10 ms
)

// Of what the lanes are not guaranteed, the default lane always has a tenth if the file gives it no
// guarantee, and its flows have another tenth: each a 256th of that (FLOWS in depart.h). So a lane
// that goes first cannot shut out the host, and bulk traffic cannot make a login wait. The flows of a
// shared lane have that too.
const (
	sparePart = 10
	spareSets = 256
)

// departRate returns the rate of all lanes together, 1 % below the link's, so that packets wait here and
// not in the card. The classifier counts preamble, frame check and gap for each segment (WIRE in depart.h).
func departRate(link uint64) uint64 { return link / 100 * 99 }

// departs reports whether the lanes share the link by departure times.
func (f *fit) departs(lanes []*deviceLane) bool {
	return f.uses(device.PartBandwidth, ByEDT) && shaped(lanes)
}

// noDepartures returns the reason why the planner does not choose departure times by itself although
// they are possible, "" if it does.
func (f *fit) noDepartures() string {
	root := device.Qdisc{Dev: f.dev.Name, Parent: "root"}
	if r, ours := f.owned[root.Key()]; ours {
		if last, ok := r.Last.(device.Qdisc); ok && last.Type == "htb" && !last.Offload {
			return "these lanes were applied with htb: niclane rollback and apply again change that"
		}
	}
	return ""
}

// gsoTime is the longest time, in ns, that a packet which the stack gives the card whole may take the
// link. gsoHeaders are the bytes of it that a socket leaves for headers (net/core/sock.c:
// sk_dst_gso_max_size; MAX_TCP_HEADER).
const (
	gsoTime    = 100_000
	gsoHeaders = 320
)

// wantGSOLimit bounds the packets that the stack gives the card whole. The card sends such a packet
// without a pause, and 64 KiB take half a millisecond at 1 Gbit/s.
func (f *fit) wantGSOLimit() {
	if f.dev.GSO == nil {
		return
	}
	l := f.base(*f.dev.GSO).(device.GSOLimit)
	most := uint32(max(min(f.link/8*gsoTime/1e9, 1<<30), 2*uint64(f.dev.MTU+14)) + gsoHeaders)
	if most >= l.Max {
		return
	}
	l.Max = most
	if l.MaxIPv4 != 0 {
		l.MaxIPv4 = min(l.MaxIPv4, most)
	}
	f.want(l, device.PartBandwidth, "globals.link-rate", "no packet takes the link for longer than 100 µs, or than "+
		"two frames; connections that exist already keep their limit")
}

// wantFQ gives each transmit queue a fq.
func (f *fit) wantFQ(total int) {
	// Some drivers add transmit queues for XDP, on which nothing else is sent.
	_, more := f.unpaired(total)
	n := total + len(more)
	f.wantRoot(device.Qdisc{Dev: f.dev.Name, Parent: "root", Type: "mq", Handle: rootHandle},
		"queues of their own, which hold packets until they may leave; none for the whole link")
	for q := range n {
		f.want(device.Qdisc{Dev: f.dev.Name, Parent: fmt.Sprintf("%s%x", rootHandle, q+1), Type: "fq",
			Handle: FQHandle(q), Limit: fqLimit}, device.PartBandwidth, "lanes",
			fmt.Sprintf("transmit queue %d: holds packets until they may leave", q))
	}
}

// wantShares tells the classifier the lanes' shares of the link.
func (f *fit) wantShares(filter string, lanes []*deviceLane) {
	root := departRate(f.link)
	rest := root
	var used []int
	peers := map[int]int{}
	for _, l := range lanes {
		peers[rank(l)]++
		rest -= min(rest, f.guarantee(l))
		used = append(used, rank(l))
	}
	slices.Sort(used)
	spare := rest / sparePart
	for _, l := range lanes {
		s := device.FilterShare{Filter: filter, Lane: l.number, Guarantee: f.guarantee(l), Rank: rank(l),
			Lanes: peers[rank(l)]}
		if l.isDefault && s.Guarantee == 0 {
			s.Guarantee = spare
		}
		if s.Guarantee > 0 {
			s.GuaranteeBurst = f.burst(s.Guarantee)
		}
		s.Part = f.guarantee(l) + (rest-2*spare)/uint64(s.Lanes)
		if s.Part < root/1000 {
			s.Part = 0 // negligible, and depart.h multiplies its time with what the whole link sends
		}
		if c := f.ceiling(l); c > 0 && c < root {
			s.Ceiling = c
			s.CeilingBurst = max(uint32(c/8*ceilingBurstNs/1e9), 2*uint32(f.dev.MTU+14))
		}
		switch {
		case l.isDefault:
			s.Fair, s.Flow = device.FairFlows, spare/spareSets
		case l.Mode == intent.Shared:
			s.Fair, s.Flow = device.FairAddresses, spare/spareSets
		}
		f.want(s, device.PartBandwidth, l.Path, fmt.Sprintf("lane %s: %s", l.Name, s.Brief()))
	}
	frame := uint64(f.dev.MTU+14) * 8e9 / root
	horizon := max(min(horizonFrames*frame, mostHorizon), leastFrames*frame)
	f.want(device.FilterLink{Filter: filter, Rate: root, Horizon: horizon, Mark: horizon / markOfHorizon,
		Ranks: slices.Compact(used)}, device.PartBandwidth, "globals.link-rate",
		fmt.Sprintf("99 %% of the link's %s, so that queues build here", device.RateText(f.link)))
}
