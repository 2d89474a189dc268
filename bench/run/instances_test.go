// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/app/led"
	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/part/cache"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/part/fetch"
	"github.com/niclane/niclane/bench/part/nodes"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lab"
)

const splitCaching = `version: 1
title: a cache on each node
server:
  kind: command
  command: [cached, "-a", "127.0.0.1:608$index", -s, $storage/cache, $threads, $scratch/cached.conf]
  split: numa
  port: 8443
  threads: 5
  files: {cached.conf: "node $node of $instances, in $scratch"}
  cache: {kind: varnish, at: $scratch/x}
  beside:
    - {name: origin, host: noise, port: 18000, origin: on}
    - {name: front, host: sut, command: [front, "608$index"]}
workload:
  protocol: http
  prefill: on
  objects: [{path: /100/$n, copies: 20, bytes: 100}]
load: {mode: closed, connections: 4}
gates: {hits: 100%}
lab: {}
variants: [{name: off}]
`

// divided starts a server on a fake SUT and returns the measurement. m has the SUT's NUMA nodes, cpus
// are the server's processors.
func divided(t *testing.T, m nodes.Machine, cpus []int) (*measurement, *fakeHosts, result.Server) {
	t.Helper()
	x, h := undivided(t, m, cpus)
	r, err := x.StartServer(t.Context(), x.e.Variants[0])
	if err != nil {
		t.Fatal(err)
	}
	return x, h, r
}

// undivided returns a measurement on a fake SUT, whose server is not started. m has the SUT's NUMA
// nodes, cpus are the server's processors.
func undivided(t *testing.T, m nodes.Machine, cpus []int) (*measurement, *fakeHosts) {
	t.Helper()
	f, err := experiment.Parse("split.yaml", []byte(splitCaching))
	if err != nil {
		t.Fatal(err)
	}
	h := fakes(map[string]any{"connections to instances": led.Result{}, "connections of instances": led.Result{},
		"prefill": fetch.Result{Objects: 40}, "counters of origin": cache.Counters{}})
	h.machine, h.processors = m, cpus
	return &measurement{f: f, e: f.Experiment, on: h}, h
}

// leads returns the numbers of the instances to which connections were directed, in order. 0 stands
// for the node where a connection arrives.
func (h *fakeHosts) leads() (out []int) {
	for _, c := range h.all["connections to instances"] {
		out = append(out, c.(led.Config).Only)
	}
	return out
}

func TestInstances(t *testing.T) {
	m, h, r := divided(t, twoSockets(), []int{1, 2, 3, 5})
	if got, want := strings.Join(h.launched, "; "),
		"origin; front on node 0; front on node 1; the server on node 0; the server on node 1; "+
			"connections to instances; connections to instances; connections to instances"; got != want {
		t.Errorf("started %s, want %s", got, want)
	}
	for i, want := range []string{"cached -a 127.0.0.1:6080 -s /scratch/instance0/cache 3 " +
		"/scratch/instance0/cached.conf",
		"cached -a 127.0.0.1:6081 -s /scratch/instance1/cache 3 /scratch/instance1/cached.conf"} {
		if got := strings.Join(r.Instances[i].Command, " "); got != want {
			t.Errorf("command %s, want %s", got, want)
		}
	}
	want := map[string]string{"instance0/cached.conf": "node 0 of 2, in /scratch/instance0",
		"instance1/cached.conf": "node 1 of 2, in /scratch/instance1", "cached.conf": "node 0 of 2, in /scratch"}
	if diff := cmp.Diff(want, h.files); diff != "" {
		t.Errorf("files (-want +got)\n%s", diff)
	}
	for what, x := range map[string]struct{ cpus, mems []int }{
		"the server on node 0": {[]int{1, 2, 3}, []int{0}}, "the server on node 1": {[]int{5}, []int{1}},
		"front on node 1": {[]int{5}, []int{1}},
	} {
		if got := h.places[what]; !cmp.Equal(got.CPUs, x.cpus) || !cmp.Equal(got.mems, x.mems) {
			t.Errorf("%s: processors %v, memory %v", what, got.CPUs, got.mems)
		}
	}
	// All connections went to the first instance, then to the second, then where they arrive.
	if diff := cmp.Diff([]int{1, 2, 0}, h.leads()); diff != "" {
		t.Errorf("led (-want +got)\n%s", diff)
	}
	if got, want := strings.Join(h.asked, " "), "10.0.0.1:18000 10.0.0.1:8443 10.0.0.1:8443"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}

	// The instances are filled one after the other, and checked by their caches' counters.
	zero, full := cache.Counters{Requests: 1}, cache.Counters{Requests: 41}
	h.series["counters of varnish"] = []any{zero, zero, full, zero, full, zero, full, cache.Counters{Requests: 37}}
	clear(h.all)
	if err := m.Prefill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{1, 2, 0}, h.leads()); diff != "" {
		t.Errorf("led while filling (-want +got)\n%s", diff)
	}
	h.series["counters of varnish"] = []any{zero, zero, full, zero, full, zero}
	h.results["counters of varnish"] = cache.Counters{Requests: 45}
	synctest.Test(t, func(t *testing.T) {
		errtest.Says(t, "another instance had some", m.Prefill(t.Context()), "instance on node 1: the workload is "+
			"not proven: while 40 requests filled one instance's cache, the cache of the instance on node 0 counted 4, want 0")
	})
	few := cache.Counters{Requests: 36}
	h.series["counters of varnish"] = []any{zero, zero}
	h.results["counters of varnish"] = few
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		errtest.Says(t, "some went elsewhere", m.Prefill(t.Context()),
			"the cache of the instance on node 0 counted 35, want 40")
		if took := time.Since(began); took < countPatience {
			t.Errorf("given up after %v, want %v", took, countPatience)
		}
	})

	if err := m.stopServers(); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"the server on node 0", "the server on node 1", "front on node 0", "front on node 1",
		"origin"} {
		if !h.tasks[what].stopped {
			t.Errorf("%s goes on", what)
		}
	}
}

// TestInstancesOfAWindow: a window has the counts of each instance, and their sum.
func TestInstancesOfAWindow(t *testing.T) {
	m, h, _ := divided(t, twoSockets(), []int{1, 5})
	h.results["generator 1"] = generated(1e9)
	h.series["counters of varnish"] = []any{cache.Counters{Requests: 10, Hits: 5},
		cache.Counters{Requests: 20, Hits: 6}, cache.Counters{Requests: 40, Hits: 35},
		cache.Counters{Requests: 20, Hits: 6}}
	h.series["connections of instances"] = []any{led.Result{Arrival: 3, Hash: 1}, led.Result{Arrival: 7, Hash: 3}}
	h.diff.Processes = []machine.Process{
		{Name: "server on node 0", PID: 7, Running: 4, DiskRead: 100, Threads: 1},
		{Name: "server on node 1", Running: 5, DiskRead: 200, Threads: 2}, {Name: "other", Running: 9},
	}
	h.results["noise 1 to-sut, sender"] = noise.Result{}
	h.results["noise 1 to-sut, receiver"] = noise.Result{StartMono: 9e8, Interval: 1e8,
		Intervals: []int64{1e6, 1e6, 1e6, 1e6}, Duration: 4e8}
	h.launched = nil
	w, err := m.Measure(t.Context(), Job{Connections: 4, Window: 2e8,
		Noise: []experiment.Noise{{Direction: experiment.ToSUT, BitsPerSecond: 1e8, Flows: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	// The caches are read before the noise starts and after it has ended.
	const read = "counters of varnish; counters of varnish; counters of origin"
	if got := strings.Join(h.launched, "; "); !strings.HasPrefix(got, read+"; noise 1 to-sut, receiver; ") ||
		!strings.HasSuffix(got, "generator 1; connections of instances; "+read) || !h.tasks["noise 1 to-sut, sender"].stopped {
		t.Errorf("started %s", got)
	}
	if diff := cmp.Diff([]machine.Process{{Name: "other", Running: 9},
		{Name: "server", Running: 9, DiskRead: 300, Threads: 3}}, w.Machine.Processes); diff != "" {
		t.Errorf("processes (-want +got)\n%s", diff)
	}
	if w.Cache.Requests != 30 || w.Cache.Hits != 30 {
		t.Errorf("cache %+v", w.Cache)
	}
	if len(w.Instances) != 2 || w.Instances[0].Node != 0 || w.Instances[0].Process.DiskRead != 100 ||
		w.Instances[0].Cache.Hits != 30 ||
		w.Instances[1].Node != 1 || w.Instances[1].Process.Running != 5 || w.Instances[1].Cache.Requests != 0 {
		t.Errorf("instances %+v", w.Instances)
	}
	if w.Arrival == nil || *w.Arrival != (result.Arrival{Node: 4, Hash: 2}) {
		t.Errorf("arrival %+v", w.Arrival)
	}
	warnings := strings.Join(w.Warnings, "; ")
	errtest.Has(t, "warnings", warnings, "the kernel's hash chose the instance of 2 of 6 connections",
		"the instance on node 1 had no request")
	close(h.tasks["the server on node 1"].done)
	_, err = m.Measure(t.Context(), Job{Connections: 4, Window: 2e8})
	errtest.Says(t, "one has ended", err, "the server on node 1 has ended")
}

// TestMeasureEndsAtOnce: if an instance, an additional process or a host is lost, the window ends
// at once and does not wait for the generator. The error says which program was lost. In a synctest
// bubble, time advances only when all goroutines wait.
func TestMeasureEndsAtOnce(t *testing.T) {
	for who, want := range map[string]string{
		"the server on node 0": "the server on node 0 has ended: signal: killed",
		"the server on node 1": "the server on node 1 has ended: signal: killed",
		"front on node 1":      "front on node 1 has ended: signal: killed",
		"origin":               "origin has ended: signal: killed",
		"":                     "host client: the agent is lost",
	} {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, h, _ := divided(t, twoSockets(), []int{1, 5})
				h.results["counters of varnish"] = cache.Counters{}
				h.when["generator 1"] = func() {
					if who == "" {
						close(h.lostNow)
					} else {
						close(h.tasks[who].done)
					}
				}
				began := time.Now()
				_, err := m.Measure(t.Context(), Job{Connections: 4, Window: 2e8})
				if err == nil || err.Error() != want {
					t.Errorf("%v, want %q", err, want)
				}
				if took := time.Since(began); took != 0 || !h.tasks["generator 1"].stopped {
					t.Errorf("it went on for %v; generator ended: %v", took, h.tasks["generator 1"].stopped)
				}
			})
		})
	}
}

// TestOneNodeIsOneInstance: on a machine with one node, a split server has one instance, as without
// split. The result says so.
func TestOneNodeIsOneInstance(t *testing.T) {
	m, h, r := divided(t, nodes.Machine{Nodes: twoSockets().Nodes[:1],
		Devices: []numa.Device{{Name: lab.Port, Node: -1}}}, []int{1, 2})
	if got, want := strings.Join(h.launched, "; "), "origin; front; the server"; got != want {
		t.Errorf("started %s, want %s", got, want)
	}
	if got, want := strings.Join(h.argv, " "),
		"cached -a 127.0.0.1:6080 -s /scratch/cache 5 /scratch/cached.conf"; got != want {
		t.Errorf("command %s, want %s", got, want)
	}
	if len(r.Instances) != 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "one instance, nothing is divided") {
		t.Errorf("instances %v, notes %q", r.Instances, r.Notes)
	}
	// The cache counts what filled it later: before the first window, niclane waits for it.
	h.series["counters of varnish"] = []any{cache.Counters{Requests: 3}, cache.Counters{Requests: 3},
		cache.Counters{Requests: 20}, cache.Counters{Requests: 43}}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := m.Prefill(t.Context()); err != nil || len(h.leads()) != 0 || time.Since(began) != 200*time.Millisecond {
			t.Errorf("filled: %v after %v, led %v", err, time.Since(began), h.leads())
		}
	})
}

// TestDescribeSplit: Describe says how much longer a run takes on several nodes.
func TestDescribeSplit(t *testing.T) {
	for text, want := range map[string]string{
		splitCaching: " at most, and 1s more for each further NUMA node that the server is on; limit ",
		strings.Replace(splitCaching, "  split: numa\n", "", 1): " at most; limit ",
	} {
		f, err := experiment.Parse("split.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := Describe(&b, f); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%v, want %q in\n%s", err, want, b.String())
		}
	}
}
