// SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/run"
	"github.com/niclane/niclane/bench/simulate"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
)

var update = flag.Bool("update", false, "rewrite the goldens; read the diff")

// made returns the simulation of a file, as text.
func made(t *testing.T, in *intent.Intent, o simulate.Options) []byte {
	t.Helper()
	s, err := simulate.Make(in, o)
	must.Do(t, err)
	f, err := experiment.Parse("simulate.yaml", []byte(s.Experiment))
	if err != nil {
		t.Fatalf("%v\n%s", err, s.Experiment)
	}
	must.Do(t, run.Check(f))
	var b bytes.Buffer
	b.WriteString(s.Experiment)
	for _, n := range s.Notes {
		fmt.Fprintf(&b, "note: %s %v\n", n.Text, n.Keys)
	}
	for _, l := range s.Lanes {
		fmt.Fprintf(&b, "lane %s: %d queues, at %s %s\n", l.Name, l.Queues, l.At, l.Missing)
	}
	return b.Bytes()
}

// TestExamples maps every file of the papers and of testdata. The goldens have the experiments, which
// the checks of bench run accept.
func TestExamples(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../examples/papers/*.yaml", "testdata/*.yaml"} {
		found, err := filepath.Glob(pattern)
		must.Do(t, err)
		if len(found) == 0 {
			t.Fatalf("no %s", pattern)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			must.Do(t, err)
			in, err := config.Parse(filepath.Base(file), text)
			must.Do(t, err)
			got := made(t, in, simulate.Options{Noise: 750})
			golden := "testdata/" + name + ".txt"
			if *update {
				must.Do(t, os.WriteFile(golden, got, 0o644))
				return
			}
			want, err := os.ReadFile(golden)
			must.Do(t, err)
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestEveryKey: the lab's lanes have each key of a lanes file, or a note says what becomes of it. So a
// new key cannot be forgotten.
func TestEveryKey(t *testing.T) {
	archive, err := txtar.ParseFile("../../lane/config/testdata/every_key.txtar")
	must.Do(t, err)
	// The file has defaults of some keys. There is nothing to say about them.
	text := []byte(strings.NewReplacer("cpus: auto", "cpus: 0", "numa: all", "numa: local", "numa: local", "numa: remote").
		Replace(string(archive.Files[0].Data)))
	in, err := config.Parse("lanes.yaml", text)
	must.Do(t, err)
	s, err := simulate.Make(in, simulate.Options{})
	must.Do(t, err)
	var file struct {
		Globals map[string]any
		Lanes   map[string]map[string]any
	}
	must.Do(t, yaml.Unmarshal(text, &file))
	noted := map[string]bool{}
	for _, n := range s.Notes {
		for _, key := range n.Keys {
			noted[key] = true
		}
	}
	_, lanes, _ := strings.Cut(s.Experiment, "lanes: |")
	check := func(path, key string) {
		if key != "mode" && !noted[path+"."+key] && !strings.Contains(lanes, " "+key+": ") {
			t.Errorf("%s.%s is neither in the lab's lanes nor in a note", path, key)
		}
	}
	for key := range file.Globals {
		check("globals", key)
	}
	for key := range file.Lanes["memcached"] {
		check("lanes.memcached", key)
	}
}

const head = "version: 1\nglobals:\n  dev: sim0\n"

// host returns the recorded state of the simulated ADQ card.
func host(t *testing.T) *device.State {
	t.Helper()
	text, err := os.ReadFile("../../lane/plan/testdata/simcard-ice.json")
	must.Do(t, err)
	st := &device.State{}
	must.Do(t, json.Unmarshal(text, st))
	return st
}

// TestHostBandwidth: where the host would make rates by htb, the lab does too. Its kernel has fq, and would
// choose departure times.
func TestHostBandwidth(t *testing.T) {
	in, err := config.Parse("lanes.yaml", []byte(head+"lanes:\n  a: {queues: 2, ports: 443, guarantee: 20%}\n"))
	must.Do(t, err)
	for answer, htb := range map[device.Answer]bool{device.Yes: false, device.No: true} {
		st := host(t)
		for _, c := range []device.Capability{device.CapMqprioChannel, device.CapFlowerHwTC, device.CapQueueShaper,
			device.CapTxMaxrate, device.CapHTBOffload} {
			st.Devices[0].Capabilities[c] = device.Finding{Answer: device.No}
		}
		st.Capabilities[device.CapFQ] = device.Finding{Answer: answer}
		got := string(made(t, in, simulate.Options{Host: st}))
		if strings.Contains(got, "force: {bandwidth: htb}") != htb || strings.Contains(got, "would make rates") {
			t.Errorf("with fq %s:\n%s", answer, got)
		}
	}
}

// TestHost: queues, link and mechanisms are those of the host's device.
func TestHost(t *testing.T) {
	in, err := config.Parse("lanes.yaml", []byte(head+"lanes:\n  a: {queues: 2, ports: 443, guarantee: 20%}\n"))
	must.Do(t, err)
	st := host(t)
	st.Devices[0].Speed = 800e9
	st.Devices[0].Channels.Combined = 32
	got := string(made(t, in, simulate.Options{Noise: 500, Host: st}))
	for _, want := range []string{"queues: 32", "link-rate: 400gbit", "rate: 50%, flows: 16", "at 400gbit, not at 800gbit",
		"the host would make rates by mqprio-bw-rlimit"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestOptions: what the options become in the experiment.
func TestOptions(t *testing.T) {
	in, err := config.Parse("lanes.yaml", []byte(head+"lanes:\n  a: {queues: 2, ports: 443, addrs: 10.77.0.1}\n"))
	must.Do(t, err)
	o := simulate.Options{Link: 10e9, Noise: 1200, PacketCost: 700, WakeupCost: 30_000}
	got := string(made(t, in, o))
	for _, want := range []string{"packet-cost: 0.7us", "wakeup-cost: 30us", "rate: 12gbit, flows: 16,",
		"- {name: a, port: 443}"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	o.Noise = 750
	if got, want := string(made(t, in, o)), "rate: 75%, flows: 3,"; !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
	o.Host = host(t)
	in.Group.Force = map[string]string{string(device.PartQueueSet): plan.ByShared}
	got = string(made(t, in, o))
	if want := "note: the costs of packets and wake-ups are left out"; !strings.Contains(got, want) ||
		strings.Contains(got, "-cost:") {
		t.Errorf("no %q, or costs, in\n%s", want, got)
	}
}

// TestBond: one slave stands for the bond, with its part of rates in bits.
func TestBond(t *testing.T) {
	in, err := config.Parse("lanes.yaml", []byte("version: 1\nglobals: {bond: bond0, link-rate: 20gbit}\n"+
		"lanes:\n  a: {queues: 2, ports: 443, guarantee: 6gbit, ceiling: 50%}\n"))
	must.Do(t, err)
	st := host(t)
	st.Devices = append(st.Devices, st.Devices[0])
	st.Devices[0].Master, st.Devices[1].Master = "bond0", "bond0"
	got := string(made(t, in, simulate.Options{Host: st}))
	for _, want := range []string{"link-rate: 10gbit", "guarantee: 3gbit", "ceiling: 50%", "one slave of 2"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestMoreQueuesThanTheLab: the largest lanes get fewer queues, and a note says so.
func TestMoreQueuesThanTheLab(t *testing.T) {
	in, err := config.Parse("lanes.yaml", []byte(head+"lanes:\n  a: {queues: 3, ports: 443}\n  b: {queues: 130, ports: 80}\n"))
	must.Do(t, err)
	got := string(made(t, in, simulate.Options{}))
	for _, want := range []string{"the lab's card has 128 queues, not 134", "124 of 130 queues, because the lab's card has 128",
		"lane a: 3 queues"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestRefused: what cannot be simulated is named.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		o          simulate.Options
		want       string
	}{
		{"another device", "version: 1\nglobals: {dev: eth9}\nlanes:\n  a: {queues: 1, ports: 443}\n", simulate.Options{Host: host(t)},
			"globals.dev: the host has no eth9, it has"},
		{"more queues than the card", head + "lanes:\n  a: {queues: 8, ports: 443}\n", simulate.Options{Queues: 8},
			"the file needs 9 queues, and the card has 8"},
		{"a rate above the link", head + "lanes:\n  a: {queues: 1, ports: 443, guarantee: 2gbit}\n",
			simulate.Options{Link: 1e9}, "lanes.a.guarantee: 2gbit is more than the simulated link of 1gbit"},
		{"too fast", head + "lanes:\n  a: {queues: 1, ports: 443}\n", simulate.Options{Link: 500e9},
			"--link 500gbit: the lab's link has 1mbit to 400gbit"},
		{"all of the lab's addresses", head + "lanes:\n  a: {queues: 1, addrs: 10.0.0.0/8}\n", simulate.Options{},
			"lanes.a: this member has all traffic of the lab's address 10.77.0.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in, err := config.Parse("lanes.yaml", []byte(tt.text))
			must.Do(t, err)
			_, err = simulate.Make(in, tt.o)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// TestAnswer reads a made-up result. The numbers of each lane are in its own rows.
func TestAnswer(t *testing.T) {
	in, err := config.Parse("lanes.yaml", []byte(head+"  link-rate: 1gbit\nlanes:\n"+
		"  a: {queues: 2, ports: 443, guarantee: 20%}\n  b: {queues: 1, protocol: udp, ports: 53}\n"))
	must.Do(t, err)
	s, err := simulate.Make(in, simulate.Options{Noise: 750})
	must.Do(t, err)
	of := func(ns int64) load.Result {
		h := stats.NewHistogram()
		for range 20_000 {
			h.Record(ns)
		}
		return load.Result{Latency: h, Intended: h.Count(), Duration: 1e9, Payload: 1e6}
	}
	backlog := func(name string, bytes int64) result.Hop {
		h := stats.NewHistogram()
		h.Record(bytes)
		return result.Hop{Name: name, Rate: 1e9, Bytes: h, Drops: 3}
	}
	window := func(variant string, a, other int64, hops ...result.Hop) result.Window {
		return result.Window{Variant: variant, Load: of(other), Probes: []result.Probe{{Name: "a", Load: of(a)}},
			Noise: []result.Noise{{Direction: experiment.FromSUT, Achieved: 700e6}}, Hops: hops}
	}
	r := &result.Result{Windows: []result.Window{
		window(simulate.AsItIs, 2e6, 3e6, backlog(result.HopCard, 125_000)),
		window(simulate.WithLanes, 5e3, 4e6, backlog(result.HopClass+"a", 1250), backlog(result.HopDefaultClass, 250_000)),
	}}
	answer, err := s.Answer("lanes.yaml", r)
	must.Do(t, err)
	var b bytes.Buffer
	must.Do(t, simulate.WriteText(&b, answer))
	const golden = "testdata/answer.golden"
	if *update {
		must.Do(t, os.WriteFile(golden, b.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	must.Do(t, err)
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const slower = "Lane a gets slower: it has no guarantee"
	answer.Lanes[0].Guarantee, answer.Lanes[0].WithLanes.P99 = "", answer.Lanes[0].AsItIs.P99+1
	b.Reset()
	must.Do(t, simulate.WriteText(&b, answer))
	if !strings.Contains(b.String(), slower) || strings.Contains(string(want), slower) {
		t.Errorf("%q is not only in the text of a lane that gets slower:\n%s", slower, b.String())
	}
	if _, err := s.Answer("lanes.yaml", &result.Result{Windows: r.Windows[:1]}); err == nil {
		t.Error("no error for a run without lanes")
	}
}
