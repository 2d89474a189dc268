// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"

	"github.com/niclane/niclane/bench/agent"
	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lab"
)

// powers are the power sources of an experiment. A source that cannot be read is tried only
// once; each window then says why it has no measurement.
type powers struct {
	sources []power.Source
	broken  []string // the reason by source; "": it can be read
}

// An opener opens a source; power.Open opens the sources that this machine reads.
type opener func(power.Config) (power.Source, error)

// open opens the sources of an experiment, and reports in r those that cannot be read.
func (p *powers) open(ctx context.Context, all []power.Config, open opener, r *result.Result) error {
	opened, unread, err := openPowers(ctx, all, open)
	if err != nil {
		return err
	}
	*p = opened
	for _, text := range unread {
		r.Warnings = append(r.Warnings, "power: "+text)
	}
	return nil
}

// openPowers opens all sources and tries to read each one. It returns a warning for each source that
// cannot be read.
func openPowers(ctx context.Context, all []power.Config, open opener) (p powers, warnings []string, err error) {
	for i, c := range all {
		s, err := open(c)
		if err != nil {
			return powers{}, nil, err
		}
		why := ""
		if m, err := s.Start(ctx); err != nil {
			why = err.Error()
			warnings = append(warnings, fmt.Sprintf("source %d, %s, is not measured: %s", i+1, c.Source, why))
		} else {
			m.Stop(ctx)
		}
		p.sources, p.broken = append(p.sources, s), append(p.broken, why)
	}
	return p, warnings, nil
}

// start begins to measure the power of a window. The function that it returns ends this and returns
// the results. A second call returns the same results.
func (p powers) start(ctx context.Context) func(context.Context) []power.Result {
	meters := make([]power.Meter, len(p.sources))
	out := make([]power.Result, len(p.sources))
	for i, s := range p.sources {
		out[i] = power.Result{Provenance: s.Describe(), NotMeasured: p.broken[i]}
		if p.broken[i] != "" {
			continue
		}
		m, err := s.Start(ctx)
		if err != nil { // although it could be read before
			out[i].NotMeasured = err.Error()
			continue
		}
		meters[i] = m
	}
	return func(ctx context.Context) []power.Result {
		for i, m := range meters {
			if m != nil {
				out[i], meters[i] = m.Stop(ctx), nil
			}
		}
		return out
	}
}

// A remoteSource is a source that a host's agent reads: a sensor in the host itself.
type remoteSource struct {
	power.Source // for its description
	name         string
	host         metering
	config       power.Config
}

// metering is the part of an agent.Client that a remoteSource needs.
type metering interface {
	Offset(context.Context) (agent.Offset, error)
	Meter(context.Context, power.Config) (func(context.Context) (power.Result, error), error)
}

// openPower opens a source for hosts with agents. The SUT's agent reads the SUT's own sensors. This
// machine reads sources on the network.
func (s *agentSite) openPower(c power.Config) (power.Source, error) {
	local, err := power.Open(c)
	if err != nil || !c.Local() {
		return local, err
	}
	return remoteSource{local, s.h.SUT.Name, s.agents[lab.SUT], c}, nil
}

func (s remoteSource) Describe() power.Provenance { return s.there(s.Source.Describe()) }

// there adds the host's name to a source's address.
func (s remoteSource) there(p power.Provenance) power.Provenance {
	p.Address = "host " + s.name + ": " + p.Address
	return p
}

func (s remoteSource) Start(ctx context.Context) (power.Meter, error) {
	before, err := s.host.Offset(ctx)
	if err != nil {
		return nil, err
	}
	stop, err := s.host.Meter(ctx, s.config)
	if err != nil {
		return nil, err
	}
	return remoteMeter{s, before, stop}, nil
}

type remoteMeter struct {
	remoteSource
	before agent.Offset
	stop   func(context.Context) (power.Result, error)
}

// Stop ends the measurement. It converts the times to the common axis, which is this machine's
// clock.
func (m remoteMeter) Stop(ctx context.Context) power.Result {
	r, err := m.stop(ctx)
	if err != nil {
		return power.Result{Provenance: m.Describe(), NotMeasured: err.Error()}
	}
	r.Provenance = m.there(r.Provenance)
	after, err := m.host.Offset(ctx)
	if err != nil { // the host is lost, which ends the run
		after = m.before
	}
	ahead := agent.Between(m.before, after, m.before.At/2+after.At/2).Ns
	r.StartMono -= ahead
	for i := range r.Timeline {
		r.Timeline[i].Mono -= ahead
	}
	return r
}
