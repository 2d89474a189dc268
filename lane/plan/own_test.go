// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
)

// TestPollerByItself plans a lane that names no poller, on four processors. Each case that gets no
// thread differs from the first one in one condition.
func TestPollerByItself(t *testing.T) {
	const lane, one = "queues: 1, ports: [11211]", "cgroup: /memcached"
	for _, c := range []struct {
		name, globals, lane, other, cpuset string
		want                               intent.PollerKind
		why                                string // why the lane has no thread
		note                               string
	}{
		{"a processor of its own", "cpus: 0-1", one, "", "0-1", intent.PollerThread, "", ""},
		{"no control group", "cpus: 0-1", "", "", "0-1", intent.PollerAuto,
			"lane memcached has no processor of its own for its queues: its application may run on every processor", ""},
		{"an empty cpuset", "cpus: 0-1", one, "", "", intent.PollerAuto, "may run on every processor", ""},
		{"one of two members is not confined", "cpus: 0-1",
			"mode: shared, members: [{ports: [1], cgroup: /memcached}, {ports: [2]}]", "", "0-1", intent.PollerAuto, "may run on every processor", ""},
		{"the default lane is everywhere", "", one, "", "0-1", intent.PollerAuto,
			"the default lane may run on every processor", ""},
		{"the default lane has the others", "cpus: 1-3", one, "", "0-1", intent.PollerAuto,
			"its application (0-1) and the default lane (1-3) have all processors", ""},
		{"the application has the others", "cpus: 0-1", one, "", "0-3", intent.PollerAuto,
			"its application (0-3) and the default lane (0-1) have all processors", ""},
		{"cpus names them", "cpus: 0-1", one + ", cpus: 2", "", "0-1", intent.PollerAuto,
			"the processors that its cpus names (2) run its application too", ""},
		{"another lane has one of them", "cpus: 0-1", one, "cpus: [2]", "0-1", intent.PollerThread, "", ""},
		{"another lane has all of them", "cpus: 0-1", one, "cpus: [2, 3]", "0-1", intent.PollerAuto,
			"there are too few processors: its application or the default lane uses 0 too", ""},
		{"other lanes have all processors", "cpus: 0-1", one, "cpus: 0-3", "0-1", intent.PollerAuto,
			"processor 2 is lane web's too", ""},
		{"more queues than processors", "cpus: 0-2", one + ", queues: 2", "", "0-2", intent.PollerAuto,
			"there are too few processors", ""},
		{"asked for", "", one + ", poller: thread", "", "0-1", intent.PollerThread, "",
			"its polling threads share processors 0: the default lane may run on every processor"},
		{"asked for by number", "", one + ", queues: 4, pollers: 3", "", "0-1", intent.PollerThread, "",
			"its polling threads share processors 0-2: the default lane may run on every processor"},
		{"asked for, on processors of its own", "cpus: 0-1", one + ", poller: thread", "", "0-1", intent.PollerThread,
			"", ""},
		{"forced", "force: {poller: napi-thread}", "", "", "", intent.PollerThread, "", "share processors 0"},
		{"interrupts, although it has processors of its own", "cpus: 0-1", one + ", poller: interrupt", "", "0-1",
			intent.PollerInterrupt, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := fixture(t, "emulated")
			st.CPUs = nil
			for i := range 4 {
				st.CPUs = append(st.CPUs, device.CPU{ID: i, Online: true, Core: i})
			}
			path := st.Cgroups.CpusetDir("/memcached") + "/cpuset.cpus"
			st.Files[path] = device.File{Path: path, Format: device.FileCPUList, Value: c.cpuset}
			lane := lane
			if strings.Contains(c.lane, "queues:") {
				lane = "ports: [11211]"
			}
			if strings.Contains(c.lane, "members:") {
				lane = "queues: 1"
			}
			text := fmt.Sprintf("version: 1\nglobals: {dev: lane0, %s}\nlanes:\n  memcached: {%s, %s}\n", c.globals, lane,
				c.lane)
			if c.other != "" {
				text += fmt.Sprintf("  web: {queues: 1, ports: [80], %s}\n", c.other)
			}
			p, err := makePlan(t, "lanes.yaml", text, st, plan.Owned{})
			if err != nil {
				t.Fatalf("%s%v", text, err)
			}
			if got := p.Lanes[1].Poller; got != c.want {
				t.Errorf("lane memcached is polled by %q, want %q", got, c.want)
			}
			if got := rejection(p, plan.ByNAPIThread); !strings.Contains(got, c.why) || (got == "") != (c.why == "") &&
				p.Lanes[1].Poller == intent.PollerAuto {
				t.Errorf("napi-thread is rejected because %q, want %q", got, c.why)
			}
			threads := 0
			for _, s := range p.Steps {
				if _, ok := s.New.(device.Thread); ok {
					threads++
				}
			}
			if (threads > 0) != (c.want == intent.PollerThread) {
				t.Errorf("%d threads, and the lane is polled by %q", threads, c.want)
			}
			if notes := strings.Join(p.Notes, "\n"); !strings.Contains(notes, c.note) ||
				strings.Contains(notes, "share processors") != (c.note != "") {
				t.Errorf("want the note %q, got\n%s", c.note, notes)
			}
		})
	}
}

// rejection returns why the plan does not have this poller, "" if it has.
func rejection(p *plan.Plan, mechanism string) string {
	for _, c := range p.Choices {
		for _, r := range c.Rejected {
			if c.Part == device.PartPoller && r.Mechanism == mechanism {
				return r.Why
			}
		}
	}
	return ""
}
