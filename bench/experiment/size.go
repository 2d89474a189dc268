// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"slices"
	"time"

	y "github.com/niclane/niclane/internal/strictyaml"
)

// Sizes make an experiment smaller. The file's own numbers are meant for real hosts.
type Sizes struct {
	// Lab applies if the experiment runs in the lab, Virtual with Options.Virtual, and Quick with
	// Options.Quick, in this order. Quick is small enough for virtual time too: it replaces Virtual.
	Lab     *Size `json:"lab,omitempty"`
	Virtual *Size `json:"virtual,omitempty"`
	Quick   *Size `json:"quick,omitempty"`
}

// A Size replaces numbers of a file. A field that is zero changes nothing.
type Size struct {
	// LinkRate and LabQueues replace the lab's link-rate, in bit/s, and queues.
	LinkRate  uint64 `json:"linkRateBitsPerSecond,omitempty"`
	LabQueues int    `json:"labQueues,omitempty"`
	// Frames turns the lab's frames on.
	Frames      bool   `json:"frames,omitempty"`
	Connections []int  `json:"connections,omitempty"`
	Rates       []int  `json:"ratesPerSecond,omitempty"`
	Generators  int    `json:"generators,omitempty"`
	Keys        int    `json:"keys,omitempty"`
	Copies      int    `json:"copies,omitempty"` // for objects with more copies than this
	Threads     int    `json:"threads,omitempty"`
	Queues      int    `json:"queues,omitempty"`
	Pollers     int    `json:"pollers,omitempty"`
	Memory      int64  `json:"memoryBytes,omitempty"`
	Warmup      *int64 `json:"warmupNs,omitempty"`
	Window      int64  `json:"windowNs,omitempty"`
	// FIFO is the SCHED_FIFO priority of the server and of the generators.
	FIFO int `json:"fifoPriority,omitempty"`
	// Repeats is the exact number of repeats of each variant: the least and the most.
	Repeats int `json:"repeats,omitempty"`
	// Variants are the names of the variants to measure; nil: all.
	Variants []string `json:"variants,omitempty"`
	// MaxRate replaces the bounds of the search. NoSearch removes the search.
	MaxRate  *Bounds `json:"maxRate,omitempty"`
	NoSearch bool    `json:"noSearch,omitempty"`
	// Warn replaces the list of gates that only warn.
	Warn []string `json:"warn,omitempty"`
}

// Bounds are the lowest and the highest rate of a search, and its resolution.
type Bounds struct {
	From int `json:"fromPerSecond"`
	To   int `json:"toPerSecond"`
	// Resolution is a share of the rate, in permille.
	Resolution int `json:"resolutionPermille"`
}

// QuickLimit is the longest time, in ns, that an experiment with Options.Quick may take. The time is
// computed by Estimate.
const QuickLimit = int64(3 * time.Minute)

func sizesKeys() []y.Key[Sizes] {
	return []y.Key[Sizes]{
		y.Of("lab", size(), "the file as it is",
			"Numbers for the lab. The file's own numbers are then for hosts.",
			func(s *Sizes, x Size) { s.Lab = &x }),
		y.Of("virtual", size(), "those of `lab`",
			"Numbers for `--virtual` without `--quick`, applied after `lab`: the paper's link and queues.",
			func(s *Sizes, x Size) { s.Virtual = &x }),
		y.Of("quick", size(), "there is no quick form",
			"Numbers for `--quick`, applied after `lab`. The run must take less than 3 minutes.",
			func(s *Sizes, x Size) { s.Quick = &x }),
	}
}

func sizes() y.Kind[Sizes] {
	return y.Nested("sizes", "a mapping of keys: lab, virtual, quick", sizesKeys, func() Sizes { return Sizes{} })
}

func sizeKeys() []y.Key[Size] {
	return []y.Key[Size]{
		y.Of("link-rate", y.BitRate(), "as it is",
			"`lab.link-rate`.",
			func(s *Size, x uint64) { s.LinkRate = x }),
		y.Of("lab-queues", y.Integer(1, maxLabQueues), "as they are",
			"`lab.queues`.",
			func(s *Size, x int) { s.LabQueues = x }),
		y.Of("frames", y.Boolean(), "as it is",
			"On: `lab.frames`.",
			func(s *Size, x bool) { s.Frames = x }),
		y.Of("connections", y.Series("connections", 1, maxConnections, maxPoints), "as it is",
			"`load.connections`.",
			func(s *Size, x []int) { s.Connections = x }),
		y.Of("rates", y.Series("requests per second", 1, maxRate, maxPoints), "as it is",
			"`load.rates`.",
			func(s *Size, x []int) { s.Rates = x }),
		y.Of("generators", y.Integer(1, maxGenerators), "as it is",
			"`load.generators`, in the lab.",
			func(s *Size, x int) { s.Generators = x }),
		y.Of("keys", y.Integer(1, 100_000_000), "as it is",
			"`workload.keys`.",
			func(s *Size, x int) { s.Keys = x }),
		y.Of("copies", y.Integer(2, 10_000_000), "as it is",
			"`copies` of every object that has more.",
			func(s *Size, x int) { s.Copies = x }),
		y.Of("threads", y.Integer(1, maxThreads), "as it is",
			"`server.threads`, in variants too.",
			func(s *Size, x int) { s.Threads = x }),
		y.Of("queues", y.Integer(1, maxQueues), "as it is",
			"`server.queues`.",
			func(s *Size, x int) { s.Queues = x }),
		y.Of("pollers", y.Integer(1, maxQueues), "as it is",
			"`server.pollers`.",
			func(s *Size, x int) { s.Pollers = x }),
		y.Of("memory", y.Size(1<<20, 1<<44), "as it is",
			"`server.memory`.",
			func(s *Size, x int64) { s.Memory = x }),
		y.Of("warmup", y.Duration(0, time.Hour), "as it is",
			"`load.warmup`.",
			func(s *Size, x int64) { s.Warmup = &x }),
		y.Of("window", y.Duration(time.Millisecond, 24*time.Hour), "as it is",
			"`load.window`.",
			func(s *Size, x int64) { s.Window = x }),
		y.Of("fifo", y.Integer(1, 99), "as it is",
			"`fifo` of server and generator in `placement`. With few processors, they share processors with the "+
				"noise. On hosts, the noise has its own.",
			func(s *Size, x int) { s.FIFO = x }),
		y.Of("repeats", y.Integer(1, maxRepeats), "as they are",
			"Exact number of `repeats`.",
			func(s *Size, x int) { s.Repeats = x }),
		y.Of("variants", y.OneOrList(name(), 32), "all of them",
			"Names of the variants to measure.",
			func(s *Size, x []string) { s.Variants = x }),
		y.Of("max-rate", boundsOf(), "as it is",
			"`search.max-rate`.",
			func(s *Size, x Bounds) { s.MaxRate = &x }),
		y.Of("search", y.Boolean(), "on where there is `search`",
			"Off: no search.",
			func(s *Size, x bool) { s.NoSearch = !x }),
		y.Of("warn", y.OneOrList(y.Word(Gates...), len(Gates)), "as they are",
			"`gates.warn`.",
			func(s *Size, x []string) { s.Warn = x }),
	}
}

func size() y.Kind[Size] {
	return y.Nested("size", "a mapping of keys: connections, rates, window, repeats, ...", sizeKeys,
		func() Size { return Size{} })
}

// resize applies the sizes and the scale that the run asked for. It must run before defaults are
// completed.
func (r *reader) resize() {
	if r.virtual {
		r.e.Power = nil
	}
	s := r.e.Sizes
	if s != nil {
		r.checkSizes()
		if s.Lab != nil && r.on == nil {
			r.take(s.Lab, "sizes.lab")
		}
		if s.Virtual != nil && r.virtual && !r.quick {
			r.take(s.Virtual, "sizes.virtual")
		}
		if s.Quick != nil && r.quick {
			r.take(s.Quick, "sizes.quick")
		}
	}
	if r.quick && (s == nil || s.Quick == nil) {
		r.Failf("", "sizes.quick is missing, want it for a run with --quick")
	}
	r.perClient()
	if r.scale > 0 {
		for i, n := range r.e.Load.Connections {
			r.e.Load.Connections[i] = max(1, n*r.scale/1000)
		}
		r.e.Load.Connections, r.e.Load.ConnectionsPerClient = slices.Compact(r.e.Load.Connections), nil
		if c := r.e.Load.Connections; len(c) > 0 {
			r.e.Load.Generators = min(r.e.Load.Generators, c[0])
		}
	}
}

// perClient replaces numbers of connections for each client by those of all clients.
func (r *reader) perClient() {
	clients := 1
	if r.on != nil {
		clients = len(r.on.Clients)
	}
	l := &r.e.Load
	if l.ConnectionsPerClient == nil {
		return
	}
	if r.Given("load.connections") {
		r.Failf("load.connections-per-client", "found beside connections (line %d), want one of the two",
			r.Line("load.connections"))
		return
	}
	l.Connections = nil
	for _, n := range l.ConnectionsPerClient {
		if n *= clients; n > maxConnections {
			r.Failf("load.connections-per-client", "found %d in all for %d clients, want at most %d", n, clients,
				maxConnections)
			return
		}
		l.Connections = append(l.Connections, n)
	}
}

// checkSizes reports sizes that name an unknown variant, or bounds for a search that the file
// lacks.
func (r *reader) checkSizes() {
	for _, x := range []struct {
		path string
		*Size
	}{{"sizes.lab", r.e.Sizes.Lab}, {"sizes.virtual", r.e.Sizes.Virtual}, {"sizes.quick", r.e.Sizes.Quick}} {
		if x.Size == nil {
			continue
		}
		for _, n := range x.Variants {
			r.variant(x.path+".variants", n)
		}
		if x.MaxRate != nil && r.e.Search == nil {
			r.Failf(x.path+".max-rate", "found without search, want search at the top of the file")
		}
	}
}

func (r *reader) take(s *Size, path string) {
	e := &r.e
	e.Sized = append(e.Sized, path)
	if s.Connections != nil {
		e.Load.Connections, e.Load.ConnectionsPerClient = slices.Clone(s.Connections), nil
	}
	if s.Rates != nil {
		e.Load.Rates = slices.Clone(s.Rates)
	}
	if e.Lab != nil {
		set(&e.Lab.LinkRate, s.LinkRate)
		set(&e.Lab.Queues, s.LabQueues)
		set(&e.Lab.Frames, s.Frames)
	}
	set(&e.Load.Generators, s.Generators)
	set(&e.Workload.Keys, s.Keys)
	set(&e.Server.Memory, s.Memory)
	set(&e.Server.Queues, s.Queues)
	set(&e.Server.Pollers, s.Pollers)
	set(&e.Load.Window, s.Window)
	set(&e.Placement.Server.FIFO, s.FIFO)
	set(&e.Placement.Generator.FIFO, s.FIFO)
	if s.Warmup != nil {
		e.Load.Warmup = *s.Warmup
	}
	if s.Copies > 0 {
		for i := range e.Workload.Objects {
			if o := &e.Workload.Objects[i]; o.Copies > s.Copies {
				o.Copies = s.Copies
			}
		}
	}
	if s.Threads > 0 {
		e.Server.Threads = s.Threads
		r.sameThreads(s.Threads)
	}
	if s.Repeats > 0 {
		e.Repeats = Repeats{Min: s.Repeats, Max: s.Repeats}
	}
	if s.MaxRate != nil && e.Search != nil {
		e.Search.From, e.Search.To, e.Search.Resolution = s.MaxRate.From, s.MaxRate.To, s.MaxRate.Resolution
	}
	if s.NoSearch {
		e.Search = nil
	}
	if s.Warn != nil && e.Gates != nil {
		e.Gates.Warn = s.Warn
	}
	if s.Variants != nil {
		r.only(s.Variants)
	}
}

// only notes which variants to keep, and removes goals, searches and sweeps of all others. leave
// removes the variants later, after all variants are checked.
func (r *reader) only(names []string) {
	e := &r.e
	r.left = slices.Clone(names) // the list of sizes.quick replaces that of sizes.lab
	keep := func(n string) bool { return n == "" || slices.Contains(names, n) }
	if !keep(e.Base) {
		e.Base = ""
	}
	e.Goals = slices.DeleteFunc(e.Goals, func(g Goal) bool { return !keep(g.Variant) || !keep(g.Base) })
	if s := e.Search; s != nil && len(s.Variants) > 0 {
		s.Variants = slices.DeleteFunc(s.Variants, func(n string) bool { return !keep(n) })
		if len(s.Variants) == 0 {
			e.Search = nil
		}
	}
	if e.Sweep != nil {
		e.Sweep.Variants = slices.DeleteFunc(e.Sweep.Variants, func(n string) bool { return !keep(n) })
		if len(e.Sweep.Variants) == 0 {
			e.Sweep = nil
		}
	}
}

// leave removes the variants that only did not keep. It runs after all variants are checked.
func (r *reader) leave() {
	if r.left == nil || len(r.Errors()) > 0 {
		return
	}
	r.e.Variants = slices.DeleteFunc(r.e.Variants, func(v Variant) bool { return !slices.Contains(r.left, v.Name) })
	if !slices.ContainsFunc(r.e.Variants, func(v Variant) bool { return v.Name == r.e.Base }) {
		r.e.Base = r.e.Variants[0].Name
	}
}

func set[T comparable](to *T, x T) {
	var zero T
	if x != zero {
		*to = x
	}
}

// checkQuick refuses an experiment with Options.Quick that takes longer than QuickLimit.
func (r *reader) checkQuick() {
	if !r.quick || len(r.Errors()) > 0 {
		return
	}
	if _, most := Estimate(&r.e); most > QuickLimit {
		r.Failf("sizes.quick", "takes about %s, want less than %s: fewer or shorter windows", roundUp(most),
			fmt.Sprint(time.Duration(QuickLimit)))
	}
}
