// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"

	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/result"
)

// powers are the power sources of an experiment. One that cannot be read is
// asked once; each window then says why it has not measured.
type powers struct {
	sources []power.Source
	broken  []string // why, by source; "": it can be read
}

// open the sources of an experiment; r is told what cannot be read.
func (p *powers) open(ctx context.Context, all []power.Config, r *result.Result) error {
	opened, unread, err := openPowers(ctx, all)
	if err != nil {
		return err
	}
	*p = opened
	for _, text := range unread {
		r.Warnings = append(r.Warnings, "power: "+text)
	}
	return nil
}

// openPowers finds out what can be read. What cannot is a warning each.
func openPowers(ctx context.Context, all []power.Config) (p powers, warnings []string, err error) {
	for i, c := range all {
		s, err := power.Open(c)
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

// start begins a window and returns what ends it, once, and says what was
// measured.
func (p powers) start(ctx context.Context) func(context.Context) []power.Result {
	meters := make([]power.Meter, len(p.sources))
	out := make([]power.Result, len(p.sources))
	for i, s := range p.sources {
		out[i] = power.Result{Provenance: s.Describe(), NotMeasured: p.broken[i]}
		if p.broken[i] != "" {
			continue
		}
		m, err := s.Start(ctx)
		if err != nil { // it could be read before
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
