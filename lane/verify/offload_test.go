// SPDX-License-Identifier: Apache-2.0

package verify_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/verify"
)

// TestOffloadedTraffic: a lane's packets leave by the transmit queue that the card has made for
// its HTB class. The channels have queues 0 to 3.
func TestOffloadedTraffic(t *testing.T) {
	cell := func(lane string, queue int, n uint64) verify.Cell {
		return verify.Cell{Lane: lane, Queue: queue, Packets: n}
	}
	for _, c := range []struct {
		name string
		sent []verify.Cell
		want string
	}{
		{"proven", []verify.Cell{cell("redis", 6, 90), cell("web", 5, 7), cell("", 4, 60)}, `
ok       lane redis on sim0, mapper: 90 packets of the lane left by its own transmit queue, after those of the channels: 6, none elsewhere, no other packets there (2s)
`},
		{"by a channel's", []verify.Cell{cell("redis", 1, 90)}, `
drift    lane redis on sim0, mapper: traffic
         want     the lane's packets in its own transmit queue, after those of the channels only
         found    90 of 90 elsewhere: queue 1
         means    90 packets of the lane left elsewhere in 2s: the card gives them neither the lane's guarantee nor its ceiling
         repair   fix the drift that is named here, if any; else niclane status sim0 and the flows (ss -tn) show the sender
`},
		{"two lanes in one", []verify.Cell{cell("redis", 5, 90), cell("web", 5, 7)}, `
drift    lane redis on sim0, mapper: traffic
         want     no other packets in its own transmit queue, after those of the channels: 5
         found    7 packets of lane web in queue 5
         means    7 packets of others left there in 2s: the lane's packets wait behind them, and the card gives them the lane's share
         repair   fix the drift that is named here, if any; else niclane status sim0 and the flows (ss -tn) show the sender
`},
		{"quiet", []verify.Cell{cell("web", 5, 7)}, `
unknown  lane redis on sim0, mapper: no traffic of the lane seen in 2s; no other packets there (its own transmit queue, after those of the channels)
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, now := emulated(t, "card_htb_offload")
			a.State = now
			got := said(a, verify.Watched{Device: "sim0", Sent: c.sent}, "redis", device.PartMapper)
			wantText(t, c.want, got)
		})
	}
}

// TestOffloadDrift checks the printed text after another program has changed the card's HTB.
func TestOffloadDrift(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*device.Device)
		want   string
	}{
		{"class changed", func(d *device.Device) {
			for i := range d.Classes {
				if d.Classes[i].ID == "1:10" {
					d.Classes[i].Rate /= 2
				}
			}
		}, "on transmit the lane's guarantee is not what was promised"},
		{"qdisc replaced by one in software", func(d *device.Device) {
			for i := range d.Qdiscs {
				if d.Qdiscs[i].Parent == "root" {
					d.Qdiscs[i].Offload = false
				}
			}
		}, "the lanes' qdisc was replaced or changed, and the card's classes are gone with it"},
		{"all of it removed", func(d *device.Device) {
			d.Qdiscs = slices.DeleteFunc(slices.Clone(d.Qdiscs),
				func(q device.QdiscState) bool { return q.Parent != "clsact" })
			d.Classes, d.TxQueues = nil, 4
		}, "the lanes' qdisc is gone, and the card's classes are gone with it"},
		{"feature turned off", func(d *device.Device) { d.Features["hw-tc-offload"] = device.Setting{} },
			"the card takes no filters and classes any more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, now := emulated(t, "card_htb_offload")
			c.change(now.Device("sim0"))
			fs := drifts(verify.State(a, now))
			if len(fs) != 1 || !strings.Contains(fs[0].Meaning, c.want) {
				t.Errorf("got %+v, want one that says %q", fs, c.want)
			}
		})
	}
}
