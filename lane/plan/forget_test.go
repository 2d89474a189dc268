// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// TestForgetAbsent: the plan has no step for an object that is absent and unwanted, and the
// record forgets it. An object that is wanted, or has a value to restore, stays in the record.
func TestForgetAbsent(t *testing.T) {
	const lanes = "version: 1\nglobals: {dev: [lane0, lane1]}\nlanes: {a: {queues: 2, cpus: 1, ports: [80]}}\n"
	st := twins(t)
	cpuset := device.File{Path: "/sys/fs/cgroup/cpuset/gone/cpuset.cpus", Format: device.FileCPUList}
	was := cpuset
	cpuset.Value = "1"
	flower := device.Flower{Dev: "lane0"}
	group := device.CgroupClass{Cgroup: "/gone"}
	there := device.File{Path: "/sys/class/net/lane0/threaded", Format: device.FileText, Value: "7"}
	for path, f := range st.Files {
		if path == there.Path {
			there = f
		}
	}
	owned := plan.Owned{Records: []plan.Record{{Original: was, Last: cpuset}, {Last: flower}, {Last: group},
		{Original: there, Last: there}}}
	p, err := makePlan(t, "lanes.yaml", lanes, st, owned)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{group.Key(), cpuset.Key(), flower.Key()}
	if diff := cmp.Diff(want, p.Forget); diff != "" {
		t.Errorf("forgotten (-want +got)\n%s", diff)
	}
	for _, s := range p.Steps {
		for _, key := range want {
			if s.Key() == key {
				t.Errorf("%s has a step", key)
			}
		}
	}
	if len(p.Gone) > 0 {
		t.Errorf("gone: %q, and every device is there", p.Gone)
	}
}
