// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/lab/virtual"
)

// A generatorResult is one generator's result and its host.
type generatorResult struct {
	host string
	load.Result
}

// generate runs the generators of a window. The results of the probes follow those of the load.
func (m *measurement) generate(ctx context.Context, j Job) ([]generatorResult, error) {
	configs, err := generators(m.f, m.serverAddresses(), j)
	if err != nil {
		return nil, err
	}
	probes, err := m.probeLoads(j, len(configs))
	if err != nil {
		return nil, err
	}
	configs = append(configs, probes...)
	seats := m.on.seats(len(configs))
	start, err := m.together(ctx, seats, j)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx,
		time.Duration(m.e.Load.Lead(j.Connections)+j.Warmup+j.Window+2*m.e.Load.Timeout)+patience,
		errors.New("the generator did not end in time"))
	defer cancel()
	var running []task
	defer func() {
		for _, t := range running {
			_ = t.stop()
		}
	}()
	for i, c := range configs {
		at := seats[i]
		c.Setup, c.StartMono = at.Setup, start[at.host]
		if path := m.authorityOn(at.host); path != "" && c.TLS != nil {
			c.TLS.CAFile, c.TLS.Insecure = path, false
		}
		t, err := m.on.launch(ctx, launch{what: fmt.Sprintf("generator %d", i+1), host: at.host, part: "load",
			config: c,
			Place:  experiment.Place{CPUs: c.CPUs, FIFO: c.FIFO}})
		if err != nil {
			return nil, err
		}
		running = append(running, t)
	}
	var results []generatorResult
	for i, t := range running {
		r := generatorResult{host: seats[i].host}
		if err := t.result(ctx, &r.Result); err != nil {
			return nil, err
		}
		if r.Partial { // the generator was asked to end
			return nil, fmt.Errorf("%s was interrupted", t.name())
		}
		results = append(results, r)
	}
	return results, nil
}

// together returns a time at which all generators are to begin, on each host's own clock. For a
// single generator it returns nil.
func (m *measurement) together(ctx context.Context, seats []seat, j Job) (map[string]int64, error) {
	if len(seats) < 2 {
		return nil, nil
	}
	clocks, err := m.on.clocks(ctx)
	if err != nil {
		return nil, err
	}
	axis, err := clocks(ctx)
	if err != nil {
		return nil, err
	}
	now := thread.Monotonic()
	start := map[string]int64{}
	for _, s := range seats {
		start[s.host] = now + m.leadTime(j.Connections) + axis.ahead[s.host]
	}
	return start, nil
}

// leadTime returns the time in ns that generators get to connect before they begin. In virtual time,
// starting and connecting take almost none.
func (m *measurement) leadTime(connections int) int64 {
	if virtual.Here() {
		return int64(20 * time.Millisecond)
	}
	return m.e.Load.Lead(connections)
}

// apart is how far apart in ns generators may begin without a warning. It is 1 % of a window of the
// latency series, which has 100 ms.
const apart = 1e6

// merge converts the results to the common time axis and merges them.
func merge(results []generatorResult, x axis) (load.Result, error) {
	var all []load.Result
	var first, last, unsure int64
	for i, r := range results {
		shift(&r.Result, x.ahead[r.host])
		all = append(all, r.Result)
		if i == 0 {
			first, last = r.StartMono, r.StartMono
		}
		first, last = min(first, r.StartMono), max(last, r.StartMono)
		unsure = max(unsure, x.uncertainty[r.host])
	}
	sum, err := load.Merge(all...)
	if err != nil {
		return sum, err
	}
	if last-first > apart {
		sum.Warnings = append(sum.Warnings, fmt.Sprintf("the generators began %v apart: windows of the series "+
			"mix moments that are this far apart", time.Duration(last-first).Round(time.Microsecond)))
	}
	if unsure > apart {
		sum.Warnings = append(sum.Warnings, fmt.Sprintf("the hosts' clocks are known only to ± %v: noise and stalls "+
			"may be off by this much on the time axis", time.Duration(unsure).Round(time.Microsecond)))
	}
	return sum, nil
}

// shift converts all times of a result from the clock of its host to the common time axis. ahead is
// how far that clock is ahead of the axis, in ns; it is negative for a clock that is behind.
func shift(r *load.Result, ahead int64) {
	r.StartMono -= ahead
	for i := range r.Stalls {
		r.Stalls[i].AtMono -= ahead
	}
	for i := range r.Steps {
		shift(&r.Steps[i], ahead)
	}
}
