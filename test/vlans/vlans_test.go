// SPDX-License-Identifier: Apache-2.0

// Package vlans tests lanes with a VLAN on any kernel, even one without VLAN devices. The test
// itself makes the frames with VLAN tags.
package vlans

import (
	"os"
	"testing"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/lanetest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/apply"
)

const lanes = `
version: 1
globals:
  dev: v0
  link-rate: 500mbit
  vlans: [7]
  force: {queue-set: xdp-cpumap-generic}
lanes:
  web: {queues: 2, cpus: 1, protocol: udp, ports: [80], guarantee: 10%}
`

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

// each is the number of frames of each kind.
const each = 20

// A frame is an IPv4 UDP frame.
type frame struct {
	name string
	vlan uint16 // VLAN ID; 0: no tag
	port uint16 // UDP port on v0's side
	in   bool   // whether the frame belongs to the lane
}

var frames = []frame{
	{"of the lane", 7, 80, true},
	{"without a tag", 0, 80, false},
	{"of another VLAN", 8, 80, false},
	{"of another port", 7, 81, false},
}

// TestLane checks that a lane with a VLAN gets the VLAN's packets in both directions. It must get
// no packets of other VLANs, without a tag, or of other ports.
func TestLane(t *testing.T) {
	vethtest.NeedRoot(t)
	vethtest.Run(t, 4, func(t *testing.T) {
		vethtest.OwnMounts(t)
		k, err := apply.NewKernel("")
		must.Do(t, err)
		defer k.Close()
		j := lanetest.Apply(t, k, lanes, lanetest.Observe(t, vethtest.Dev))
		c, err := tc.Open()
		must.Do(t, err)
		defer c.Close()
		b := bpf.New(c)
		defer b.Close()
		v0, v1 := vethtest.Interface(t, vethtest.Dev), vethtest.Interface(t, vethtest.Peer)
		for _, f := range frames {
			want := uint64(0)
			if f.in {
				want = each
			}
			in, all := lanetest.XDPPackets(t, vethtest.Dev)
			vethtest.SendFrame(t, vethtest.Peer, 0, each, f.datagram(4000, f.port).Frame(v1, v0))
			vethtest.Until(t, "all of them are counted",
				func() bool { _, now := lanetest.XDPPackets(t, vethtest.Dev); return now-all >= each })
			if now, _ := lanetest.XDPPackets(t, vethtest.Dev); now-in != want {
				t.Errorf("%s: of %d that arrive %d are the lane's, want %d", f.name, each, now-in, want)
			}
			out := sent(t, b)
			vethtest.SendFrame(t, vethtest.Dev, 0, each, f.datagram(f.port, 4000).Frame(v0, v1))
			if now := sent(t, b); now-out != want {
				t.Errorf("%s: of %d that leave %d are the lane's, want %d", f.name, each, now-out, want)
			}
		}
		if _, err := apply.Rollback(t.Context(), k, j, j.Head().Host, apply.Options{}); err != nil {
			t.Error(err)
		}
	})
}

func (f frame) datagram(from, to uint16) vethtest.Datagram {
	return vethtest.Datagram{VLAN: f.vlan, Source: 2, From: from, To: to, Payload: 18}
}

// laneRow is where the classifier's counters have the lane: in the row of its class, 1:10.
const laneRow = 0x10

// sent returns the number of packets that niclane's classifier has counted for the lane.
func sent(t *testing.T, b *bpf.Client) (lane uint64) {
	t.Helper()
	counters, err := b.SentCounters("v0", []int{laneRow})
	must.Do(t, err)
	for _, c := range counters {
		if c.Row == laneRow {
			lane += c.Packets
		}
	}
	return lane
}
