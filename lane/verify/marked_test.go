// SPDX-License-Identifier: Apache-2.0

package verify_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/verify"
)

// TestMarks checks the findings about the DSCP of lane redis, which is ef. Lane web has none.
func TestMarks(t *testing.T) {
	a, _ := emulated(t, "dscp")
	marks := func(ms ...verify.Mark) string {
		return said(a, verify.Watched{Device: "lane0", Marked: ms}, "redis", device.PartClassifier)
	}
	wantText(t, `
ok       lane redis on lane0, classifier: 7 packets of the lane left with DSCP ef, none with another (2s)
`, marks(verify.Mark{Lane: "redis", DSCP: "ef", Packets: 7}, verify.Mark{DSCP: "cs0", Packets: 9}))
	wantText(t, `
drift    lane redis on lane0, classifier: traffic
         want     the lane's packets leave with DSCP ef
         found    3 of 10 with another: 1 packet with cs0, 2 packets with 63
         means    3 packets of the lane left with another DSCP in 2s: switches give them another class
         repair   fix the drift that is named here, if any; else niclane status lane0 and the flows (ss -tn) show the sender
`, marks(verify.Mark{Lane: "redis", DSCP: "cs0", Packets: 1}, verify.Mark{Lane: "redis", DSCP: "ef", Packets: 7},
		verify.Mark{Lane: "redis", DSCP: "63", Packets: 2}))
	wantText(t, `
unknown  lane redis on lane0, classifier: no traffic of the lane left in 2s, so its DSCP (ef) was not seen
`, marks())
	if got := said(a, verify.Watched{Device: "lane0"}, "web", device.PartClassifier); got != "" {
		t.Errorf("of a lane without a DSCP: %s", got)
	}
}

// TestTags checks the findings about the PCP of lane voice, which is 5. It has a DSCP too.
func TestTags(t *testing.T) {
	a, _ := emulated(t, "pcp")
	tags := func(ts ...verify.Tag) string {
		return said(a, verify.Watched{Device: "lane0", Marked: []verify.Mark{{Lane: "voice", DSCP: "ef", Packets: 12}},
			Tagged: ts}, "voice", device.PartClassifier)
	}
	const dscp = `ok       lane voice on lane0, classifier: 12 packets of the lane left with DSCP ef, none with another (2s)
`
	wantText(t, "\n"+dscp+`ok       lane voice on lane0, classifier: 7 packets of the lane left with PCP 5, none with another (2s)
`, tags(verify.Tag{Lane: "voice", PCP: "5", Packets: 7}, verify.Tag{PCP: "0", Packets: 9}))
	wantText(t, `
drift    lane voice on lane0, classifier: traffic
         want     the lane's packets leave with PCP 5
         found    2 of 9 with another: 2 packets with 3
         means    2 packets of the lane left with another PCP in 2s: switches give them another class
         repair   fix the drift that is named here, if any; else niclane status lane0 and the flows (ss -tn) show the sender
`+dscp, tags(verify.Tag{Lane: "voice", PCP: "5", Packets: 7}, verify.Tag{Lane: "voice", PCP: "3", Packets: 2}))
	wantText(t, `
unknown  lane voice on lane0, classifier: no traffic of the lane left with a VLAN tag in 2s, so its PCP (5) was not seen
`+dscp, tags())
}

// TestUnshaped: packets to an unshaped network have the default lane's class. With XPS they have
// the queue of their flow's lane, which is no drift. If the classifier chooses the queue, they
// have the default lane's.
func TestUnshaped(t *testing.T) {
	a, _ := emulated(t, "dscp")
	want := []device.Match{{Family: 4, Remote: "10.2.0.0/16"}, {Family: 6, Remote: "fd00:2::/48"}}
	if diff := cmp.Diff(want, verify.Unshaped(a, "lane0")); diff != "" {
		t.Errorf("networks (-want +got):\n%s", diff)
	}
	if got := verify.Unshaped(a, "other0"); len(got) > 0 {
		t.Errorf("networks of another device: %v", got)
	}
	w := verify.Watched{
		Device: "lane0",
		Sent:   []verify.Cell{{Lane: "redis", Queue: 6, Packets: 5}, {Lane: verify.LaneUnshaped, Queue: 6, Packets: 3}},
		Classed: []verify.Cell{{Lane: "redis", Class: "redis", Packets: 5},
			{Lane: verify.LaneUnshaped, Class: "default", Packets: 3}},
	}
	wantText(t, `
ok       lane redis on lane0, mapper: 5 packets of the lane left by transmit queues 6, none elsewhere, no other packets there (2s)
ok       lane redis on lane0, bandwidth: 5 packets of the lane left in class 1:10, none elsewhere, no other packets there (2s)
`, said(a, w, "redis", device.PartMapper, device.PartBandwidth))
	w.Classed[1].Class = "redis"
	wantText(t, `
drift    lane redis on lane0, bandwidth: traffic
         want     no other packets in class 1:10
         found    3 packets of no lane, to an unshaped network in the class of lane redis
         means    3 packets of others left there in 2s: they take the lane's bandwidth and rank
         repair   fix the drift that is named here, if any; else niclane status lane0 and the flows (ss -tn) show the sender
`, said(a, w, "redis", device.PartBandwidth))

	a, _ = emulated(t, "dscp_mapping")
	w.Sent = []verify.Cell{{Lane: "web", Queue: 7, Packets: 5}, {Lane: verify.LaneUnshaped, Queue: 7, Packets: 3}}
	wantText(t, `
drift    lane web on lane0, mapper: traffic
         want     no other packets in transmit queues 7
         found    3 packets of no lane, to an unshaped network in queue 7
         means    3 packets of others left there in 2s: the lane's packets wait behind them
         repair   fix the drift that is named here, if any; else niclane status lane0 and the flows (ss -tn) show the sender
`, said(a, w, "web", device.PartMapper))
}

// TestMarkedOnlyIsNotCounted: a classifier that only gives a DSCP does not count lanes apart.
func TestMarkedOnlyIsNotCounted(t *testing.T) {
	a, _ := emulated(t, "dscp_only")
	if got := verify.Countings(a, "lane0"); got != nil {
		t.Errorf("%+v", got)
	}
	a, _ = emulated(t, "dscp")
	if got := verify.Countings(a, "lane0"); len(got) != 3 {
		t.Errorf("%+v, want three lanes", got)
	}
}
