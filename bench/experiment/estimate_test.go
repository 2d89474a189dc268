// SPDX-License-Identifier: Apache-2.0

package experiment_test

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
)

func TestExpand(t *testing.T) {
	values := map[string]string{experiment.NamePort: "80", experiment.NameAddress: "10.0.0.1"}
	for text, want := range map[string]string{
		"":                  "",
		"plain":             "plain",
		"$address:$port":    "10.0.0.1:80",
		"$$port is $port.":  "$port is 80.",
		"a$$":               "a$",
		"$port$port$$$port": "8080$80",
	} {
		if got, err := experiment.Expand(text, values); err != nil || got != want {
			t.Errorf("Expand(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"$":           "found $, want $address $port, or $$ for a dollar sign",
		"$ports":      "found $ports, want $address $port, or $$ for a dollar sign",
		"${port}":     "found $, want $address $port, or $$ for a dollar sign",
		"$port $home": "found $home, want $address $port, or $$ for a dollar sign",
	} {
		if got, err := experiment.Expand(text, values); err == nil || err.Error() != want {
			t.Errorf("Expand(%q) = %q, %v, want the error %q", text, got, err, want)
		}
	}
}

const second = int64(1e9)

// small has two variants, one of them with noise, and two rates. Its windows take 4 s.
const small = `version: 1
title: small
lab: {}
server: {kind: memcached}
workload: {protocol: memcached}
load: {rates: [1000, 2000], warmup: 1s, window: 3s}
noise:
  - {direction: to-sut, rate: 10%}
variants:
  - {name: a, noise: off}
  - {name: b}
repeats: {min: 5, max: 10, until: {percentile: 99}}
host-noise: {window: 1s}
`

func estimate(t *testing.T, text string) (e *experiment.Experiment, least, most int64) {
	t.Helper()
	f, err := experiment.Parse("small.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	least, most = experiment.Estimate(f.Experiment)
	return f.Experiment, least, most
}

// TestEstimate adds one feature after the other and checks how much time each adds.
func TestEstimate(t *testing.T) {
	e, least, most := estimate(t, small)
	if n, m := experiment.Windows(e); n != 20 || m != 40 {
		t.Errorf("%d to %d windows, want 20 to 40", n, m)
	}
	if want := (20*4 + 2) * second; least != want {
		t.Errorf("at least %d ns, want %d", least, want)
	}
	if windows := (40*4 + 2) * second; most <= windows || most > 2*windows {
		t.Errorf("at most %d ns, want somewhat more than the windows: %d", most, windows)
	}
	_, swept, sweptMost := estimate(t, small+"sweep: {variants: b, noise: [10%, 20%], switch-buffer: [64 KiB, 1 "+
		"MiB, 2 MiB], window: 2s}\n")
	if want := least + 6*3*second; swept != want || sweptMost <= most+6*3*second {
		t.Errorf("with a sweep %d to %d ns, want %d and more", swept, sweptMost, want)
	}
	s, searched, _ := estimate(t, strings.Replace(small, "rates: [1000, 2000], ", "", 1)+
		"search: {max-rate: {from: 1000, to: 16000, resolution: 10%}}\n")
	steps := experiment.SearchSteps(*s.Search)
	// 5 halvings of the ratio 16, as square roots: 4, 2, 1.41, 1.19, 1.09.
	if steps != 7 {
		t.Errorf("%d steps, want the bounds and 5 halvings", steps)
	}
	if want := (int64(2*3*5+2*steps)*4 + 2) * second; searched != want {
		t.Errorf("a search takes at least %d ns, want %d", searched, want)
	}
	_, searched, _ = estimate(t, strings.Replace(small, "rates: [1000, 2000], ", "", 1)+
		"search: {max-rate: {from: 1000, to: 16000, resolution: 10%}, variants: b}\n")
	if want := (int64(3*5+steps)*4 + 2) * second; searched != want {
		t.Errorf("a search of one variant takes at least %d ns, want %d", searched, want)
	}
	// P99.9 needs windows of 10.5 s at 1000 per second, and ten times as long at 10 % of that rate.
	long := strings.Replace(small, "rates: [1000, 2000], ", "", 1) +
		"sla: {percentile: 99.9, at: 1ms}\nsearch: {max-rate: {from: 1000, to: 16000, resolution: 10%}, variants: b}\n"
	e, _, slow := estimate(t, long)
	if got := experiment.SearchWindow(e, 1000); got != 10_500*int64(1e6) {
		t.Errorf("a window of %d ns at 1000/s, want 10.5 s", got)
	}
	if got := experiment.SearchWindow(e, 10_000); got != e.Load.Window {
		t.Errorf("a window of %d ns at 10000/s, want that of the load, %d", got, e.Load.Window)
	}
	_, _, short := estimate(t, strings.Replace(long, "99.9", "99", 1))
	if e.Load.Window != 3*second || slow-short <= int64(e.Repeats.Max)*100*second {
		t.Errorf("windows of %d ns; longer ones of the search take %d ns in all", e.Load.Window, slow-short)
	}
	// Several generators wait for a common start in each of the 40 windows: 0.25 s, and 0.5 ms for
	// each of the 1000 connections.
	_, _, together := estimate(t, strings.Replace(small, "warmup: 1s", "connections: 1000, generators: 2, warmup: 1s",
		1))
	if got, want := together-most, 40*750*int64(1e6); got != want {
		t.Errorf("two generators take %d ns more, want %d", got, want)
	}
	if n := experiment.Points(s.Load); n != 0 {
		t.Errorf("%d load points without rates", n)
	}
}

// caching fills a cache: it fetches 10 objects of 1 MB twice. At 400 Mbit/s this takes 400 ms, and
// 10 ms more for 10 objects. The run does not fetch the 5 objects that cannot be cached. It has 8
// windows of 4 s.
const caching = `version: 1
title: caching
lab: {}
server: {kind: command, command: [cached], port: 80}
workload:
  protocol: http
  prefill: on
  objects:
    - {path: /1000000/$n, copies: 10, bytes: 1000000}
    - {path: /x/$n, copies: 5, bytes: 1000000, cacheable: off}
load: {mode: closed, connections: [1, 2], warmup: 1s, window: 3s}
noise:
  - {direction: from-sut, rate: 10%}
variants:
  - {name: a, noise: off}
  - {name: b}
repeats: {min: 2}
host-noise: {window: 1s}
`

// TestEstimateOfStarts checks that each start of the server counts the time until the server
// answers and is filled, for each instance of a split server.
func TestEstimateOfStarts(t *testing.T) {
	const (
		ms   = int64(1e6)
		once = 1410 * ms // until the server answers and is filled
	)
	_, _, empty := estimate(t, strings.Replace(caching, "prefill: on", "prefill: off", 1))
	for _, tt := range []struct {
		name              string
		old, new          string
		most, perInstance int64 // time beyond that of empty, which has one start and no fill
	}{
		{"one server", "", "", once - 1000*ms, 0},
		{"a server for each variant", "{name: b}", "{name: b, server: {arguments: [-x]}}", 8*once - 1000*ms, 0},
		{"not filled", "prefill: on", "prefill: off", 0, 0},
		{"split", "port: 80", "port: 80, split: numa", once - 1000*ms, once},
		{"split, not filled", "port: 80}\nworkload:\n  protocol: http\n  prefill: on",
			"port: 80, split: numa}\nworkload:\n  protocol: http\n  prefill: off", 0, 1000 * ms},
	} {
		e, least, most := estimate(t, strings.Replace(caching, tt.old, tt.new, 1))
		if want := (8*4 + 2) * second; least != want {
			t.Errorf("%s: at least %d ns, want the windows: %d", tt.name, least, want)
		}
		if got := most - empty; got != tt.most {
			t.Errorf("%s: %d ns more than a server that is started once and not filled, want %d", tt.name, got, tt.most)
		}
		if got := experiment.PerInstance(e); got != tt.perInstance {
			t.Errorf("%s: %d ns for each further instance, want %d", tt.name, got, tt.perInstance)
		}
	}
	// Now the server is split, and variants have different servers. A sweep's windows also start it.
	both := strings.NewReplacer("port: 80", "port: 80, split: numa", "{name: b}",
		"{name: b, server: {arguments: [-x]}}").Replace(caching)
	e, _, most := estimate(t, both)
	if got := experiment.PerInstance(e); got != 8*once {
		t.Errorf("each instance is started with each window: %d ns, want %d", got, 8*once)
	}
	_, _, swept := estimate(t, both+"sweep: {variants: b, noise: [10%, 20%], window: 2s}\n")
	_, _, kept := estimate(t, strings.Replace(both, ", server: {arguments: [-x]}}", "}", 1)+
		"sweep: {variants: b, noise: [10%, 20%], window: 2s}\n")
	if got := swept - kept - (most - empty - once + 1000*ms); got != 2*once {
		t.Errorf("the sweep's two windows start it for %d ns, want %d", got, 2*once)
	}
}
