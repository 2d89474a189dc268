// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/counters"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/part/nodes"
	"github.com/niclane/niclane/bench/part/ready"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lab"
)

// fakeHosts are hosts on which nothing runs. A started process returns at once the result that
// results has for its name. Without a result, it does not end by itself.
type fakeHosts struct {
	results  map[string]any   // by the process's name
	fails    map[string]error // errors in place of results
	refuses  map[string]error // errors of the start
	readings []counters.Counters
	lostNow  chan struct{}
	hops     error
	// machine has the SUT's NUMA nodes, processors are the server's processors.
	machine    nodes.Machine
	processors []int
	stored     map[int]string
	// when has functions that are called when a process starts, by the process's name.
	when map[string]func()

	// series has several results, one for each start, by the process's name. They are used before
	// those in results.
	series map[string][]any
	diff   machine.Diff // the result of counting

	launched []string
	all      map[string][]any  // configs, by the process's name
	places   map[string]launch // launches, by the process's name
	files    map[string]string // files that were written, by name
	asked    []string
	argv     []string // of the last command that was started
	configs  map[string]any
	tasks    map[string]*fakeTask
	read     int // number of reads of the counters
}

func (h *fakeHosts) seats(n int) (out []seat) {
	for range n {
		out = append(out, seat{host: lab.Client})
	}
	return out
}
func (h *fakeHosts) addressOf(host string) string { return "10.0.0.1" }
func (h *fakeHosts) addresses() []string          { return []string{"10.0.0.1"} }
func (h *fakeHosts) link() (int64, int)           { return 1e9, 1500 }
func (h *fakeHosts) names() map[string]string     { return nil }
func (h *fakeHosts) scratchOf(string) string      { return "/scratch" }
func (h *fakeHosts) put(_ context.Context, _, name string, text []byte, _ bool) error {
	h.files[name] = string(text)
	return nil
}
func (h *fakeHosts) ask(_ context.Context, _, address string, _ ready.Question) error {
	h.asked = append(h.asked, address)
	return nil
}
func (h *fakeHosts) find(_ context.Context, _, p string) (string, string, error) { return p, "", nil }
func (h *fakeHosts) lost() <-chan struct{}                                       { return h.lostNow }
func (h *fakeHosts) queueing(context.Context) func() ([]result.Hop, error) {
	return func() ([]result.Hop, error) { return nil, h.hops }
}
func (h *fakeHosts) counting(context.Context, map[string]task) (func(context.Context) (machine.Diff, error), error) {
	return func(context.Context) (machine.Diff, error) {
		d := h.diff
		d.Duration = 1
		return d, nil
	}, nil
}
func (h *fakeHosts) nodes(context.Context) (nodes.Machine, []int, error) {
	return h.machine, h.processors, nil
}
func (h *fakeHosts) storage() map[int]string { return h.stored }
func (h *fakeHosts) clocks(context.Context) (func(context.Context) (axis, error), error) {
	return func(context.Context) (axis, error) { return axis{}, nil }, nil
}
func (h *fakeHosts) gone() error {
	select {
	case <-h.lostNow:
		return errors.New("host client: the agent is lost")
	default:
		return nil
	}
}
func (h *fakeHosts) served(context.Context, load.Config) (counters.Counters, error) {
	h.read++
	return h.readings[min(h.read, len(h.readings))-1], nil
}

func (h *fakeHosts) launch(_ context.Context, l launch) (task, error) {
	h.launched, h.argv = append(h.launched, l.what), l.argv
	h.all[l.what], h.places[l.what] = append(h.all[l.what], l.config), l
	value := h.results[l.what]
	if s := h.series[l.what]; len(s) > 0 {
		value, h.series[l.what] = s[0], s[1:]
	}
	h.configs[l.what] = l.config
	if err := h.refuses[l.what]; err != nil {
		return nil, err
	}
	t := &fakeTask{what: l.what, value: value, err: h.fails[l.what], done: make(chan struct{})}
	h.tasks[l.what] = t
	if happens := h.when[l.what]; happens != nil {
		happens()
	}
	return t, nil
}

type fakeTask struct {
	what    string
	value   any // nil: it does not end by itself
	err     error
	done    chan struct{} // closed when it has died
	stopped bool
}

func (t *fakeTask) name() string          { return t.what }
func (t *fakeTask) stop() error           { t.stopped = true; return nil }
func (t *fakeTask) over() <-chan struct{} { return t.done }
func (t *fakeTask) ended() error {
	select {
	case <-t.done:
		return fmt.Errorf("%s has ended: signal: killed", t.what)
	default:
		return nil
	}
}
func (t *fakeTask) result(ctx context.Context, into any) error {
	if t.err != nil {
		return t.err
	}
	if t.value == nil {
		<-ctx.Done()
		return fmt.Errorf("%s: %w", t.what, context.Cause(ctx))
	}
	b, err := json.Marshal(t.value)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// fakes returns fake hosts on which processes have these results.
func fakes(results map[string]any) *fakeHosts {
	return &fakeHosts{results: results, fails: map[string]error{}, refuses: map[string]error{},
		when: map[string]func(){}, series: map[string][]any{}, tasks: map[string]*fakeTask{},
		lostNow: make(chan struct{}), files: map[string]string{}, configs: map[string]any{},
		all: map[string][]any{}, places: map[string]launch{}}
}

// servedCounters returns memcached's counters after the given numbers of gets and sets. All gets are
// hits.
func servedCounters(gets, sets int64) counters.Counters {
	return counters.Counters{Gets: counters.Counter{Name: "cmd_get", Value: gets},
		Sets: counters.Counter{Name: "cmd_set", Value: sets},
		Hits: counters.Counter{Name: "get_hits", Value: gets}, Misses: counters.Counter{Name: "get_misses"}}
}

// faked returns a measurement on fake hosts. Its server runs, and its generator has sent 90 gets
// and 10 sets.
func faked(t *testing.T, replace ...string) (*measurement, *fakeHosts) {
	t.Helper()
	g := generated(1e9)
	g.Work = load.Work{Gets: 90, Sets: 10, GetHits: 90, Stored: 10}
	prefill := load.Result{Work: load.Work{Sets: 10_000, Stored: 10_000, Prefilled: 10_000}}
	h := fakes(map[string]any{"generator 1": g, "prefill": prefill,
		"noise 1 to-sut, sender": noise.Result{},
		"noise 1 to-sut, receiver": noise.Result{StartMono: 9e8, Interval: 1e8,
			Intervals: []int64{1e6, 1e6, 1e6, 1e6}, Duration: 4e8}})
	h.readings = []counters.Counters{servedCounters(1000, 0), servedCounters(1090, 10)}
	f := parse(t, replace...)
	m := &measurement{f: f, e: f.Experiment, on: h}
	if _, err := m.StartServer(t.Context(), experiment.Variant{}); err != nil {
		t.Fatal(err)
	}
	h.launched = nil
	return m, h
}

func TestMeasure(t *testing.T) {
	m, h := faked(t)
	w, err := m.Measure(t.Context(), Job{Rate: 1000, Connections: 4, Window: 2e8, Noise: m.e.Noise})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(h.launched, "; "),
		"noise 1 to-sut, receiver; noise 1 to-sut, sender; generator 1"; got != want {
		t.Errorf("started: %s; want %s", got, want)
	}
	if len(w.Counts) != 3 || w.Counts[0] != (result.Count{Name: gets, Sent: 90, Served: 90}) ||
		w.Load.Completed != 100 || w.Machine == nil {
		t.Errorf("%+v, %d completed", w.Counts, w.Load.Completed)
	}
	// The noise had 1 MB in each interval of 100 ms. Only the intervals in the window count.
	if len(w.Noise) != 1 || w.Noise[0].Achieved != 80_000_000 || !h.tasks["noise 1 to-sut, sender"].stopped {
		t.Errorf("noise %+v", w.Noise)
	}
}

// TestMeasureRefuses: the error names what ended the window, and the other processes are ended.
func TestMeasureRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(m *measurement, h *fakeHosts)
		want  string
	}{
		"another workload": {func(_ *measurement, h *fakeHosts) { h.readings[1] = servedCounters(1050, 50) },
			"the workload is not proven: server counted 50 cmd_get, generator has 90 gets sent\nserver counted 50 " +
				"cmd_set"},
		"server started again": {func(_ *measurement, h *fakeHosts) { h.readings[1] = servedCounters(3, 10) },
			"cmd_get fell from 1000 to 3: the server was started again"},
		"server died before": {func(_ *measurement, h *fakeHosts) { close(h.tasks["the server"].done) },
			"the server has ended: signal: killed"},
		// Without a server, the generator would wait for answers.
		"server dies": {func(_ *measurement, h *fakeHosts) {
			delete(h.results, "generator 1")
			h.when["generator 1"] = func() { close(h.tasks["the server"].done) }
		}, "the server has ended: signal: killed"},
		"server's end is reported late": {func(_ *measurement, h *fakeHosts) {
			h.fails["generator 1"] = errors.New("generator 1: connection reset by peer")
			h.when["generator 1"] = func() {
				time.AfterFunc(50*time.Millisecond, func() { close(h.tasks["the server"].done) })
			}
		}, "the server has ended: signal: killed"},
		"host lost": {func(_ *measurement, h *fakeHosts) {
			delete(h.results, "generator 1")
			h.when["generator 1"] = func() { close(h.lostNow) }
		}, "host client: the agent is lost"},
		"generator killed": {func(_ *measurement, h *fakeHosts) {
			h.fails["generator 1"] = errors.New("generator 1: signal: killed")
		}, "generator 1: signal: killed"},
		"generator interrupted": {func(_ *measurement, h *fakeHosts) {
			g := generated(1e9)
			g.Partial = true
			h.results["generator 1"] = g
		}, "generator 1 was interrupted"},
		"no generator": {func(_ *measurement, h *fakeHosts) {
			h.refuses["generator 1"] = errors.New("start generator 1: no such file")
		}, "start generator 1: no such file"},
		"no sender": {func(_ *measurement, h *fakeHosts) {
			h.refuses["noise 1 to-sut, sender"] = errors.New("no sender")
		}, "no sender"},
		"queues unread": {func(_ *measurement, h *fakeHosts) { h.hops = errors.New("queues on the way: gone") },
			"queues on the way: gone"},
		"noise too late": {func(_ *measurement, h *fakeHosts) {
			h.results["noise 1 to-sut, receiver"] = noise.Result{StartMono: 9e9, Interval: 1e8, Intervals: []int64{1}}
		}, "noise 1 to-sut, receiver: no noise in the time in which latency was counted"},
	} {
		m, h := faked(t)
		c.spoil(m, h)
		_, err := m.Measure(t.Context(), Job{Rate: 1000, Connections: 4, Window: 2e8, Noise: m.e.Noise})
		errtest.Says(t, name, err, c.want)
		for what, x := range h.tasks {
			if strings.HasPrefix(what, "noise") && !x.stopped {
				t.Errorf("%s: %s goes on", name, what)
			}
		}
	}
}

// TestPrefillIsProven: Prefill fails if a key is not stored, or if a key was not set exactly once.
func TestPrefillIsProven(t *testing.T) {
	filled := []counters.Counters{servedCounters(0, 0), servedCounters(0, 10_000)}
	for name, c := range map[string]struct {
		spoil func(h *fakeHosts)
		want  string
	}{
		"filled": {func(*fakeHosts) {}, ""},
		"no room": {func(h *fakeHosts) {
			h.results["prefill"] = load.Result{FirstError: "SERVER_ERROR out of memory",
				Work: load.Work{Sets: 10_000, Stored: 7}}
		}, "7 of 10000 keys were stored: SERVER_ERROR out of memory"},
		"somebody else": {func(h *fakeHosts) { h.readings[1].Sets.Value = 10_003 },
			"the workload is not proven: server counted 10003 cmd_set, generator has 10000 sets sent"},
		"no generator": {func(h *fakeHosts) { h.refuses["prefill"] = errors.New("not allowed") }, "not allowed"},
		"server dies": {func(h *fakeHosts) {
			h.fails["prefill"] = errors.New("prefill: connection reset")
			close(h.tasks["the server"].done)
		}, "the server has ended"},
	} {
		m, h := faked(t, "workload: {protocol: memcached, get-set: 9:1}",
			"workload: {protocol: memcached, get-set: 9:1, keys: 10000}")
		h.readings = append([]counters.Counters{}, filled...)
		c.spoil(h)
		errtest.Says(t, name, m.Prefill(t.Context()), c.want)
	}
}

// TestMemcachedHasFilesForItsThreads: memcached uses its limit of connections as its limit of open
// files. The limit must be high enough for the files of its threads too.
func TestMemcachedHasFilesForItsThreads(t *testing.T) {
	f := parse(t, "kind: niclane", "kind: memcached", "connections: 4", "connections: 4400")
	f.Experiment.Server.Threads = 110
	h := fakes(nil)
	m := &measurement{f: f, e: f.Experiment, on: h}
	if _, err := m.StartServer(context.Background(), f.Experiment.Variants[0]); err != nil {
		t.Fatal(err)
	}
	// memcached 1.6.18 with 110 threads and no connection has 449 open files.
	if got, want := strings.Join(h.argv, " "), "-t 110 -c 5344 "; !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestHashPower: by memcached's own rule, the hash table has room for the keys and does not grow.
func TestHashPower(t *testing.T) {
	for keys, want := range map[int]int{1: 16, 98304: 16, 98305: 17, 500_000: 19, 786_432: 19, 786_433: 20} {
		if got := hashPower(keys); got != want {
			t.Errorf("%d keys: %d, want %d", keys, got, want)
		}
	}
}
