// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/part/cache"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/part/fetch"
	"github.com/niclane/niclane/bench/part/tune"
	"github.com/niclane/niclane/bench/result"
)

// TestRunStartsServersAnew: if the next window needs another server, the server is restarted and
// filled. If it needs the same server, the server is kept.
func TestRunStartsServersAnew(t *testing.T) {
	site := &fakeSite{}
	f := parse(t, "kind: niclane", "kind: memcached", "rates: [1000, 2000]", "rates: 1000",
		"  - {name: noisy}\n",
		"  - {name: noisy, tune: {symmetric-queues: on}}\n"+
			"  - {name: threads, server: {threads: 2, arguments: [-N, $threads]}}\n")
	r := ran(t, f, site)
	want := "up server prefill idle tune noisy noisy server prefill threads threads server prefill tune noisy noisy " +
		"idle down"
	if got := strings.Join(site.log, " "); got != want {
		t.Errorf("what was done:\n%s\nwant:\n%s", got, want)
	}
	if d := strings.Join(r.Variants[2].Differences, "\n"); !strings.Contains(d, "server: 2 threads; -N 2") ||
		!strings.Contains(d, "nothing tuned by hand") {
		t.Errorf("differences of threads: %s", d)
	}
	if d := strings.Join(r.Variants[1].Differences, "\n"); !strings.Contains(d, "tuned by hand: each transmit queue") ||
		strings.Count(d, "not tuned: rings") != 1 {
		t.Errorf("differences of noisy: %s", d)
	}
}

// TestRunGates: a window that fails a gate ends the run. The result then has the servers' output. A
// gate that only warns does not end the run.
func TestRunGates(t *testing.T) {
	reclaims := func(w *result.Window) { w.Machine = &machine.Diff{Memory: machine.Memory{Scanned: 7}} }
	site := &fakeSite{change: reclaims, logs: map[string]string{"the server": "what it said"}}
	r, err := Run(context.Background(), parse(t, "repeats:", "gates: {}\nrepeats:"), file, site, Options{})
	errtest.Says(t, "a gate", err, "repeat 1, idle: gate reclaim: page reclaim during the window: 7 pages")
	if r.Logs["the server"] != "what it said" {
		t.Errorf("logs %v", r.Logs)
	}
	site = &fakeSite{change: reclaims, logs: map[string]string{"the server": "what it said"}}
	r = ran(t, parse(t, "repeats:", "gates: {warn: [reclaim]}\nrepeats:"), site)
	if len(r.Windows) != 8 || len(r.Windows[7].Warnings) == 0 || r.Logs != nil {
		t.Errorf("that only warns: %d windows, logs %v", len(r.Windows), r.Logs)
	}
	if len(r.Warnings) == 0 || r.Warnings[0] != "gates that only warn here: reclaim" {
		t.Errorf("warnings %q", r.Warnings)
	}
}

func TestSetTune(t *testing.T) {
	m, h := faked(t)
	h.results["tune"] = tune.Result{} // once it is stopped
	h.results["tune, check"] = tune.Result{LeftOut: []string{"rings of lane0", "net.ipv4.tcp_mem"}}
	usecs := 50
	v := experiment.Variant{Tune: &experiment.Tune{Symmetric: true, Channels: "cores", RxUsecs: &usecs,
		Governor: "performance"}}
	var leftOut []string
	for range 2 {
		more, err := m.SetTune(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		leftOut = append(leftOut, more...)
	}
	if got := strings.Join(h.launched, "; "); got != "tune; tune, check" {
		t.Errorf("started: %s", got)
	}
	if got := strings.Join(leftOut, "\n"); got != "not tuned: governor performance: the lab leaves the machine as it is\n"+
		"not tuned: channels: cores: the lab's card has those of lab.queues\n"+
		"not tuned: rings of lane0, net.ipv4.tcp_mem: the lab's host or its card has no such setting" {
		t.Errorf("left out:\n%s", got)
	}
	want := tune.Config{Settings: tune.Settings{Symmetric: true, RxUsecs: &usecs}, Devices: []string{""}, Lenient: true}
	if got := h.configs["tune"]; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := m.SetTune(t.Context(), experiment.Variant{}); err != nil || !h.tasks["tune"].stopped {
		t.Errorf("not ended for a variant that tunes nothing: %v", err)
	}
	// A pod's node has an agent that may change no device.
	if c := tuning(&experiment.Tune{Governor: "performance"}, "eth0"); c.Devices != nil {
		t.Errorf("devices %v for a governor", c.Devices)
	}
	m.e.Hosts = &experiment.Hosts{}
	if _, err := m.SetTune(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	h.tasks["tune"].err = errors.New("another program has changed what was tuned")
	_, err := m.SetTune(t.Context(), experiment.Variant{})
	errtest.Says(t, "settings that did not stay", err, "another program has changed")
	if c, ok := h.configs["tune"].(tune.Config); !ok || c.Lenient || c.Channels != "cores" || c.Governor != "performance" {
		t.Errorf("on hosts: %+v", h.configs["tune"])
	}
}

const caching = `version: 1
title: a cache
lab: {}
server:
  kind: command
  command: [cached, $threads]
  user: nobody:nogroup
  port: 8443
  files: {cached.conf: "workers $threads"}
  cache: {kind: varnish, at: $scratch/x}
  beside:
    - {name: origin, host: noise, port: 18000, origin: on}
workload:
  protocol: http
  prefill: on
  objects:
    - {path: /100/$n, copies: 20, bytes: 100}
    - {path: /100/miss, bytes: 100, cacheable: off}
load: {mode: closed, connections: 4}
gates: {hits: 90%}
variants:
  - {name: off}
  - {name: many, server: {threads: 8, arguments: [-x, $port]}}
`

func TestCache(t *testing.T) {
	f, err := experiment.Parse("cache.yaml", []byte(caching))
	if err != nil {
		t.Fatal(err)
	}
	h := fakes(map[string]any{"counters of varnish": cache.Counters{Requests: 10, Hits: 9},
		"counters of origin": cache.Counters{Requests: 1, CPU: 5, Processors: 2}, "prefill": fetch.Result{}})
	m := &measurement{f: f, e: f.Experiment, on: h}
	r, err := m.StartServer(t.Context(), f.Experiment.Variants[1])
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(r.Command, " "), "cached 8 -x 8443"; got != want {
		t.Errorf("command %s, want %s", got, want)
	}
	if err := m.Prefill(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := m.countCaches(t.Context())
	if err != nil || len(c.caches) != 1 || c.origin == nil {
		t.Fatalf("%+v, %v", c, err)
	}
	var w result.Window
	cacheCounts{[]*cache.Counters{{Requests: 30, Hits: 27}},
		&cache.Counters{Requests: 3, CPU: 15, Processors: 2}}.since(c, &w)
	if w.Cache.Requests != 20 || w.Cache.Hits != 18 || w.Origin.Requests != 2 || w.Origin.CPU != 10 ||
		w.Origin.Processors != 2 {
		t.Errorf("cache %+v, origin %+v", w.Cache, w.Origin)
	}
	if got, want := strings.Join(h.launched, "; "),
		"origin; the server; counters of varnish; prefill; counters of varnish; counters of varnish; counters of origin"; got != want {
		t.Errorf("started: %s; want %s", got, want)
	}
	if c, ok := h.configs["prefill"].(fetch.Config); !ok || len(c.Objects) != 1 || c.Objects[0].Copies != 20 ||
		c.Passes != 2 {
		t.Errorf("prefill: %+v", h.configs["prefill"])
	}
}
