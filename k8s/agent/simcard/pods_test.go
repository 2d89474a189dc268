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

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/test/simcard/bed"
)

// A kind describes a kind of card that the simulated card can be.
type kind struct {
	name   string
	params []string
	// queueSet is the mechanism of the lanes' queue sets on this card.
	queueSet string
	// ranks says that each lane has an HTB class or a share by departure times, by which is counted what
	// the lane sends. If it is false,
	// each lane has its own transmit queues.
	ranks bool
	// rules is the command whose output in the card's dump changes when a pod starts.
	rules string
}

// Commands whose output is a part of the card's dump.
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

// policy returns a policy with an exclusive class of two queue sets, and a shared class for five
// pods.
func (k *kind) policy() *v1alpha1.LanePolicy {
	p := &v1alpha1.LanePolicy{}
	p.Name = "p"
	p.Spec.Uplink.Queues = 2
	p.Spec.Classes = []v1alpha1.Class{
		{Name: "own", OfferedAs: v1alpha1.OfferedAsResource, Queues: 1, Capacity: 2,
			Tuning: v1alpha1.Tuning{Poller: "Interrupt"}},
		{Name: "shared", OfferedAs: v1alpha1.OfferedAsResource, Mode: v1alpha1.Shared, Queues: 2, Capacity: 5,
			Tuning: v1alpha1.Tuning{Poller: "Interrupt"}},
	}
	if k.ranks {
		p.Spec.Classes[0].Rank, p.Spec.Classes[1].Rank = 1, 3
	}
	return p
}

// A world is a simulated card with an agent, the host, and network namespaces of five pods.
type world struct {
	*agent
	kind                       *kind
	host, first, second, plain *place // first and second have exclusive lanes, plain has no lane
	third, fourth              *place // pods in the shared lane
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

// each is the number of datagrams that a test sends for each flow.
const each = 5

// received sends datagrams over the wire to a port of a place, by IPv4 and IPv6. It fails the test
// if they do not all take the lane's receive queues and reach the place's socket.
func (w *world) received(what string, by *place, dport uint16, lane string) {
	w.t.Helper()
	var flows []bed.Flow
	for i := range 4 { // several source ports, so that RSS uses several queues
		for _, way := range [][2]netip.Addr{{bed.WireAddr, by.addr4}, {bed.WireAddr6, by.addr6}} {
			flows = append(flows, bed.Flow{Src: netip.AddrPortFrom(way[0], uint16(2000+7*i)),
				Dst: netip.AddrPortFrom(way[1], dport)})
		}
	}
	w.arrived(what, by, lane, flows...)
}

// arrived does the same as received, for the given flows.
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

// left returns how many packets each lane has sent so far. It reads the counters of the lane's HTB
// class, of the classifier if lanes share the link by departure times, or of its transmit queues.
func (w *world) left() map[string]uint64 {
	w.t.Helper()
	now, err := observe.Counters(bed.Dev)
	if err != nil {
		w.t.Fatal(err)
	}
	stats := bed.Stats(w.t)
	t, err := tc.Open()
	if err != nil {
		w.t.Fatal(err)
	}
	defer t.Close()
	classifier := bpf.New(t)
	defer classifier.Close()
	out := map[string]uint64{}
	for _, l := range w.lanes.Lanes() {
		if (l.Class != "" || l.Departs) != w.kind.ranks {
			w.t.Fatalf("lane %s has class %q of HTB, departure times %v", l.Name, l.Class, l.Departs)
		}
		if l.Departs {
			sent, err := classifier.SentCounters(bed.Dev, []int{l.Context})
			if err != nil {
				w.t.Fatal(err)
			}
			for _, n := range sent {
				out[l.Name] += n.Packets
			}
			continue
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

// dropped returns how many packets the card's qdiscs have dropped so far.
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
		if q.Root { // the root's counters include those of the qdiscs below it
			n += q.Drops
		}
	}
	return n
}

// sent sends packets from a port of a place, by IPv4 and IPv6. It fails the test if they do not
// leave in the lane. cake and fq_codel drop packets that have waited for milliseconds, which
// happens if the guest gets no CPU time. So up to half of the packets may be dropped.
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
		// The card counts a frame when it completes it. This may be after the frame has arrived.
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
		// A few packets may be in another lane: the host sends multicast group reports.
		if lost > n/2 || in < want || others >= n/2 {
			w.t.Errorf("%s, IPv6 %t: of %d packets %d left in lane %s, %d in another, %d were dropped", what, six, n,
				in, lane, others, lost)
		}
	}
}

// inLanes sends packets to and from each pod and the host. It fails the test if a pod's packets do
// not take its lane in the map lanes. Packets of the others must take the default lane.
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

// parts splits a dump of the card into the outputs of its commands, by command.
func parts(dump string) map[string]string {
	out := map[string]string{}
	for part := range strings.SplitSeq("\n"+dump, "\n$ ") {
		asked, answer, _ := strings.Cut(part, "\n")
		out[asked] = answer
	}
	return out
}

// changed compares the card's dump with the dump before. It fails the test unless the part what has
// changed, and no other part. It returns the new dump.
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

// same fails the test if the card's dump differs from the dump before.
func same(t *testing.T, when, before string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(bed.Dump(t), "\n")); diff != "" {
		t.Errorf("%s (-before +after):\n%s", when, diff)
	}
}

// TestPods checks, on cards with rules, that each pod's packets are received and sent in the pod's
// lane, and no other packets. This must be so from the pod's start to its end, also without an
// agent and after its restart.
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

	w.add(w.first, "own", "own-1", fmt.Sprintf(`{"c":{"ports":["%d/UDP"]}}`, port))
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

	// While the agent is down, one pod ends and another one starts. The test has no niclane-cni, so
	// the new pod starts outside its lane. Sweep corrects both.
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

// robbed removes the pods' rules with ethtool or tc, and checks that the agent finds and repairs
// this.
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

// apart fails the test if two lanes have a receive queue in common, or if the queue sets were made
// by another mechanism than that of the card's kind.
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
