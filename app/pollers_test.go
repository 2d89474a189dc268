// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/app"
	"github.com/niclane/niclane/internal/traffic/napi"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// TestAdvisePoller asks for a lane of one queue on processor 0. Processors that are not named are
// busy.
func TestAdvisePoller(t *testing.T) {
	lane := app.Lane{Name: "web", Fitted: []plan.FittedLane{{Device: "d0", Queues: []int{7}, CPUs: []int{0}}}}
	for _, c := range []struct {
		name     string
		idle     []int
		kept     int
		polls    uint64 // in 2 s
		noPolls  string
		settings string
		says     string
	}{
		{"no idle processor", nil, 0, 20_000, "", "poller: interrupt", "there are 0"},
		{"only the lane's own is idle", []int{0}, 0, 20_000, "", "poller: interrupt", "there are 0"},
		{"the idle one is kept free", []int{3}, 3, 20_000, "", "poller: interrupt", "there are 0"},
		{"an idle processor", []int{2}, 0, 20_000, "", "poller: thread; cpus: 2", "polled 10000 times a second each"},
		{"as many as a busy poller leaves", []int{1, 2, 3}, 0, 10_000, "", "poller: busy; cpus: 1", "rarely sleep"},
		{"few polls", []int{1, 2, 3}, 0, 9_998, "", "poller: thread; cpus: 1", "1-3 were idle"},
		{"no packets", []int{1, 2, 3}, 0, 0, "", "poller: interrupt", "measure again under load"},
		{"polls are not known", []int{1, 2, 3}, 0, 0, "no BTF", "poller: thread; cpus: 1", "are not known: no BTF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := app.PollerSample{Seconds: 2, Idle: map[int]float64{}, NoPolls: c.noPolls}
			var cpus []device.CPU
			for i := range 4 {
				cpus = append(cpus, device.CPU{ID: i, Online: true})
				s.Idle[i] = 0.89
			}
			for _, i := range c.idle {
				s.Idle[i] = 0.9
			}
			if c.kept != 0 {
				cpus[c.kept].Kept = "isolated"
			}
			if c.polls > 0 {
				s.Polls = []napi.Count{{NAPI: 9, Polls: c.polls, Packets: 2 * c.polls}}
			}
			a := app.AdvisePoller(lane, cpus, s)
			if got := strings.Join(a.Settings, "; "); got != c.settings {
				t.Errorf("settings %q, want %q", got, c.settings)
			}
			if got := strings.Join(append(a.Why, a.Cautions...), "\n"); !strings.Contains(got, c.says) {
				t.Errorf("want %q in\n%s", c.says, got)
			}
		})
	}
}
