// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

// TestPieces: if another program has replaced the root qdisc, the classes cannot be repaired, but
// everything else can.
func TestPieces(t *testing.T) {
	htb := device.Qdisc{Dev: "d0", Parent: "root", Type: "htb", Handle: "1:", DefaultClass: 2}
	class := device.Class{Dev: "d0", ID: "1:10", Parent: "1:", Rate: 1_000_000, Ceil: 1_000_000, Burst: 1514,
		CBurst: 1514, Quantum: 1514}
	group := device.File{Path: "/sys/fs/cgroup/a/cpuset.cpus", Format: device.FileCPUList, Value: "1"}
	xps := device.File{Path: "/sys/class/net/d0/queues/tx-0/xps_cpus", Format: device.FileCPUMask, Value: "3"}
	applied := verify.Applied{
		Config: "/l.yaml", Ended: true, Lanes: []plan.FittedLane{{Name: "a", Device: "d0", Queues: []int{1},
			Class: "1:10"}},
		Owned: []plan.Record{
			{Original: nil, Last: htb, Part: device.PartBandwidth, Cause: "lanes"},
			{Original: nil, Last: class, Part: device.PartBandwidth, Cause: "lanes.a"},
			{Original: group, Last: group, Part: device.PartProcessors, Cause: "lanes.a.cpus"},
			{Original: nil, Last: xps, Part: device.PartMapper, Cause: "lanes.a"},
		},
	}
	wrong := xps
	wrong.Value = "1"
	now := &device.State{
		Schema: device.Schema, CPUs: []device.CPU{{ID: 0, Online: true}, {ID: 1, Online: true}},
		Files: map[string]device.File{xps.Path: wrong, group.Path: group},
		Devices: []device.Device{{Name: "d0", Up: true, Carrier: true, RxQueues: 2, TxQueues: 2,
			Qdiscs: []device.QdiscState{{Qdisc: device.Qdisc{Dev: "d0", Parent: "root", Type: "tbf", Handle: "7:"}}}}},
	}
	made := func(leave string) (keys []string) {
		for _, steps := range pieces(&View{Applied: applied, Now: now, Findings: verify.State(applied, now)},
			func(key string) bool { return key == leave }) {
			for _, s := range steps {
				keys = append(keys, s.Key())
			}
		}
		return keys
	}
	if diff := cmp.Diff([]string{xps.Key()}, made("")); diff != "" {
		t.Errorf("made again (-want +got):\n%s", diff)
	}
	if got := made(xps.Key()); got != nil {
		t.Errorf("what is to be left is made again: %v", got)
	}
	now.Devices[0].Qdiscs = nil
	if diff := cmp.Diff([]string{htb.Key(), class.Key(), xps.Key()}, made("")); diff != "" {
		t.Errorf("without the qdisc, made again (-want +got):\n%s", diff)
	}
}
