// SPDX-License-Identifier: Apache-2.0

package firstlane

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/bench/report"
	"github.com/niclane/niclane/config"
	"github.com/niclane/niclane/lab"
)

// TestOrder: over six repeats every variant stands twice in each place, and
// follows each of the others equally often.
func TestOrder(t *testing.T) {
	places := map[string][3]int{}
	follows := map[string]int{}
	for i := range 6 {
		o := order(i)
		for k, v := range o {
			p := places[v]
			p[k]++
			places[v] = p
			if k > 0 {
				follows[o[k-1]+" then "+v]++
			}
		}
	}
	for _, v := range []string{report.Idle, report.NoLane, report.Lane} {
		if places[v] != [3]int{2, 2, 2} {
			t.Errorf("%s stands %v times in each place, want 2", v, places[v])
		}
	}
	if len(follows) != 6 {
		t.Errorf("%d kinds of succession, want all 6: %v", len(follows), follows)
	}
	for k, n := range follows {
		if n != 2 {
			t.Errorf("%s: %d times, want 2", k, n)
		}
	}
}

// TestLaneFile: the lane of the comparison is a valid file.
func TestLaneFile(t *testing.T) {
	for _, group := range []string{"", "/niclane-demo-lab-sut"} {
		in, err := config.Parse("lanes.yaml", []byte(laneFile("  dev: "+lab.Port+"\n", serverPort, 1, group)))
		if err != nil {
			t.Fatal(err)
		}
		if got := in.Lanes[0].Members[0].Cgroup; got != group {
			t.Errorf("control group %q, want %q", got, group)
		}
	}
}

func TestOptions(t *testing.T) {
	if err := Defaults().Check(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	if d := Defaults(); d.Pairs < 10 || d.NoiseShare != 0.75 {
		t.Errorf("the comparison was fixed beforehand at ten pairs and 75 %% of noise, not %d and %v", d.Pairs, d.NoiseShare)
	}
	err := Options{Pairs: 1, Rate: 1, Connections: 0, Window: time.Millisecond, NoiseShare: 1, FlowsOut: 0}.Check()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"--pairs 1", "--rate 1", "--connections 0", "--window 1ms", "--noise 1", "--flows-out 0"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not among the errors:\n%v", want, err)
		}
	}
}

// TestGroup: every reading of a hop lands in the row that tells how far a lane
// reaches.
func TestGroup(t *testing.T) {
	h := &labHosts{Lab: &lab.Lab{Config: lab.Config{LinkRate: 1e9, SwitchBuffer: 1000, Ring: 10, Queues: 2}},
		classes: map[string]string{"sut class 1:10": "memcached", "sut class 1:2": "default"}}
	got := h.group([]lab.Hop{
		{Name: "switch to sut", Backlog: 1}, {Name: "card rx rings", Drops: 9}, {Name: "sut class 1:10", Backlog: 2},
		{Name: "sut class 1:2", Backlog: 3}, {Name: "sut class 1:1", Backlog: 5}, {Name: "card tx ring 0", Backlog: 10}, {Name: "card tx ring 1", Backlog: 20, Drops: 4},
	})
	want := map[string]struct {
		reach   report.Reach
		backlog int64
	}{
		"switch → SUT":                  {report.ReachNone, 1},
		"SUT: the lane's class":         {report.ReachOwn, 2},
		"SUT: the default lane's class": {report.ReachHost, 3},
		"card → link":                   {report.ReachHost, 30},
	}
	if len(got) != len(want) {
		t.Errorf("%d rows, want %d", len(got), len(want))
	}
	for _, g := range got {
		if w := want[g.Name]; g.Reach != w.reach || g.bytes != w.backlog {
			t.Errorf("%s: %s %d, want %s %d", g.Name, g.Reach, g.bytes, w.reach, w.backlog)
		}
	}
}

// TestWorker: results, failures and processes that do not end.
func TestWorker(t *testing.T) {
	w, err := start("cat", exec.Command("cat"), []int{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	if err := w.result(10*time.Second, &got); err != nil || !slices.Equal(got, []int{1, 2}) {
		t.Errorf("cat answered %v, %v", got, err)
	}
	if w, err = start("failing", exec.Command("sh", "-c", "echo first >&2; echo why >&2; exit 3"), nil); err != nil {
		t.Fatal(err)
	}
	if err := w.result(10*time.Second, &got); err == nil || !strings.Contains(err.Error(), "failing: exit status 3: why") {
		t.Errorf("error %v does not say what failed and why", err)
	}
	if w, err = start("sleeper", exec.Command("sleep", "1000"), nil); err != nil {
		t.Fatal(err)
	}
	if err := w.running(); err != nil {
		t.Errorf("running: %v", err)
	}
	if err := w.result(time.Millisecond, &got); err == nil || !strings.Contains(err.Error(), "sleeper: no end after 1ms") {
		t.Errorf("error %v does not say that it did not end", err)
	}
	if w.running() == nil {
		t.Error("it still runs")
	}
}
