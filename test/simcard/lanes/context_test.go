// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// twoLanes is a lanes file with two lanes. The default lane has the card's first queues.
const twoLanes = `
globals:
  dev: sim0
  queues: 2
lanes:
  redis:
    queues: 2
    protocol: udp
    ports: [6379]
  web:
    queues: 1
    protocol: udp
    ports: [80, 443]
    addrs: [10.9.0.1, "fd09::1"]
`

// TestContexts checks the plan on a card with contexts. It must add channels, pin the default
// table, and make a context and rules for each lane. Foreign rules and contexts must stay.
func TestContexts(t *testing.T) {
	h := plug(t, twoLanes, "queues=8", "channels=2", "contexts=4", "rules=16")
	bed.Sh(t, "ethtool -N sim0 flow-type udp4 dst-port 9 action 1 loc 3")
	before := bed.Dump(t)
	h.applied("ethtool -X sim0 context new start 2 equal 2", "ethtool -L sim0 combined 5",
		"flow-type udp6 dst-ip fd09::1 dst-port 443")
	arrive(t, []int{2, 3}, flowsTo(6379, 8)...)
	arrive(t, []int{4}, flowsTo(80, 3)...)
	arrive(t, []int{4}, bed.In6(77, 443))
	arrive(t, []int{0, 1}, append(flowsTo(7, 8), bed.In6(78, 6380))...)
	arrive(t, []int{1}, bed.In(5, 9))

	// Now one lane is removed, and the other gets its queues. Then a new lane is added.
	h.write(strings.Replace(twoLanes, "  redis:\n    queues: 2\n    protocol: udp\n    ports: [6379]\n", "", 1))
	h.niclane(0, "apply", h.lanes)
	h.niclane(0, "plan", h.lanes)
	arrive(t, []int{2}, flowsTo(80, 3)...)
	arrive(t, []int{0, 1}, flowsTo(6379, 8)...)
	h.write(twoLanes)
	h.niclane(0, "apply", h.lanes)
	h.niclane(0, "plan", h.lanes)
	arrive(t, []int{2, 3}, flowsTo(6379, 8)...)
	arrive(t, []int{4}, flowsTo(443, 3)...)
	h.restored(before)
}

// TestContextsVerified checks that verify proves the lanes from the card's queue counters.
func TestContextsVerified(t *testing.T) {
	h := plug(t, twoLanes, "queues=8", "channels=8")
	before := bed.Dump(t)
	h.applied("context new")
	h.niclane(0, "verify", "--for", "100ms")
	bed.Sh(t, "ethtool -X sim0 equal 8")
	bed.Says(t, h.niclane(3, "verify", "--for", "0"), "rss/sim0/0")
	h.niclane(0, "apply", h.lanes)
	h.niclane(0, "verify", "--for", "0")
	h.restored(before)
}

// TestSmallCards checks cards with limits that niclane cannot know in advance. The error must give
// the reason, and no change may remain.
func TestSmallCards(t *testing.T) {
	for _, c := range []struct{ name, param, want string }{
		{"contexts", "contexts=2", "RSS contexts beside the default"},
		{"IPv6", "rules_v4_only=1", "the card cannot match these fields"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := plug(t, twoLanes, "queues=8", "channels=8", c.param)
			before := bed.Dump(t)
			bed.Says(t, h.niclane(1, "apply", h.lanes), c.want)
			same(t, "after the refusal", before)
		})
	}
}

// TestAnyLocation tests a card that, like bnxt and sfc, chooses the locations of rules itself.
func TestAnyLocation(t *testing.T) {
	h := plug(t, twoLanes, "queues=8", "channels=4", "any_location=1")
	before := bed.Dump(t)
	h.applied("context new")
	arrive(t, []int{2, 3}, flowsTo(6379, 4)...)
	arrive(t, []int{4}, bed.In6(77, 443))
	h.restored(before)
}

// TestForeignRule adds a foreign rule that leads to a lane's context. The context then cannot be
// removed, and the error must name the rule. rollback --force must remove the rule with the lanes.
func TestForeignRule(t *testing.T) {
	h := plug(t, twoLanes, "queues=8", "channels=8", "contexts=4", "rules=16")
	before := bed.Dump(t)
	h.applied("context new")
	bed.Sh(t, "ethtool -N sim0 flow-type udp4 dst-port 9 context 1 loc 12")
	bed.Says(t, h.niclane(1, "rollback"), "rule/sim0/", "port=9", "--force")
	bed.Sh(t, "ethtool -n sim0 rule 12")
	bed.Says(t, h.niclane(0, "rollback", "--force"), "port=9")
	same(t, "after rollback --force", before)
}
