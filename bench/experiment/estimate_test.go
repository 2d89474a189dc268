// SPDX-License-Identifier: Apache-2.0

package experiment_test

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
)

func TestExpand(t *testing.T) {
	values := map[string]string{experiment.NamePort: "80", experiment.NameAddress: "10.0.0.1"}
	for text, want := range map[string]string{
		"":                  "",
		"plain":             "plain",
		"$address:$port":    "10.0.0.1:80",
		"$$port is $port.":  "$port is 80.",
		"a$$":               "a$",
		"$port$port$$$port": "8080$80",
	} {
		if got, err := experiment.Expand(text, values); err != nil || got != want {
			t.Errorf("Expand(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"$":           "found $, want $address $port, or $$ for a dollar sign",
		"$ports":      "found $ports, want $address $port, or $$ for a dollar sign",
		"${port}":     "found $, want $address $port, or $$ for a dollar sign",
		"$port $home": "found $home, want $address $port, or $$ for a dollar sign",
	} {
		if got, err := experiment.Expand(text, values); err == nil || err.Error() != want {
			t.Errorf("Expand(%q) = %q, %v, want the error %q", text, got, err, want)
		}
	}
}

const second = int64(1e9)

// small is two variants, one with noise, at two rates: windows of 4 s.
const small = `version: 1
title: small
lab: {}
server: {kind: memcached}
workload: {protocol: memcached}
load: {rates: [1000, 2000], warmup: 1s, window: 3s}
noise:
  - {direction: to-sut, rate: 10%}
variants:
  - {name: a, noise: off}
  - {name: b}
repeats: {min: 5, max: 10, until: {percentile: 99}}
host-noise: {window: 1s}
`

func estimate(t *testing.T, text string) (e *experiment.Experiment, least, most int64) {
	t.Helper()
	f, err := experiment.Parse("small.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	least, most = experiment.Estimate(f.Experiment)
	return f.Experiment, least, most
}

// TestEstimate: what is added takes its time, and repeats what they may.
func TestEstimate(t *testing.T) {
	e, least, most := estimate(t, small)
	if n, m := experiment.Windows(e); n != 20 || m != 40 {
		t.Errorf("%d to %d windows, want 20 to 40", n, m)
	}
	if want := (20*4 + 2) * second; least != want {
		t.Errorf("at least %d ns, want %d", least, want)
	}
	if windows := (40*4 + 2) * second; most <= windows || most > 2*windows {
		t.Errorf("at most %d ns, want somewhat more than the windows: %d", most, windows)
	}
	_, swept, sweptMost := estimate(t, small+"sweep: {variants: b, noise: [10%, 20%], switch-buffer: [64 KiB, 1 MiB, 2 MiB], window: 2s}\n")
	if want := least + 6*3*second; swept != want || sweptMost <= most+6*3*second {
		t.Errorf("with a sweep %d to %d ns, want %d and more", swept, sweptMost, want)
	}
	s, searched, _ := estimate(t, strings.Replace(small, "rates: [1000, 2000], ", "", 1)+"search: {max-rate: {from: 1000, to: 16000, resolution: 10%}}\n")
	steps := experiment.SearchSteps(*s.Search)
	// 16 is halved on a scale of ratios: 4, 2, 1.41, 1.19, 1.09.
	if steps != 7 {
		t.Errorf("%d steps, want the bounds and 5 halvings", steps)
	}
	if want := (int64(2*3*5+2*steps)*4 + 2) * second; searched != want {
		t.Errorf("a search takes at least %d ns, want %d", searched, want)
	}
	// Several generators wait for each other: 0.25 s, and 0.5 ms for each of 1000
	// connections, in each of 40 windows.
	_, _, together := estimate(t, strings.Replace(small, "warmup: 1s", "connections: 1000, generators: 2, warmup: 1s", 1))
	if got, want := together-most, 40*750*int64(1e6); got != want {
		t.Errorf("two generators take %d ns more, want %d", got, want)
	}
	if n := experiment.Points(s.Load); n != 0 {
		t.Errorf("%d load points without rates", n)
	}
}
