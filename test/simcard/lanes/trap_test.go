// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// TestDCBDrivers tests drivers that are known to take mode channel for DCB. The planner must not
// choose classes for them. If classes are forced, niclane must notice the error when it reads the
// qdisc back.
func TestDCBDrivers(t *testing.T) {
	for _, driver := range []string{"bnxt_en", "ixgbe"} {
		t.Run(driver, func(t *testing.T) {
			h := plug(t, twoLanes, "driver="+driver, "queues=8", "channels=8")
			bed.Param(t, "channel_is_dcb", "1")
			before := bed.Dump(t)
			h.applied("ethtool -N sim0 flow-type udp4 dst-port 6379")
			arrive(t, []int{2, 3}, flowsTo(6379, 4)...)
			h.restored(before)
			h.write(strings.Replace(twoLanes, "  queues: 2\nlanes",
				"  queues: 2\n  force: {queue-set: mqprio-channel}\nlanes", 1))
			if code, out := h.run("apply", h.lanes); code != 1 || !strings.Contains(out, "DCB") {
				t.Errorf("forced: ended with %d, and does not say why:\n%s", code, out)
			}
			same(t, "after the refusal", before)
		})
	}
}

// TestFlowerOrRules tests a card that, like i40e, has either flower filters or ntuple rules at one
// time. If it has a foreign rule, the lanes must be made with rules. If the lanes are made with
// filters, the card refuses rules until the filters are gone.
func TestFlowerOrRules(t *testing.T) {
	const lanes = "globals: {dev: sim0, queues: 2}\nlanes: {web: {queues: 2, protocol: udp, ports: [80]}}\n"
	h := plug(t, lanes, "driver=i40e", "queues=8", "channels=4", "contexts=1", "pow2=1", "no_min_rate=1",
		"flower_or_rules=1")
	rule := "ethtool -N sim0 flow-type udp4 dst-port 9 action 1 loc 3"
	before := bed.Dump(t)
	h.applied("skip_sw hw_tc 1")
	arrive(t, []int{2, 3}, flowsTo(80, 4)...)
	bed.Refused(t, rule)
	h.niclane(0, "verify", "--for", "0")
	h.restored(before)

	bed.Sh(t, rule)
	before = bed.Dump(t)
	if plan := h.applied("ethtool -N sim0 flow-type udp4 dst-port 80"); strings.Contains(plan, "hw_tc") {
		t.Errorf("filters beside somebody's rule:\n%s", plan)
	}
	arrive(t, []int{2, 3}, flowsTo(80, 4)...)
	arrive(t, []int{1}, bed.In(5, 9))
	h.restored(before)
}

// TestTableFollowsChannels tests a card whose RSS tables change their size with the channels. mlx5
// does this, too, and does not resize a table that a user has set.
func TestTableFollowsChannels(t *testing.T) {
	h := plug(t, twoLanes, "driver=mlx5_core", "queues=8", "channels=2", "rx_classes=0", "shaper=0", "indir_follows=1")
	before := bed.Dump(t)
	h.applied("ethtool -L sim0 combined 5", "context new")
	arrive(t, []int{2, 3}, flowsTo(6379, 8)...)
	arrive(t, []int{4}, bed.In6(77, 443))
	arrive(t, []int{0, 1}, flowsTo(7, 8)...)
	h.niclane(0, "verify", "--for", "0")
	h.restored(before)

	bed.Sh(t, "ethtool -X sim0 weight 1 3")
	before = bed.Dump(t)
	bed.Says(t, h.niclane(1, "apply", h.lanes), "ethtool -X sim0 default resets it")
	same(t, "after the refusal", before)
	bed.Sh(t, "ethtool -X sim0 default")
}
