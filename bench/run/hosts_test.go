// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/agent"
	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/part/hiccup"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/statstest"
	"github.com/niclane/niclane/lab"
)

const hostsFile = `version: 1
sut: {agent: "a:1", address: 10.0.0.1, device: eth0, cpus: 2-5, noise-cpus: 1}
clients:
  - {name: big, agent: "b:1", address: 10.0.0.2, device: eth1, generators: 3, cpus: 4-6}
  - {name: small, agent: "c:1", address: 10.0.0.3, device: eth1}
noise: {agent: "d:1", address: 10.0.0.4, cpus: 7}
link-rate: 10gbit
authority: a.pem
certificate: b.pem
key: c.pem
`

// parseOn reads an experiment on the hosts of hostsFile.
func parseOn(t *testing.T, text string) *experiment.File {
	t.Helper()
	h, err := experiment.ParseHosts("hosts.yaml", []byte(hostsFile))
	if err != nil {
		t.Fatal(err)
	}
	f, err := experiment.ParseOn("test.yaml", []byte(text), h)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func onHosts(t *testing.T, replace ...string) *agentSite {
	t.Helper()
	f := parseOn(t, strings.NewReplacer(replace...).Replace(file))
	return OnHosts(f, "v1", HostsOptions{}).(*agentSite)
}

// on returns a client whose agent has described its host as h.
func on(h agent.Host) *agent.Client { return &agent.Client{Welcome: agent.Welcome{Host: h}} }

// TestSeats: each client gets one generator before any gets a second. Each generator has a
// processor of its own if there are several.
func TestSeats(t *testing.T) {
	s := onHosts(t)
	for n, want := range map[int]string{
		1: "client[4 5 6]",
		2: "client[4 5 6] client small[]",
		3: "client[4] client small[] client[5]",
		4: "client[4] client small[] client[5] client[6]",
	} {
		var got []string
		for _, x := range s.seats(n) {
			got = append(got, fmt.Sprint(x.host, x.CPUs))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%d: %s, want %s", n, strings.Join(got, " "), want)
		}
	}
	if n := s.e.Load.Generators; n != 4 {
		t.Errorf("%d generators, want 4", n)
	}
	if p := s.e.Placement; !slices.Equal(p.Server.CPUs, []int{2, 3, 4, 5}) ||
		!slices.Equal(p.SUTNoise.CPUs, []int{1}) || !slices.Equal(p.Noise.CPUs, []int{7}) || p.Generator.CPUs != nil {
		t.Errorf("placement %+v", p)
	}
	if s := onHosts(t, "connections: 4", "connections: 3"); s.e.Load.Generators != 3 {
		t.Errorf("%d generators for 3 connections", s.e.Load.Generators)
	}
}

// TestClientValues: a client's lanes are on its own device and link.
func TestClientValues(t *testing.T) {
	s := onHosts(t)
	s.agents[lab.SUT] = on(agent.Host{Device: &agent.Device{Name: "eth0", Speed: 100e9}})
	s.agents[lab.Client] = on(agent.Host{Device: &agent.Device{Name: "eth1", Speed: 25e9}})
	s.agents["client small"] = on(agent.Host{Device: &agent.Device{Name: "eth1"}})
	for host, want := range map[string]string{lab.Client: "eth1 25gbit 10.0.0.1",
		"client small": "eth1 10gbit 10.0.0.1"} {
		h := s.host(host)
		v := s.clientValues(host, h.Ports()[0])
		if got := strings.Join([]string{v["device"], v["link"], v["address"]}, " "); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}

func TestProcessorsOfTheServer(t *testing.T) {
	if got := cpusText([]int{2, 3, 4, 8}, []int{0}); got != "[2-4, 8]" {
		t.Error(got)
	}
	if got := cpusText(nil, []int{1}); got != "[1]" {
		t.Error(got)
	}
}

func generated(start int64, at ...int64) load.Result {
	rec := stats.NewRecorder(1e8, 2)
	for i := range 100 {
		rec.Record(int64(1000 + i))
	}
	s := rec.Series()
	r := load.Result{Mode: load.Open, StartMono: start, Duration: 2e8, Intended: 100, Completed: 100,
		Latency: s.Histogram(), Series: s,
		Uncorrected: stats.NewHistogram(), Lateness: stats.NewHistogram(), Wakeup: stats.NewHistogram()}
	for _, a := range at {
		r.Stalls = append(r.Stalls, load.Stall{AtMono: a, Ns: 1})
	}
	return r
}

// TestMergeOnOneAxis: the measurements of several hosts become one result on one time axis.
func TestMergeOnOneAxis(t *testing.T) {
	x := axis{ahead: map[string]int64{"a": 5_000_000_000, "b": -7_000_000_000},
		uncertainty: map[string]int64{"a": 20_000, "b": 30_000}}
	r, err := merge([]generatorResult{{"a", generated(6_000_000_000, 6_100_000_000)},
		{"b", generated(-6_000_000_500, -5_950_000_000)}}, x)
	if err != nil {
		t.Fatal(err)
	}
	if r.StartMono != 999_999_500 || r.Completed != 200 || r.Latency.Count() != 200 {
		t.Errorf("start %d, %d completed, %d latencies", r.StartMono, r.Completed, r.Latency.Count())
	}
	var at []int64
	for _, s := range r.Stalls {
		at = append(at, s.AtMono)
	}
	slices.Sort(at)
	if !slices.Equal(at, []int64{1_050_000_000, 1_100_000_000}) {
		t.Errorf("stalls at %v", at)
	}
	if len(r.Warnings) > 0 {
		t.Errorf("warnings %q", r.Warnings)
	}
	x.uncertainty["b"] = 2_000_000
	r, err = merge([]generatorResult{{"a", generated(6_000_000_000)}, {"b", generated(-5_995_000_000)}}, x)
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(r.Warnings, "\n"); !strings.Contains(text, "the generators began 5ms apart") ||
		!strings.Contains(text, "known only to ± 2ms") {
		t.Errorf("warnings %q", r.Warnings)
	}
}

func TestNoiseOfOtherHosts(t *testing.T) {
	late := func(ns int64) hiccup.Result {
		return hiccup.Result{CPUs: []hiccup.CPU{{CPU: 2, Late: statstest.Equal(1000, ns)}}}
	}
	s := onHosts(t, "repeats:", "host-noise: {at-most: 10us}\nrepeats:")
	s.r = &result.Result{Environment: result.Environment{Hosts: []result.Host{{Name: "big"}}}}
	if err := s.judge(lab.Client, late(9_000)); err != nil || len(s.r.Warnings) > 0 {
		t.Errorf("%v, %q", err, s.r.Warnings)
	}
	if err := s.judge(lab.Client, late(20_000)); err != nil || len(s.r.Warnings) != 1 ||
		!strings.Contains(s.r.Warnings[0], "host noise: host big: processor 2 wakes a thread ") {
		t.Errorf("%v, %q", err, s.r.Warnings)
	}
	if l := s.r.Environment.Hosts[0].Late; l < 20_000 || l > 20_100 {
		t.Errorf("late %d", l)
	}
	few := late(20_000)
	few.CPUs[0].Late = statstest.Equal(1, 1)
	errtest.Says(t, "few wake-ups", s.judge(lab.Client, few), "host big: processor 2: P99 needs")
	s.e.HostNoise.AtMost = 0
	if err := s.judge(lab.Client, few); err != nil {
		t.Error(err)
	}
	s.e.HostNoise.AtMost, s.e.HostNoise.Refuse = 10_000, true
	errtest.Says(t, "refused", s.judge(lab.Client, late(20_000)), "host big: processor 2")
}

// TestAgentsCannot: if an agent cannot do what the experiment needs, that is an error before
// anything is started. The error names the host.
func TestAgentsCannot(t *testing.T) {
	const lanes = "  - {name: noisy}\n  - {name: lane, lanes: \"" + lanesText + "\"}\n"
	for name, c := range map[string]struct {
		host agent.Host
		rate uint64 // in the hosts file
		want string
	}{
		"everything":         {agent.Host{Root: true, Device: &agent.Device{Speed: 1e9}}, 0, ""},
		"a rate in the file": {agent.Host{Root: true, Device: &agent.Device{}}, 1e9, ""},
		"no device":          {agent.Host{Root: true}, 1e9, "host sut (agent a:1): no device eth0"},
		"a device's own rate": {agent.Host{Root: true, Device: &agent.Device{}}, 0,
			"host sut (agent a:1): device eth0 does not say its speed, want link-rate in the hosts file"},
		"no root": {agent.Host{Device: &agent.Device{Speed: 1e9}}, 0,
			"host sut (agent a:1): variant lane has lanes, which need root there"},
	} {
		s := onHosts(t, "  - {name: noisy}\n", lanes)
		s.h.LinkRate = c.rate
		s.agents[lab.SUT] = on(c.host)
		err := s.check()
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		lanes, tune []string
		want        string
	}{
		"all of it": {[]string{"eth0"}, []string{"irqbalance", "processors"}, ""},
		"no lanes":  {nil, []string{"irqbalance", "processors"}, "this agent tunes no network: it was started without --lanes"},
		"no governor": {[]string{"eth0"}, []string{"irqbalance"},
			"tune processors: this agent was started with --allow-tune irqbalance"},
	} {
		s := onHosts(t, "  - {name: noisy}\n",
			"  - {name: noisy}\n  - {name: paper, tune: {channels: cores, governor: performance, stop-services: irqbalance}}\n")
		s.agents[lab.SUT] = on(agent.Host{Device: &agent.Device{Speed: 1e9}, Lanes: c.lanes, Tune: c.tune})
		want := ""
		if c.want != "" {
			want = "host sut (agent a:1): variant paper: " + c.want
		}
		if err := s.check(); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		// The lab leaves the machine as it is, so it needs no permission for that.
		s.e.Hosts = nil
		if err := s.check(); err != nil && len(c.lanes) > 0 {
			t.Errorf("%s, in the lab: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		big  agent.Host
		want string
	}{
		"clients' lanes": {agent.Host{Root: true, Device: &agent.Device{}}, ""},
		"no device":      {agent.Host{Root: true}, "host big (agent b:1): no device eth1"},
		"no root": {agent.Host{Device: &agent.Device{}},
			"host big (agent b:1): variant both has client-lanes, which need root there"},
	} {
		s := onHosts(t, "  - {name: noisy}\n", "  - {name: noisy}\n  - {name: both, client-lanes: \""+lanesText+"\"}\n")
		s.agents[lab.SUT] = on(agent.Host{Device: &agent.Device{}})
		s.agents[lab.Client] = on(c.big)
		s.agents["client small"] = on(agent.Host{Root: true, Device: &agent.Device{}})
		err := s.check()
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	s := onHosts(t)
	if err := s.SetSwitchBuffer(1000); err == nil || s.SetSwitchBuffer(0) != nil {
		t.Errorf("a switch of somebody else: %v", err)
	}
}

// TestFullSizes: on hosts, where experiments have their full size, the generators of each experiment
// have valid configurations. Each configuration is small enough for an agent.
func TestFullSizes(t *testing.T) {
	const dir = "../../experiments/"
	files, err := filepath.Glob(dir + "*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d experiments: %v", len(files), err)
	}
	for _, name := range files {
		if filepath.Base(name) == "hosts.example.yaml" {
			continue
		}
		h, err := ReadHosts(dir + "hosts.example.yaml")
		if err != nil {
			t.Fatal(err)
		}
		f, _, err := ReadOn(name, h)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, p := range points(f.Experiment.Load) {
			all, err := generators(f, []string{"10.9.0.1:11211"},
				Job{Rate: p.Rate, Connections: p.Connections, Window: f.Experiment.Load.Window})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, c := range []load.Config{all[0], all[len(all)-1]} {
				text, err := json.Marshal(c)
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Check(); err != nil {
					t.Errorf("%s, %s: %v", name, p.Name(), err)
				}
				if room := 10 << 10; len(text)+room > agent.MaxRequest {
					t.Errorf("%s, %s: a generator's configuration is %d bytes, an agent takes %d", name, p.Name(),
						len(text), agent.MaxRequest)
				}
			}
		}
	}
}
