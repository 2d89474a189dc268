// SPDX-License-Identifier: Apache-2.0

package simcard

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/test/simcard/bed"
)

// A kind of card.
type kind struct {
	name   string
	params []string
	// queueSet is the mechanism that lanes have on it.
	queueSet string
	// ranks: lanes are classes of HTB, which counts what they send; on other
	// cards a lane has transmit queues of its own.
	ranks bool
	// rules is which part of the card's dump a pod's start changes.
	rules string
}

// Parts of the card's dump.
const (
	ruleList   = "ethtool -n sim0"
	filterList = "tc filter show dev sim0 ingress"
)

var kinds = []kind{
	{
		name: "contexts", params: []string{"queues=8", "channels=8", "contexts=8"},
		queueSet: "rss-context", ranks: true, rules: ruleList,
	},
	{
		name: "classes", params: []string{"driver=ice", "queues=8", "channels=6", "contexts=1", "pow2=1",
			"mqprio_takes_rules=1", "mqprio_resizes=1", "speed=1000"},
		queueSet: "mqprio-channel", rules: filterList,
	},
}

// policy has a class of two queue sets, a pod's each, and one that pods share.
func (k *kind) policy() *v1alpha1.LanePolicy {
	p := &v1alpha1.LanePolicy{}
	p.Name = "p"
	p.Spec.Uplink.Queues = 2
	p.Spec.Classes = []v1alpha1.Class{
		{Name: "own", Queues: 1, Sets: 2, Tuning: v1alpha1.Tuning{Poller: "interrupt"}},
		{Name: "shared", Mode: v1alpha1.Shared, Queues: 2, Members: 5, Tuning: v1alpha1.Tuning{Poller: "interrupt"}},
	}
	if k.ranks {
		p.Spec.Classes[0].Rank, p.Spec.Classes[1].Rank = 1, 3
	}
	return p
}

// A world is a card with an agent, the host and five pods' networks.
type world struct {
	*agent
	kind                       *kind
	host, first, second, plain *place // the first two for lanes of their own
	third, fourth              *place // for the shared one
	wire                       *place
}

func newWorld(t *testing.T, k *kind) *world {
	t.Helper()
	bed.Plug(t, k.params...)
	routed(t)
	w := &world{
		kind: k, host: newHost(t), wire: &place{name: bed.Peer},
		first: newPod(t, "first", 5), second: newPod(t, "second", 6), third: newPod(t, "third", 7),
		fourth: newPod(t, "fourth", 8), plain: newPod(t, "plain", 9),
	}
	w.wire.listen(t, drain)
	w.agent = newAgent(t)
	return w
}

// each is how many datagrams are sent of a flow.
const each = 5

// received sends to a port of a place from behind the wire, by IPv4 and IPv6, and
// fails unless all comes in by a lane's receive queues and is taken there.
func (w *world) received(what string, by *place, dport uint16, lane string) {
	w.t.Helper()
	var flows []bed.Flow
	for i := range 4 { // which RSS spreads over queues
		for _, way := range [][2]netip.Addr{{bed.WireAddr, by.addr4}, {bed.WireAddr6, by.addr6}} {
			flows = append(flows, bed.Flow{Src: netip.AddrPortFrom(way[0], uint16(2000+7*i)),
				Dst: netip.AddrPortFrom(way[1], dport)})
		}
	}
	w.arrived(what, by, lane, flows...)
}

// arrived is received of these flows.
func (w *world) arrived(what string, by *place, lane string, flows ...bed.Flow) {
	w.t.Helper()
	sent := each * len(flows)
	before, had := bed.Stats(w.t), by.got.Load()
	bed.Send(w.t, each, flows...)
	counts := bed.PerQueue(w.t, before, "rx_queue_%d_packets", bed.QueueCount(w.t))
	inLane, queues := uint64(0), w.queues(lane)
	for _, q := range queues {
		inLane += counts[q]
	}
	if inLane != uint64(sent) || bed.Sum(counts) != inLane {
		w.t.Errorf("%s: %d packets were received by queue as %v, want all in those of lane %s, %v", what, sent,
			counts, lane, queues)
	}
	bed.Until(w.t, what+" to be taken", func() bool { return by.got.Load() >= had+int64(sent) })
}

// left is how many packets each lane has sent so far: by its class of HTB, or by
// transmit queues of its own.
func (w *world) left() map[string]uint64 {
	w.t.Helper()
	now, err := observe.Counters(bed.Dev)
	if err != nil {
		w.t.Fatal(err)
	}
	stats := bed.Stats(w.t)
	out := map[string]uint64{}
	for _, l := range w.lanes.Lanes() {
		if (l.Class != "") != w.kind.ranks {
			w.t.Fatalf("lane %s has class %q of HTB", l.Name, l.Class)
		}
		for _, c := range now.Classes {
			if c.ID == l.Class {
				out[l.Name] += c.Packets
			}
		}
		if l.Class == "" {
			for _, q := range l.Queues {
				out[l.Name] += stats[fmt.Sprintf("tx_queue_%d_packets", q)]
			}
		}
	}
	return out
}

// dropped is how many packets the card's qdiscs have dropped so far.
func (w *world) dropped() (n int64) {
	w.t.Helper()
	var qdiscs []struct {
		Root  bool  `json:"root"`
		Drops int64 `json:"drops"`
	}
	if err := json.Unmarshal([]byte(bed.Sh(w.t, "tc -s -j qdisc show dev sim0")), &qdiscs); err != nil {
		w.t.Fatal(err)
	}
	for _, q := range qdiscs {
		if q.Root { // which counts those below it too
			n += q.Drops
		}
	}
	return n
}

// sent sends from a port of a place, by IPv4 and IPv6, and fails unless it leaves
// in a lane. Cake and fq_codel drop packets that wait for milliseconds, as they may
// where the guest gets no processor: what is dropped is told apart from what is lost.
func (w *world) sent(what string, by *place, sport uint16, lane string) {
	w.t.Helper()
	for _, six := range []bool{false, true} {
		const n = 20
		before, had, drops := w.left(), w.wire.got.Load(), w.dropped()
		by.send(w.t, sport, six, n)
		lost := int64(0)
		bed.Until(w.t, what+" to be taken", func() bool {
			if w.wire.got.Load() >= had+n {
				return true
			}
			lost = w.dropped() - drops
			return w.wire.got.Load()+lost >= had+n
		})
		// A card counts a frame when it is done with it, which may be after its arrival.
		want, in, others := uint64(n-lost), uint64(0), uint64(0)
		bed.Until(w.t, what+" to be counted", func() bool {
			in, others = 0, 0
			for name, now := range w.left() {
				if got := now - before[name]; name == lane {
					in = got
				} else {
					others = max(others, got)
				}
			}
			return in >= want || others >= n/2
		})
		// The host sends a little of its own: group reports.
		if lost > n/2 || in < want || others >= n/2 {
			w.t.Errorf("%s, IPv6 %t: of %d packets %d left in lane %s, %d in another, %d were dropped", what, six, n,
				in, lane, others, lost)
		}
	}
}

// inLanes fails unless the pods' packets are in the lanes that are named by pod;
// those of other pods, ports and the host are in none.
func (w *world) inLanes(when string, lanes map[*place]string) {
	w.t.Helper()
	for _, p := range []*place{w.first, w.second, w.third, w.fourth, w.plain, w.host} {
		lane, what := lanes[p], when+": "+p.name
		if lane == "" {
			lane = "default"
		}
		w.received(what, p, port, lane)
		w.sent(what, p, port, lane)
	}
}

// parts divides a dump of the card by what was asked for it.
func parts(dump string) map[string]string {
	out := map[string]string{}
	for part := range strings.SplitSeq("\n"+dump, "\n$ ") {
		asked, answer, _ := strings.Cut(part, "\n")
		out[asked] = answer
	}
	return out
}

// changed fails unless a part of the card is another than in a dump before, and
// nothing else is. It returns the dump of now.
func changed(t *testing.T, when, before string, what string) (now string) {
	t.Helper()
	now = bed.Dump(t)
	was, is := parts(before), parts(now)
	var got []string
	for _, part := range slices.Sorted(maps.Keys(is)) {
		if was[part] != is[part] {
			got = append(got, part)
		}
	}
	if len(was) != len(is) || !slices.Equal(got, []string{what}) {
		t.Errorf("%s changed %q, want %q alone\n%s", when, got, what, cmp.Diff(before, now))
	}
	return now
}

// same fails unless the card is as in a dump before.
func same(t *testing.T, when, before string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(bed.Dump(t), "\n")); diff != "" {
		t.Errorf("%s (-before +after):\n%s", when, diff)
	}
}

// TestPods: on a card with rules each pod's packets, and no others, come in by the
// receive queues of its lane and leave in it, from the pod's start to its end;
// also while there is no agent, and with one that is started anew.
func TestPods(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { testPods(t, &k) })
	}
}

func testPods(t *testing.T, k *kind) {
	w := newWorld(t, k)
	before := bed.Dump(t)
	w.start(k.policy())
	w.apart()
	w.received("the first pod before its start", w.first, port, "default")
	empty := bed.Dump(t)

	w.add(w.first, "own", "own-1", fmt.Sprintf(`{"c":{"ports":["%d/UDP"],"frontends":["%d/UDP"]}}`, port, front))
	one := changed(t, "the first pod's start", empty, k.rules)
	w.add(w.third, "shared", "shared-0", "")
	w.add(w.fourth, "shared", "shared-3", "")
	three := changed(t, "two pods' start in one lane", one, k.rules)
	w.add(w.second, "own", "own-0", "")
	lanes := map[*place]string{w.first: "own-1", w.second: "own-0", w.third: "shared", w.fourth: "shared"}
	w.inLanes("all pods", lanes)
	w.received("another port of a pod", w.first, other, "default")
	w.sent("another port of a pod", w.first, other, "default")
	w.arrived("the node's port of a pod", w.host, "own-1", bed.In(2000, front))
	w.holds("with all pods")
	all := bed.Dump(t)

	w.end()
	w.inLanes("without an agent", lanes)
	w.start(k.policy())
	same(t, "with an agent started anew", all)
	w.inLanes("with an agent started anew", lanes)
	w.holds("with an agent started anew")

	w.del(w.second)
	if got := w.attached(); !slices.Equal(got, []string{"first", "fourth", "third"}) {
		t.Errorf("in lanes: %q", got)
	}
	same(t, "at a pod's end", three)
	delete(lanes, w.second)
	w.inLanes("after a pod's end", lanes)

	// Of an end and a start while there is no agent nobody tells it: without
	// niclane-cni pods start then, outside of their lanes.
	w.end()
	w.given.Forget(w.third.name)
	w.run(w.second, "own", "own-0")
	w.start(k.policy())
	w.sweep()
	changed(t, "what nobody told of", three, k.rules)
	delete(lanes, w.third)
	lanes[w.second] = "own-0"
	w.inLanes("after what nobody told of", lanes)
	w.holds("after what nobody told of")

	w.robbed()
	w.inLanes("with what was taken away put back", lanes)

	for _, p := range []*place{w.first, w.second, w.fourth} {
		w.del(p)
	}
	same(t, "after all pods' ends", empty)
	w.follow(nil)
	same(t, "without the policy", before)
}

// robbed has somebody take the pods' rules away, which is found and put right.
func (w *world) robbed() {
	w.t.Helper()
	if w.kind.rules == ruleList {
		for line := range strings.Lines(bed.Sh(w.t, ruleList)) {
			if id, ok := strings.CutPrefix(strings.TrimSpace(line), "Filter: "); ok {
				bed.Sh(w.t, "ethtool -N sim0 delete "+id)
			}
		}
	} else {
		bed.Sh(w.t, "tc filter del dev sim0 ingress")
	}
	w.received("a pod whose rules are gone", w.first, port, "default")
	if views, err := w.applier.Look(w.t.Context()); err != nil || len(views) != 1 || len(views[0].Drifts) == 0 {
		w.t.Errorf("that rules are gone is not seen: %+v, %v", views, err)
	}
	if _, err := w.applier.Repair(w.t.Context(), w.applier.Config, func(string) bool { return false }); err != nil {
		w.t.Error(err)
	}
	w.holds("with what was taken away put back")
}

// apart fails unless each lane has receive queues of its own, made as the card's
// kind has them.
func (w *world) apart() {
	w.t.Helper()
	for _, c := range w.lanes.Now().Classes {
		if got := c.Mechanisms["queue-set"]; got != w.kind.queueSet {
			w.t.Fatalf("the queues of class %s are made as %s, want %s", c.Name, got, w.kind.queueSet)
		}
	}
	var all []int
	for lane, n := range map[string]int{"default": 2, "own-0": 1, "own-1": 1, "shared": 2} {
		q := w.queues(lane)
		if len(q) != n {
			w.t.Fatalf("lane %s has queues %v, want %d", lane, q, n)
		}
		all = append(all, q...)
	}
	if slices.Sort(all); len(slices.Compact(all)) != 6 {
		w.t.Fatalf("lanes have queues in common: %+v", w.lanes.Lanes())
	}
}
