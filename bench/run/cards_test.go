// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/app/split"
	"github.com/niclane/niclane/bench/agent"
	"github.com/niclane/niclane/bench/experiment"
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

// cardHosts are fakeHosts whose SUT has two addresses.
type cardHosts struct{ *fakeHosts }

func (h *cardHosts) addresses() []string { return []string{"10.0.0.1", "10.1.0.1"} }
func (h *cardHosts) link() (int64, int)  { return 20e9, 1500 }
