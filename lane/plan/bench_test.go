// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"testing"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
)

// BenchmarkMake plans one shared lane with many members: from=nothing on an unchanged machine,
// otherwise on a machine that already has the lane. The goal is 100 ms for 1,000 members.
func BenchmarkMake(b *testing.B) {
	for _, members := range []int{1, 10, 100, 1000} {
		in := &intent.Intent{
			Group:   intent.Group{Devices: []string{"lane0"}},
			Default: intent.Lane{Name: intent.DefaultLane, Path: "globals"},
		}
		lane := intent.Lane{Name: "shared", Mode: intent.Shared, Queues: 2, Rank: 1, Path: "lanes.shared"}
		for i := range members {
			lane.Members = append(lane.Members, intent.Member{
				Protocol: "tcp", Ports: []uint16{uint16(10_000 + i)}, Path: fmt.Sprintf("lanes.shared.members[%d]", i),
			})
		}
		in.Lanes = []intent.Lane{lane}
		st := fixture(b, "emulated")
		st.Devices[0].RuleCapacity = 2 * members // two rules per member: IPv4 and IPv6
		b.Run(fmt.Sprintf("members=%d/from=nothing", members),
			func(b *testing.B) { benchmarkMake(b, in, st, plan.Owned{}) })
		p, err := plan.Make(in, st, plan.Owned{})
		if err != nil {
			b.Fatal(err)
		}
		after := st.Clone()
		owned := runAll(after, p.Steps)
		b.Run(fmt.Sprintf("members=%d/from=same", members), func(b *testing.B) { benchmarkMake(b, in, after, owned) })
	}
}

func benchmarkMake(b *testing.B, in *intent.Intent, st *device.State, owned plan.Owned) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := plan.Make(in, st, owned); err != nil {
			b.Fatal(err)
		}
	}
}

func runAll(st *device.State, steps []plan.Step) plan.Owned {
	var owned plan.Owned
	for _, s := range steps {
		st.Put(s.Old, s.New)
		owned.Records = append(owned.Records, plan.Record{Original: s.Old, Last: s.New, Part: s.Part, Cause: s.Cause})
	}
	return owned
}
