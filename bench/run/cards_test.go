// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/app/split"
	"github.com/niclane/niclane/bench/agent"
	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/counters"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/part/nodes"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lab"
)

// cardsFile is an experiment for the hosts of hostsOfCards.
const cardsFile = `version: 1
title: cards
server: {kind: command, command: [served, $listen], port: 80, threads: 4}
workload: {protocol: http, objects: [{path: /a, bytes: 1}]}
load: {mode: closed, connections: 8}
noise: [{direction: from-sut, rate: 2gbit}, {direction: to-sut, rate: 10%}]
variants:
  - name: off
  - name: lane
    lanes: |
      version: 1
      globals: {dev: $device}
      lanes: {web: {queues: $queues, cpus: $pollcpus, addrs: $address, ports: [$port]}}
`

// hostsOfCards is a hosts file. CARDS are keys of the SUT, NOISE those of the noise host.
const hostsOfCards = `version: 1
sut: {agent: "a:1", CARDS}
clients:
  - {agent: "b:1", address: 10.0.0.2}
  - {agent: "c:1", address: 10.1.0.2}
noise: {agent: "d:1", NOISE}
link-rate: 10gbit
authority: a.pem
certificate: b.pem
key: c.pem
`

const (
	twoCards = "cards: [{device: eth0, address: 10.0.0.1, cpus: 0-1}, {device: eth1, address: 10.1.0.1}]"
	twoNoise = "cards: [{device: eth0, address: 10.0.0.4}, {device: eth1, address: 10.1.0.4}]"
	bonded   = "bond: bond0, address: 10.0.0.1, cards: [{device: eth0}, {device: eth1}]"
)

func onCards(t *testing.T, file, cards, noise string) *agentSite {
	t.Helper()
	h, err := experiment.ParseHosts("hosts.yaml",
		[]byte(strings.NewReplacer("CARDS", cards, "NOISE", noise).Replace(hostsOfCards)))
	must.Do(t, err)
	f, err := experiment.ParseOn("cards.yaml", []byte(file), h)
	must.Do(t, err)
	s := OnHosts(f, "v1", HostsOptions{}).(*agentSite)
	s.agents[lab.SUT] = on(agent.Host{Device: &agent.Device{Name: "eth0", Speed: 40e9, MTU: 9000},
		Cards: []agent.Device{{Name: "eth1", Speed: 40e9, MTU: 1500}}})
	return s
}

func TestLanesOfCards(t *testing.T) {
	lane := func(globals, cpus, address string) string {
		return "version: 1\nglobals:" + globals + "\nlanes: {web: {queues: 2, cpus: " + cpus + ", addrs: " + address +
			", ports: [80]}}\n"
	}
	for name, x := range map[string]struct {
		file, cards, noise string
		want               []string
	}{
		"one": {cardsFile, "device: eth0, address: 10.0.0.1, queues: 2", "address: 10.0.0.4",
			[]string{lane(" {dev: eth0}", "auto", "10.0.0.1")}},
		"two": {cardsFile, twoCards, twoNoise,
			[]string{lane(" {dev: eth0}", "[0-1]", "10.0.0.1"), lane(" {dev: eth1}", "auto", "10.1.0.1")}},
		"bond": {cardsFile, bonded + ", queues: 2", "address: 10.0.0.4",
			[]string{lane(" {bond: bond0}", "auto", "10.0.0.1")}},
	} {
		s := onCards(t, x.file, x.cards, x.noise)
		texts, _, err := s.lanesOf(s.e.Variants[1])
		must.Do(t, err)
		if diff := cmp.Diff(x.want, texts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if texts, _, err := s.lanesOf(s.e.Variants[0]); err != nil || texts != nil {
			t.Errorf("%s, no lanes: %q, %v", name, texts, err)
		}
	}
}

// TestDividedLanesOfCards: the lane of a divided server is divided over both cards by one file.
func TestDividedLanesOfCards(t *testing.T) {
	file := strings.Replace(cardsFile, "threads: 4", "threads: 4, split: numa", 1)
	file = strings.Replace(file, "cpus: $pollcpus, ", "", 1)
	s := onCards(t, file, twoCards, twoNoise)
	s.division = &division{
		machine: nodes.Machine{
			Nodes:   []numa.Node{{ID: 0, CPUs: []int{0, 1}, Memory: 1}, {ID: 1, CPUs: []int{2, 3}, Memory: 1}},
			Devices: []numa.Device{{Name: "eth0", Node: 0}, {Name: "eth1", Node: 1}}},
		instances: []split.Instance{{Node: 0}, {Node: 1, Index: 1}},
	}
	s.processors = []int{0, 1, 2, 3}
	texts, _, err := s.lanesOf(s.e.Variants[1])
	must.Do(t, err)
	if len(texts) != 1 || !strings.Contains(texts[0], "eth0") || !strings.Contains(texts[0], "eth1") ||
		!strings.Contains(texts[0], "10.1.0.1") {
		t.Errorf("%q", texts)
	}
}

func TestLinkOfCards(t *testing.T) {
	s := onCards(t, cardsFile, twoCards, twoNoise)
	if rate, mtu := s.link(); rate != 20e9 || mtu != 1500 {
		t.Errorf("by the hosts file: %d, MTU %d", rate, mtu)
	}
	s.h.LinkRate = 0
	if rate, _ := s.link(); rate != 80e9 {
		t.Errorf("by the devices: %d", rate)
	}
	if got := s.names()[experiment.NameLink]; got != "40gbit" {
		t.Errorf("$link %s", got)
	}
	s.agents[lab.SUT].Host.Cards = nil
	if got := s.missing(lab.SUT); len(got) != 1 || got[0] != "eth1" {
		t.Errorf("missing: %v", got)
	}
}

// TestLoadOfCards: the server answers at each address, and each has the same load and noise.
func TestLoadOfCards(t *testing.T) {
	s := onCards(t, cardsFile, twoCards, twoNoise)
	h := &cardHosts{fakeHosts: fakes(nil)}
	s.on = h
	if _, err := s.StartServer(t.Context(), s.e.Variants[0]); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(h.asked, " "); got != "10.0.0.1:80 10.1.0.1:80" {
		t.Errorf("asked %s", got)
	}
	if got := strings.Join(h.argv, " "); got != "served 0.0.0.0" {
		t.Errorf("started %s", got)
	}
	all, err := generators(s.f, s.serverAddresses(), Job{Connections: 8, Window: 1e9})
	must.Do(t, err)
	var to []string
	for _, c := range all {
		to = append(to, c.Address)
	}
	if got := strings.Join(to, " "); got != "10.0.0.1:80 10.1.0.1:80" {
		t.Errorf("generators to %s", got)
	}
	flows, err := s.startNoise(t.Context(), s.e.Noise, 1e9)
	must.Do(t, err)
	var asked int64
	for _, what := range []string{"noise 1 from-sut, card 1, sender", "noise 1 from-sut, card 2, sender",
		"noise 2 to-sut, card 1, sender", "noise 2 to-sut, card 2, sender"} {
		c, ok := h.configs[what].(noise.Config)
		if !ok {
			t.Fatalf("no %s of %d flows", what, len(flows))
		}
		to = append(to, c.Address)
		asked += c.Rate
	}
	if got, want := strings.Join(to[2:], " "), "10.0.0.4:5001 10.1.0.4:5001 10.0.0.1:5002 10.1.0.1:5002"; got != want {
		t.Errorf("noise to %s, want %s", got, want)
	}
	// 2 Gbit/s in all, and a tenth of 20 Gbit/s, without headers.
	if asked < 37e8 || asked > 4e9 {
		t.Errorf("noise of %d bit/s", asked)
	}
}

func TestPerCard(t *testing.T) {
	two := []experiment.Card{{Device: "eth0"}, {Device: "eth1"}}
	on := func(at ...int) nodes.Machine { return machineOf(at...) }
	for name, x := range map[string]struct {
		machine nodes.Machine
		cpus    []int
		want    string
		notes   int
	}{
		"a node for each": {on(1, 0), []int{0, 1, 2, 3}, "eth0:1[2 3][1] eth1:0[0 1][0]", 0},
		"one node":        {on(1, 1), []int{0, 1, 2, 3}, "eth0:1[2][1] eth1:1[3][1]", 0},
		"unknown":         {on(0, -1), []int{0, 1, 3}, "eth0:-1[0][0 1] eth1:-1[1 3][0 1]", 1},
		"a single one":    {on(0, 1), []int{1}, "eth0:-1[1][0 1] eth1:-1[1][0 1]", 1},
		"too few there":   {on(0, 1), []int{0, 1}, "eth0:-1[0][0 1] eth1:-1[1][0 1]", 1},
	} {
		all, notes, err := perCard(x.machine, x.cpus, two)
		must.Do(t, err)
		var got []string
		for _, i := range all {
			got = append(got, fmt.Sprintf("%s:%d%v%v", i.card.Device, i.Node, i.CPUs, i.Mems))
		}
		if strings.Join(got, " ") != x.want || len(notes) != x.notes {
			t.Errorf("%s: %s, want %s; notes %q", name, strings.Join(got, " "), x.want, notes)
		}
	}
}

// machineOf returns a machine of two nodes, with eth0 and eth1 on the given ones.
func machineOf(at ...int) nodes.Machine {
	return nodes.Machine{
		Nodes:   []numa.Node{{ID: 0, CPUs: []int{0, 1}, Memory: 1}, {ID: 1, CPUs: []int{2, 3}, Memory: 1}},
		Devices: []numa.Device{{Name: "eth0", Node: at[0]}, {Name: "eth1", Node: at[1]}},
	}
}

// TestInstancesOfCards: each card has an instance at its address, with its part of the threads and its
// own files. Each is filled and counted, and the counts are those of both.
func TestInstancesOfCards(t *testing.T) {
	s := onCards(t, `version: 1
title: instances
server:
  kind: command
  command: [served, $listen, $threads, $index, $scratch/a]
  files: {a: $address}
  threads: 4
  split: card
workload: {protocol: memcached, keys: 10}
load: {mode: closed, connections: 8}
variants: [{name: off}]
`, twoCards, twoNoise)
	h := &cardHosts{fakeHosts: fakes(map[string]any{"prefill": load.Result{Work: load.Work{Sets: 10, Stored: 10}}})}
	h.machine, h.processors = machineOf(0, 1), []int{0, 1, 2, 3}
	h.readings = []counters.Counters{servedCounters(0, 0), servedCounters(0, 10), servedCounters(5, 0),
		servedCounters(5, 10), servedCounters(7, 10), servedCounters(9, 10)}
	s.on = h
	r, err := s.StartServer(t.Context(), s.e.Variants[0])
	must.Do(t, err)
	var started []string
	for _, x := range r.Instances {
		started = append(started, fmt.Sprintf("%s%v%v%v", x.Device, x.CPUs, x.Mems, x.Command))
	}
	want := "eth0[0 1][0][served 10.0.0.1 2 0 /scratch/instance0/a] " +
		"eth1[2 3][1][served 10.1.0.1 2 1 /scratch/instance1/a]"
	if got := strings.Join(started, " "); got != want {
		t.Errorf("started %s\nwant %s", got, want)
	}
	if h.files["instance0/a"] != "10.0.0.1" || h.files["instance1/a"] != "10.1.0.1" {
		t.Errorf("files %v", h.files)
	}
	if got := strings.Join(h.asked, " "); got != "10.0.0.1:11211 10.1.0.1:11211" {
		t.Errorf("asked %s", got)
	}
	must.Do(t, s.Prefill(t.Context()))
	var filled []string
	for _, c := range h.all["prefill"] {
		filled = append(filled, c.(load.Config).Address)
	}
	if got := strings.Join(filled, " "); got != "10.0.0.1:11211 10.1.0.1:11211" {
		t.Errorf("filled %s", got)
	}
	sum, err := s.count(t.Context())
	if err != nil || sum.Gets.Value != 16 || sum.Sets.Value != 20 {
		t.Errorf("counted %+v, %v", sum, err)
	}
}

// cardHosts are fakeHosts whose SUT has two addresses.
type cardHosts struct{ *fakeHosts }

func (h *cardHosts) addresses() []string { return []string{"10.0.0.1", "10.1.0.1"} }
func (h *cardHosts) link() (int64, int)  { return 20e9, 1500 }
