// SPDX-License-Identifier: Apache-2.0

package hiccup

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRun(t *testing.T) {
	r, err := Run(t.Context(), Config{Duration: 50e6, Interval: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.CPUs) == 0 {
		t.Fatal("no cpu")
	}
	for _, c := range r.CPUs {
		// Every deadline is recorded, also those that the thread slept through.
		if n := c.Late.Count(); n != 49 {
			t.Errorf("cpu %d: %d deadlines, want 49", c.CPU, n)
		}
		if c.Late.Max() <= 0 {
			t.Errorf("cpu %d: never late", c.CPU)
		}
	}
	if r.Duration < 49e6 || r.Host.Autogroup == "" || r.Host.Busy == nil {
		t.Errorf("got %d ns, host %+v", r.Duration, r.Host)
	}
}

func TestRunFails(t *testing.T) {
	for name, c := range map[string]Config{
		"no duration": {}, "too long": {Duration: 61e9}, "interval": {Duration: 1e6, Interval: 1},
		"no such cpu": {Duration: 1e6, CPUs: []int{1023}}, "priority": {Duration: 1e6, FIFO: 100},
	} {
		if _, err := Run(t.Context(), c); err == nil || !strings.HasPrefix(err.Error(), "hiccup: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Config{Duration: 60e9}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestParseStat(t *testing.T) {
	const in = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 40 5 6 7 8 9 10\ncpu10 0 0 0 100 0 0 0 3 0 0\nintr 5\n"
	got, err := parseStat([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]times{
		0:  {steal: 8e7, busy: (1 + 2 + 3 + 6 + 7) * 1e7, total: (1 + 2 + 3 + 6 + 7 + 8 + 40 + 5) * 1e7},
		10: {steal: 3e7, busy: 0, total: 103e7},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(times{})); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	for _, bad := range []string{"", "cpu 1 2 3 4 5 6 7 8 9 10\n", "cpuX 1 2 3 4 5 6 7 8 9 10\n",
		"cpu0 1 2 x 4 5 6 7 8 9 10\n"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestParseProcess(t *testing.T) {
	const tail = " S 1 1 1 0 -1 4194560 5 0 0 0 150 50 0 0 20 0 1 0 5 0 0\n"
	for name, want := range map[string]Process{
		"42 (memcached)":  {PID: 42, Name: "memcached", CPUTime: 2e9},
		"7 (a) b (c) d)":  {PID: 7, Name: "a) b (c) d", CPUTime: 2e9},
		"9 ()":            {PID: 9, CPUTime: 2e9},
		"1 (two\nlines))": {PID: 1, Name: "two\nlines)", CPUTime: 2e9},
	} {
		got, err := parseProcess([]byte(name + tail))
		if err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q: -want +got\n%s", name, d)
		}
	}
	for _, bad := range []string{"", "42 memcached" + tail, "x (a)" + tail, "1 (a) S 1", "1 )a(" + tail} {
		if _, err := parseProcess([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestSince(t *testing.T) {
	before := snapshot{mono: 0, processes: map[int]Process{1: {1, "old", 5e9}, 2: {2, "idle", 1e9}}}
	after := snapshot{mono: 1e9, load1: 2, autogroup: "on", processes: map[int]Process{
		1: {1, "old", 55e8}, 2: {2, "idle", 1e9}, 3: {3, "new", 9e8}, 4: {4, "small", 9e6}}}
	want := Host{Load1: 2, Autogroup: "on", Busy: []Process{{3, "new", 9e8}, {1, "old", 5e8}}}
	if d := cmp.Diff(want, after.since(before)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func FuzzParseProcess(f *testing.F) {
	f.Add([]byte("42 (memcached) S 1 1 1 0 -1 4194560 5 0 0 0 150 50 0 0"))
	f.Add([]byte(")("))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parseProcess(b); err == nil && !strings.Contains(string(b), p.Name) {
			t.Errorf("name %q is not in %q", p.Name, b)
		}
	})
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("cpu0 1 2 3 4 5 6 7 8 9 10\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if cpus, err := parseStat(b); err == nil && len(cpus) == 0 {
			t.Error("no cpus and no error")
		}
	})
}
