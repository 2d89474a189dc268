// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/lane/device"
)

// apart returns another run of the fixture, on another kernel. In it, no-lane is as fast as idle,
// and all variants are slower by factor.
func apart(factor float64) *Result {
	r := fixture()
	r.Environment.Kernel, r.Niclane = "6.19.0", "other"
	r.Experiment.Repeats.Min = 12
	for i := range r.Windows {
		w := &r.Windows[i]
		noise := w.Noise
		*w = window(w.Variant, w.Repeat+20, 2000, 50e3*factor)
		w.Repeat -= 20
		w.Noise = noise
	}
	return r
}

// TestCompareHardware: a difference between the machines has a line, also if one of them could not
// read it.
func TestCompareHardware(t *testing.T) {
	a, b := fixture(), fixture()
	a.Environment.Hardware = &device.Hardware{BIOS: "1.0", Irqbalance: "running", DIMMs: []string{"8 × 32 GiB", "1 × 16 GiB"},
		PCIe: map[string]string{"eth0": "x8"}}
	b.Environment.Hardware = &device.Hardware{BIOS: "1.1", Irqbalance: "running", DIMMs: []string{"8 × 32 GiB"},
		Unknown: map[string]string{"pcie": "none"}}
	b.Environment.Hosts = []Host{{Name: "sut", Hardware: &device.Hardware{Sockets: 2}}}
	var got []string
	for _, c := range environmentChanges(a, b) {
		if strings.Contains(c.Path, "hardware") {
			got = append(got, c.String())
		}
	}
	want := []string{"hardware.bios: 1.0 → 1.1", "hardware.dimms: 8 × 32 GiB 1 × 16 GiB → 8 × 32 GiB",
		"hardware.pcie.eth0: x8 → -", "hardware.unknown.pcie: - → none", "hosts.sut.hardware.sockets: - → 2"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestCompare(t *testing.T) {
	a := fixture()
	a.Environment.Kernel = "6.18.0"
	b := apart(1)
	b.Points = append(b.Points, Point{Mode: "open", Rate: 9000, Connections: 8})
	c, err := Compare(a, b, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range ComparisonFormats {
		var out bytes.Buffer
		if err := WriteComparison(&out, c, format); err != nil {
			t.Fatal(err)
		}
		golden(t, "compare-"+format+".golden", out.Bytes())
	}
	errtest.Says(t, "another format", WriteComparison(&bytes.Buffer{}, c, GoBench), "want text, csv, markdown")
	same := func(j *Judged) bool { return j != nil && j.Difference.Text == stats.Same }
	idle, slow := c.Points[0].Variants[0], c.Points[0].Variants[1]
	if !same(idle.Percentiles[0].Ratio) || !same(idle.Achieved.Ratio) {
		t.Errorf("idle did not change: %+v", idle.Percentiles[0].Ratio)
	}
	if r := slow.Percentiles[0].Ratio; same(r) || r.Estimate > 0.4 {
		t.Errorf("no-lane became three times as fast: %+v", r)
	}
	if x := idle.Percentiles[4]; x.Ratio != nil || x.MissingA == "" {
		t.Errorf("a percentile that neither carries: %+v", x)
	}
}

// TestCompareBesideTheBase checks two runs that differ only because the host is slower. Relative to
// the base, nothing may differ.
func TestCompareBesideTheBase(t *testing.T) {
	slow := apart(2)
	c, err := Compare(apart(1), slow, false)
	if err != nil {
		t.Fatal(err)
	}
	twin := c.Points[0].Variants[2].Percentiles[0]
	if twin.Ratio.Difference.Text == stats.Same {
		t.Errorf("twice as slow: %+v", twin.Ratio)
	}
	if twin.BesideBase == nil || twin.BesideBase.Difference.Text != stats.Same {
		t.Errorf("beside the base: %+v", twin.BesideBase)
	}
	if n := len(c.Notes); n < 2 || !strings.Contains(c.Notes[1], "the base, itself changed by +") {
		t.Errorf("notes: %q", c.Notes)
	}
}

func TestCompareRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Result)
		want   string
	}{
		"workload": {func(r *Result) { r.Experiment.Workload.ValueBytes = 128 },
			"workload.valueBytes: - → 128; want runs of one server and workload"},
		"server":   {func(r *Result) { r.Experiment.Server.Kind = "command" }, "server.kind: - → command"},
		"fallback": {func(r *Result) { r.Server.Kind = "niclane" }, "server measured: memcached → niclane"},
		"mode":     {func(r *Result) { r.Experiment.Load.Mode = experiment.Closed }, "load.mode"},
		"points": {func(r *Result) { r.Points[0].Rate = 7 }, "no load point with a variant that both runs have; " +
			"only in A: load point 2000/s, 8 connections; only in B: load point 7/s"},
	} {
		a, b := fixture(), fixture()
		a.Server.Kind, b.Server.Kind = "memcached", "memcached"
		c.change(b)
		_, err := Compare(a, b, false)
		errtest.Says(t, name, err, c.want)
	}
}

func TestChanges(t *testing.T) {
	a := Environment{Kernel: "1", Sysctls: map[string]string{"x": "1"},
		Cards:     []Card{{Host: "h", Device: "eth0", Driver: "ice"}},
		Placement: []Placement{{What: "server", CPUs: []int{1}}}}
	b := Environment{Kernel: "1", Cards: []Card{{Host: "h", Device: "eth1"},
		{Host: "h", Device: "eth0", Driver: "mlx5"}}, Placement: []Placement{{What: "server", CPUs: []int{1, 2}}}}
	var got []string
	for _, c := range changes(a, b, "cards.eth1") {
		got = append(got, c.String())
	}
	want := "cards.eth0.driver: ice → mlx5|placement.server.cpus: 1 → 1 2|sysctls.x: 1 → -"
	if s := strings.Join(got, "|"); s != want {
		t.Errorf("%s, want %s", s, want)
	}
	c := Change{"lanes", "a: 1\n  b: 2\n", "a: 1\n  b: 3\n"}
	if got := c.String(); got != "lanes: - b: 2; + b: 3" {
		t.Errorf("lines: %q", got)
	}
}

// TestCompareVirtual checks that a run in virtual time is compared with one of real time only if
// that is asked for, and then says so.
func TestCompareVirtual(t *testing.T) {
	a, b := apart(1), apart(1)
	a.Virtual = true
	if _, err := Compare(a, b, false); err == nil || !strings.Contains(err.Error(), "A is of virtual time, and B is of real") {
		t.Errorf("%v, want a refusal", err)
	}
	c, err := Compare(a, b, true)
	if err != nil {
		t.Fatal(err)
	}
	if want := "A is of virtual time, B is of real time: " + VirtualText; len(c.Notes) != 1 || c.Notes[0] != want {
		t.Errorf("notes %q, want %q", c.Notes, want)
	}
	b.Virtual = true
	if c, err = Compare(a, b, false); err != nil || c.Notes[0] != VirtualText {
		t.Errorf("two of virtual time: %v, %+v", err, c)
	}
}

// TestVirtualIsSaid checks that each format says that a run was in virtual time.
func TestVirtualIsSaid(t *testing.T) {
	r := apart(1)
	r.Virtual = true
	for _, format := range Formats {
		var out strings.Builder
		if err := WriteFormat(&out, r, format); err != nil {
			t.Fatal(err)
		}
		want := VirtualText
		if format == CSV {
			want = ",true\n"
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: not said:\n%s", format, out.String())
		}
	}
}
