// SPDX-License-Identifier: Apache-2.0

// Package firstlane measures in the lab what one lane gains on memcached: the
// same server, load and noise idle, without and with a lane, interleaved and
// repeated. It starts and ends every process itself, applies the lane with the
// niclane command as a user would, and refuses to hide a difference: whatever
// is not the same in every variant is listed in the result.
package firstlane

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/plan"
)

// Options of Run. The defaults are those of make demo, fixed beforehand so
// that nobody can choose them after seeing the result.
type Options struct {
	// Niclane is the path of the niclane binary, which is also the
	// generator, the noise and the fallback server.
	Niclane string
	// Pairs of interleaved repeats, at least 2.
	Pairs int
	// Rate of gets per second, over Connections connections.
	Rate        float64
	Connections int
	// Window is the counted time of one repeat, Warmup the time before it.
	Window, Warmup time.Duration
	// NoiseShare of the link in each direction, 0.01 to 0.95.
	NoiseShare float64
	// FlowsIn is the number of noise flows to the server's host, FlowsOut
	// of those from it.
	FlowsIn, FlowsOut int
	// LinkRate in bit/s, 0: the lab's.
	LinkRate uint64
	// Buffer of the switch port toward the server in bytes, 0: the lab's.
	Buffer int
	// Card of the server's host, lab.CardEmulated or lab.CardNone; "": the
	// lab's default.
	Card string
	// Force names realisations by part of a lane, as globals.force of a
	// lanes file does.
	Force map[string]string
	// Sweep repeats short windows over noise shares and buffers.
	Sweep bool
	// Progress is told what happens, one line each; nil: nobody.
	Progress io.Writer
	// Version of niclane, for the result.
	Version string
}

// Defaults of make demo.
func Defaults() Options {
	return Options{
		Pairs: 10, Rate: 10_000, Connections: 32, Window: 2500 * time.Millisecond, Warmup: 500 * time.Millisecond,
		NoiseShare: 0.75, Sweep: true,
		// One flow to the host, because what queues at the switch is
		// beyond any lane and one paced flow queues least; many from
		// the host, so that every transmit queue has some.
		FlowsIn: 1, FlowsOut: 16,
	}
}

// Check returns every mistake in o, nil if there is none.
func (o Options) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Pairs < 2 || o.Pairs > 1000 {
		bad("--pairs %d: want 2 to 1000", o.Pairs)
	}
	if o.Rate < 100 || o.Rate > 1_000_000 {
		bad("--rate %v: want 100 to 1000000 per second", o.Rate)
	}
	if o.Connections < 1 || o.Connections > 10_000 {
		bad("--connections %d: want 1 to 10000", o.Connections)
	}
	if o.Window < 100*time.Millisecond || o.Window > time.Hour {
		bad("--window %v: want 100ms to 1h", o.Window)
	}
	if o.NoiseShare < 0.01 || o.NoiseShare > 0.95 {
		bad("--noise %v: want a share of the link from 0.01 to 0.95", o.NoiseShare)
	}
	if o.Card != "" && o.Card != lab.CardEmulated && o.Card != lab.CardNone {
		bad("--card %q: want %s or %s", o.Card, lab.CardEmulated, lab.CardNone)
	}
	for part, name := range o.Force {
		if known := plan.Realisations(device.Part(part)); !slices.Contains(known, name) {
			bad("--force %s=%s: want one of %s", part, name, strings.Join(known, ", "))
		}
	}
	if o.FlowsIn < 1 || o.FlowsIn > 1000 || o.FlowsOut < 1 || o.FlowsOut > 1000 {
		bad("--flows-in %d --flows-out %d: want 1 to 1000", o.FlowsIn, o.FlowsOut)
	}
	return errors.Join(errs...)
}

func (o Options) sayf(format string, args ...any) {
	if o.Progress != nil {
		fmt.Fprintf(o.Progress, format+"\n", args...)
	}
}
