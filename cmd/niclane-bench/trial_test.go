// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/live/trial"
	"github.com/niclane/niclane/live/waits"
)

// TestTrialServices checks which services a trial of two files measures.
func TestTrialServices(t *testing.T) {
	run := func(ports []string, texts ...string) (*trialRun, error) {
		x := &trialRun{ports: ports, lanes: &trialLanes{}}
		for _, text := range texts {
			f, err := engine.Parse("lanes.yaml", []byte("version: 1\nglobals: {dev: eth0}\nlanes:\n"+text))
			must.Do(t, err)
			x.lanes.files = append(x.lanes.files, f)
		}
		return x, x.findServices(t.Context())
	}
	x, err := run([]string{"9100", "53/udp", "80"},
		"  web: {queues: 1, ports: [80, 443], addrs: [192.0.2.1]}\n  dns: {queues: 1, protocol: udp, ports: [53]}\n",
		"  web: {queues: 2, ports: [80], addrs: [192.0.2.2]}\n")
	must.Do(t, err)
	host := func(a string) netip.Prefix { return netip.PrefixFrom(netip.MustParseAddr(a), 32) }
	want := []waits.Target{
		{Name: "web", Lane: "web", Protocol: "tcp", Ports: []uint16{80, 443}, Addrs: []netip.Prefix{host("192.0.2.1"),
			host("192.0.2.2")}},
		{Name: "dns/udp", Lane: "dns", Protocol: "udp", Ports: []uint16{53}},
		{Name: "port 9100/tcp", Protocol: "tcp", Ports: []uint16{9100}}}
	if diff := cmp.Diff(want, x.targets, cmpopts.EquateComparable(netip.Prefix{}), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]trial.Service{{Name: "web"}, {Name: "dns/udp"}, {Name: "port 9100/tcp", Neighbour: true}},
		x.services); diff != "" {
		t.Error(diff)
	}
	if _, err := run([]string{"http"}, "  web: {queues: 1, ports: [80]}\n"); !cli.IsUsage(err) {
		t.Errorf("a port that is no number: %v", err)
	}
}

// TestTrialProgress checks what is shown where there is no terminal, and on one.
func TestTrialProgress(t *testing.T) {
	r := &result.Result{Trial: &result.Trial{}, Points: []result.Point{{Mode: result.Live, Service: "web"}},
		Variants: []result.Variant{{Name: withoutLanes}}}
	var b bytes.Buffer
	p := &trialProgress{out: &b}
	p.show(trial.Progress{Window: 1, Windows: 12, Variant: "without", Left: time.Minute, Result: &result.Result{}})
	if b.Len() > 0 {
		t.Errorf("before a round: %q", b.String())
	}
	p = &trialProgress{out: &b, terminal: true, rounds: 1}
	r.Points[0].Rounds = 1
	p.show(trial.Progress{Window: 3, Windows: 12, Variant: "lanes.yaml", Settling: true, Left: 49 * time.Second, Result: r})
	p.end()
	if want := "\r\033[Kwindow 3 of 12, switching to lanes.yaml, 49s left\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
