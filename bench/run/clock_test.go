// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/bench/part/errtest"
)

func TestClocks(t *testing.T) {
	start := instants{mono: 1e12, real: 1.7e18, boot: 2e12, raw: 1e12}
	later := func(mono, wall, boot, raw time.Duration) instants {
		return instants{start.mono + int64(mono), start.real + int64(wall), start.boot + int64(boot),
			start.raw + int64(raw)}
	}
	const s = time.Second
	for name, c := range map[string]struct {
		now           instants
		warning, fail string
	}{
		"nothing":       {later(3*s, 3*s, 3*s, 3*s), "", ""},
		"disciplined":   {later(3600*s, 3600*s, 3600*s, 3600*s-time.Second), "", ""},
		"preempted":     {later(3*s, 3*s+20*time.Millisecond, 3*s, 3*s+30*time.Millisecond), "", ""},
		"set forwards":  {later(3*s, 3603*s, 3*s, 3*s), "the clock was set by 1h0m0s: ", ""},
		"set backwards": {later(3*s, -2*s, 3*s, 3*s), "the clock was set by -5s: ", ""},
		"suspended":     {later(3*s, 63*s, 63*s, 3*s), "", "the machine was suspended for 1m0s"},
		"wrong rate":    {later(30*s, 30*s, 30*s, 33*s), "", "ran -9.09 % off the hardware's clock"},
	} {
		warning, err := c.now.since(start)
		if !strings.HasPrefix(warning, c.warning) || (c.warning == "") != (warning == "") {
			t.Errorf("%s: %q, want %q", name, warning, c.warning)
		}
		errtest.Says(t, name, err, c.fail)
	}
	a, err := clocks()
	if err != nil {
		t.Fatal(err)
	}
	b, err := clocks()
	if err != nil || b.mono < a.mono || b.boot < b.mono || a.real == 0 || a.raw == 0 {
		t.Errorf("%+v, %+v, %v", a, b, err)
	}
}

// TestRunLooksAtClocks: if the time of day was set, the window has a warning. If the machine was
// suspended, the run ends and keeps the earlier windows.
func TestRunLooksAtClocks(t *testing.T) {
	for name, c := range map[string]struct {
		wall, boot time.Duration // jump of the clock in the second window
		want       string
	}{
		"set": {wall: time.Hour},
		"suspended": {boot: time.Hour, want: "phase repeats: 1000/s, 4 connections: repeat 1, noisy: the machine " +
			"was suspended for 1h0m0s"},
	} {
		read := 0
		var now instants
		o := Options{clocks: func() (instants, error) {
			read++
			now.mono += 1e9
			now.real, now.boot, now.raw = now.real+1e9, now.boot+1e9, now.raw+1e9
			if read == 4 { // after the second window
				now.real, now.boot = now.real+int64(c.wall), now.boot+int64(c.boot)
			}
			return now, nil
		}}
		site := &fakeSite{}
		r, err := Run(context.Background(), parse(t), file, site, o)
		if c.want != "" {
			if err == nil || err.Error() != c.want || len(r.Windows) != 1 || r.Partial == nil ||
				site.log[len(site.log)-1] != "down" {
				t.Errorf("%s: %v, %d windows, partial %+v, %v", name, err, len(r.Windows), r.Partial, site.log)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range r.Windows {
			if (len(w.Warnings) == 1) != (i == 1) {
				t.Errorf("window %d: %q", i, w.Warnings)
			}
		}
	}
}
