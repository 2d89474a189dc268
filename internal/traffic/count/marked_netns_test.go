// SPDX-License-Identifier: Apache-2.0

package count_test

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/internal/traffic/count"
	"github.com/niclane/niclane/lane/device"
)

// TestMarked: the watcher counts the DSCP with which packets leave, after niclane's classifier, and the PCP
// of those with a VLAN tag.
// Packets to an unshaped network are of a lane of their own, when they leave only.
func TestMarked(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		web4 := device.Match{Family: 4, Protocol: "tcp", LocalPort: 80}
		web6 := device.Match{Family: 6, Protocol: "tcp", LocalPort: 80}
		lanes := []count.Lane{
			{Marks: true, Matches: []device.Match{web4, web6}},
			{SentOnly: true, Marks: true, Matches: []device.Match{{Family: 4, Remote: "10.2.0.0/16"}}},
			{Matches: []device.Match{{Family: 4, Protocol: "tcp", LocalPort: 90}}},
		}
		onQueue(t, vethtest.Dev, 3)
		onQueue(t, vethtest.Peer, 3)
		tcc, err := tc.Open()
		must.Do(t, err)
		defer tcc.Close()
		c := bpf.New(tcc)
		defer c.Close()
		must.Do(t, tcc.Write(nil, device.Qdisc{Dev: "v0", Parent: "clsact", Type: "clsact", Handle: "ffff:"}))
		filter := device.Filter{Dev: "v0", Parent: "egress", Pref: 1, Handle: 1, Program: bpf.EgressProgram}
		for _, o := range []device.Object{filter,
			device.FilterEntry{Filter: filter.Key(), Match: web4, DSCP: "ef", PCP: "5"},
			device.FilterEntry{Filter: filter.Key(), Match: lanes[1].Matches[0]}} {
			vethtest.Write(t, c, nil, o)
		}
		link := vethtest.Interface(t, vethtest.Dev)
		w, err := count.Open(&device.Device{Name: link.Name, Index: link.Index, Driver: "veth", RxQueues: queues,
			TxQueues: queues, Tunnels: []device.Tunnels{{Tunnels: []device.Tunnel{{Protocol: "vxlan", Port: 4789}}}}}, lanes)
		if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EPERM) {
			t.Skip(err)
		}
		must.Do(t, err)
		defer w.Close()
		packets := []packet{
			{family: 4, protocol: 6, local: "10.9.0.1", remote: "10.9.0.2", port: 80, rport: 9},
			{family: 4, protocol: 6, local: "10.9.0.1", remote: "10.9.0.2", port: 80, rport: 9, vlan: 7, inner: 8},
			{family: 6, protocol: 6, local: "fd00::1", remote: "fd00::2", port: 80, rport: 9},
			{family: 4, protocol: 6, local: "10.9.0.1", remote: "10.2.0.2", port: 80, rport: 9},
			{family: 4, protocol: 6, local: "10.9.0.1", remote: "10.9.0.2", port: 90, rport: 9},
			{family: 4, protocol: 6, local: "10.9.0.1", remote: "10.2.0.2", port: 80, rport: 9, vxlan: true},
			{name: "not IP"},
		}
		for _, p := range packets {
			vethtest.SendFrame(t, vethtest.Dev, 0, 1, p.frame(false))
			vethtest.SendFrame(t, vethtest.Peer, 0, 1, p.frame(true))
		}
		got, _ := byPlace(counts(t, w).Marked)
		if diff := cmp.Diff(map[place]uint64{{1, 46}: 2, {1, 0}: 1, {2, 0}: 2}, got, cmp.AllowUnexported(place{})); diff != "" {
			t.Errorf("by lane and DSCP (-want +got):\n%s", diff)
		}
		tagged, _ := byPlace(counts(t, w).Tagged)
		if diff := cmp.Diff(map[place]uint64{{1, 5}: 1}, tagged, cmp.AllowUnexported(place{})); diff != "" {
			t.Errorf("by lane and PCP (-want +got):\n%s", diff)
		}
		sent, _ := byPlace(counts(t, w).Sent)
		delete(sent, place{0, 3})
		if diff := cmp.Diff(map[place]uint64{{1, 3}: 3, {2, 3}: 2, {3, 3}: 1}, sent, cmp.AllowUnexported(place{})); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
		vethtest.Until(t, "all packets received", func() bool {
			received, _ := byPlace(counts(t, w).Received)
			return received[place{1, 3}] == 4 && received[place{3, 3}] == 1 && received[place{2, 3}] == 0
		})
	})
}
