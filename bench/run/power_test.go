// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/agent"
	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/power/powertest"
	"github.com/niclane/niclane/bench/result"
)

// TestPowers: a source that cannot be read is tried only once, and each window says why it has no
// measurement. The other source is measured.
func TestPowers(t *testing.T) {
	root, step := powertest.RAPL(t)
	ctx := context.Background()
	p, warnings, err := openPowers(ctx, []power.Config{
		{Source: power.RAPL, Sysfs: t.TempDir()}, {Source: power.RAPL, Sysfs: root, Domains: []string{"package"},
			UpdateInterval: 1e6},
	}, power.Open)
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "source 1, rapl, is not measured: ") {
		t.Errorf("%q", warnings)
	}
	end := p.start(ctx)
	step(500)
	got := end(ctx)
	if len(got) != 2 || !strings.Contains(got[0].NotMeasured, "rapl") || got[0].Estimate != nil {
		t.Fatalf("%+v", got)
	}
	if got[1].Provenance.Source != power.RAPL || got[1].StartMono == 0 || got[1].Readings < 2 {
		t.Errorf("%+v", got[1])
	}
	var both powers
	r := &result.Result{}
	if err := both.open(ctx, []power.Config{{Source: power.RAPL, Sysfs: t.TempDir()}}, power.Open, r); err != nil ||
		len(both.sources) != 1 || len(r.Warnings) != 1 || !strings.HasPrefix(r.Warnings[0], "power: source 1, rapl, ") {
		t.Errorf("%v, %d sources, %q", err, len(both.sources), r.Warnings)
	}
	if _, _, err := openPowers(ctx, []power.Config{{Source: power.IPMI, Address: "bmc",
		Credentials: "/does/not/exist"}}, power.Open); err == nil {
		t.Error("no credentials, and no error")
	}
	if none, _, err := openPowers(ctx, nil, power.Open); err != nil || len(none.start(ctx)(ctx)) != 0 {
		t.Errorf("no source: %v", err)
	}
}

// fakeHost is a host whose clock is ahead of this machine's by ahead ns. Its meter returns result.
type fakeHost struct {
	ahead  int64
	result power.Result
	fails  error
}

func (h fakeHost) Offset(context.Context) (agent.Offset, error) {
	return agent.Offset{Ns: h.ahead}, nil
}

func (h fakeHost) Meter(context.Context, power.Config) (func(context.Context) (power.Result, error), error) {
	h.result.Timeline = slices.Clone(h.result.Timeline)
	return func(context.Context) (power.Result, error) { return h.result, h.fails }, nil
}

// TestPowersOfAHost: the measurement of a host's own sensors has times of the run's time axis and
// names the host. If the host does not answer, the window is kept, without power.
func TestPowersOfAHost(t *testing.T) {
	config := power.Config{Source: power.RAPL}
	here, err := power.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	h := fakeHost{ahead: 5_000, result: power.Result{
		Provenance: power.Provenance{Source: power.RAPL, Address: "/sys/class/powercap"}, StartMono: 12_000,
		Duration: 100,
		Timeline: []power.Sample{{Mono: 12_050, Power: 7}},
	}}
	measure := func(h fakeHost) power.Result {
		t.Helper()
		p, warnings, err := openPowers(t.Context(), []power.Config{config}, func(c power.Config) (power.Source, error) {
			return remoteSource{here, "db1", h, c}, nil
		})
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		return p.start(t.Context())(t.Context())[0]
	}
	r := measure(h)
	if r.StartMono != 7_000 || r.Timeline[0].Mono != 7_050 || r.Duration != 100 ||
		r.Provenance.Address != "host db1: /sys/class/powercap" {
		t.Errorf("%+v", r)
	}
	h.fails = errors.New("host db1: the agent is lost")
	if r := measure(h); r.NotMeasured != h.fails.Error() || r.Estimate != nil ||
		!strings.HasPrefix(r.Provenance.Address, "host db1: ") {
		t.Errorf("%+v", r)
	}
}

// TestWhoReadsPower: the SUT's agent reads the sensors in the SUT. This machine opens other sources.
func TestWhoReadsPower(t *testing.T) {
	s := onHosts(t)
	for _, c := range []power.Config{{Source: power.RAPL},
		{Source: power.Hwmon, Chip: "x", Sensors: []string{"power1_input"}}, {Source: power.IPMI, Device: "/dev/ipmi0"},
		{Source: power.None}} {
		src, err := s.openPower(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, remote := src.(remoteSource); remote != (c.Source != power.None) {
			t.Errorf("%s: by the agent: %v", c.Source, remote)
		}
	}
	if _, err := s.openPower(power.Config{Source: power.RAPL, Chip: "x"}); err == nil {
		t.Error("a key that RAPL has no use for: no error")
	}
}
