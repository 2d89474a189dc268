// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/counters"
	"github.com/niclane/niclane/lab"
)

// Prefill sets every key, or fetches every object, and proves it by the server's counters.
func (m *measurement) Prefill(ctx context.Context) error {
	if len(m.e.Workload.Objects) > 0 {
		return m.because(m.fetchEach(ctx))
	}
	for i, x := range m.contents() {
		if err := m.fill(ctx, x, m.on.seats(i + 1)[i]); err != nil {
			return m.because(err)
		}
	}
	return m.because(m.fillProbes(ctx))
}

// fill sets every key of an instance by a generator at a seat.
func (m *measurement) fill(ctx context.Context, x *instance, at seat) error {
	c, err := filler(m.f, m.addressOf(x))
	if err != nil {
		return err
	}
	c.Setup = at.Setup
	before, err := m.countOf(ctx, x)
	if err != nil {
		return err
	}
	var r load.Result
	if err := outcome(ctx, m.on, launch{what: "prefill", host: at.host, part: "load", config: c,
		Place: experiment.Place{CPUs: c.CPUs, FIFO: c.FIFO}}, &r); err != nil {
		return err
	}
	after, err := m.countOf(ctx, x)
	if err != nil {
		return err
	}
	if r.Work.Stored < int64(m.e.Workload.Keys) {
		return fmt.Errorf("%d of %d keys were stored: %s", r.Work.Stored, m.e.Workload.Keys, r.FirstError)
	}
	return unproven(errors.Join(counters.Compare(before, after, r.Work),
		counters.CheckKeys(after, int64(m.e.Workload.Keys))))
}

// count reads the server's counters, of all its instances together.
func (m *measurement) count(ctx context.Context) (sum counters.Counters, err error) {
	for i, x := range m.contents() {
		c, err := m.countOf(ctx, x)
		if err != nil {
			return sum, err
		}
		if i == 0 {
			sum = c
		} else {
			sum = sum.Plus(c)
		}
	}
	return sum, nil
}

// countOf reads the counters of an instance by a process on the SUT. If niclane cannot read the server's
// counters, it returns zeros, which pass every comparison.
func (m *measurement) countOf(ctx context.Context, x *instance) (c counters.Counters, err error) {
	if !m.counts {
		return c, nil
	}
	config := load.Config{Address: m.addressOf(x)}
	if err := workload(m.f, &config); err != nil {
		return c, err
	}
	return m.on.served(ctx, config)
}

// readServed reads the server's counters by a process on the SUT.
func readServed(ctx context.Context, on hosts, config load.Config) (c counters.Counters, err error) {
	err = outcome(ctx, on, launch{what: "counters", host: lab.SUT, part: "counters", config: config}, &c)
	return c, err
}
