// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// shareCosts returns what a bandwidth mechanism costs, "" if no cost is known or measured. The
// figures are those of docs/results/2026-11-mechanisms.md, "On a quiet link".
func shareCosts(mechanism string) string {
	switch mechanism {
	case ByHTB:
		return "one lock for all queues; on a quiet link memcached answered 0.78 times the requests, at 1.3 times " +
			"the processor time (docs/results/2026-11-mechanisms.md)"
	case ByEDT:
		return "no lock: a few atomic additions and a fq for each packet; below 5 Gbit/s, senders work in smaller " +
			"pieces"
	case ByHTBOffload:
		return "one transmit queue with a lock for each lane"
	case ByMqTBF:
		return "a lock for each queue, and a flow gets no more than its queue's share"
	case ByMqprioRate, ByNetShaper, ByTxMaxrate:
		return "no processor time: the card does it"
	}
	return ""
}

// noteShare adds a note on what the lanes' shares of the link cost on this device. If no lane asks
// for a share, the note says what asking would cost.
func (f *fit) noteShare(lanes []*deviceLane) {
	if len(lanes) < 2 {
		return
	}
	if name := f.choice[device.PartBandwidth].Mechanism; shaped(lanes) {
		if cost := shareCosts(name); cost != "" {
			f.notef("%s divides the link: %s", name, cost)
		}
		return
	}
	kinds := map[string][]string{}
	var names []string
	for _, kind := range []string{givesGuarantee, givesCeiling, givesRank} {
		name := f.wouldShare(kind)
		if shareCosts(name) == "" {
			continue
		}
		if kinds[name] == nil {
			names = append(names, name)
		}
		kinds[name] = append(kinds[name], kind)
	}
	var costs []string
	for _, name := range names {
		costs = append(costs, strings.Join(kinds[name], ", ")+" by "+name+": "+shareCosts(name))
	}
	if len(costs) > 0 {
		f.notef("no lane asks for a share of the link, so nothing is shaped; what asking costs: %s",
			strings.Join(costs, "; "))
	}
}

// wouldShare returns the bandwidth mechanism that the device would have if all lanes asked for
// this kind of bandwidth, "" if planning would fail.
func (f *fit) wouldShare(kind string) string {
	in := *f.in
	in.Lanes = slices.Clone(in.Lanes)
	for i := range in.Lanes {
		switch l := &in.Lanes[i]; kind {
		case givesGuarantee:
			l.Bandwidth.Guarantee = intent.Rate{Permille: max(500/len(in.Lanes), 1)}
		case givesCeiling:
			l.Bandwidth.Ceiling = intent.Rate{Permille: 500}
		case givesRank:
			l.Rank = 1
		}
	}
	as := &fit{in: &in, st: f.st, dev: f.dev, owned: f.owned, present: f.present, link: f.link, links: f.links}
	if as.place(); len(as.errs) > 0 {
		return ""
	}
	return as.choice[device.PartBandwidth].Mechanism
}
