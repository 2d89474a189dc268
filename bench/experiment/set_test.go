// SPDX-License-Identifier: Apache-2.0

package experiment_test

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/part/errtest"
)

// TestSet makes changes of every kind, in block and flow style. Comments must stay.
func TestSet(t *testing.T) {
	text := readFile(t, experimentsDir+"/first-lane.yaml")
	changed, err := experiment.Set(string(text),
		experiment.Change{Path: "lab.card", Value: "none"}, experiment.Change{Path: "load.rates", Value: "20000"},
		experiment.Change{Path: "noise[1].rate", Value: "50%"}, experiment.Change{Path: "repeats.min", Value: "12"},
		experiment.Change{Path: "variants[2].force", Value: "{queue-set: shared, mapper: queue-receive}"},
		experiment.Change{Path: "sweep"}, experiment.Change{Path: "power"})
	if err != nil {
		t.Fatal(err)
	}
	errtest.Has(t, "changed", changed, "# SCHED_FIFO in every variant", "rank: 1          # first on the wire",
		"card: none", "rates: 20000")
	if strings.Contains(changed, "force") == false || strings.Contains(changed, "sweep:") {
		t.Errorf("force is not there, or sweep is:\n%s", changed)
	}
	_, err = experiment.Parse("x.yaml", []byte(changed))
	if err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(),
		"force.mapper: found \"queue-receive\"") {
		t.Errorf("%v, want one error: the mechanism that is none", err)
	}
	changed, err = experiment.Set(changed, experiment.Change{Path: "variants[2].force.mapper"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := experiment.Parse("x.yaml", []byte(changed))
	if err != nil {
		t.Fatalf("%v in\n%s", err, changed)
	}
	e := f.Experiment
	if e.Lab.Card != "none" || e.Load.Rates[0] != 20000 || e.Noise[0].Share != 750 || e.Noise[1].Share != 500 ||
		e.Noise[1].Flows != 16 ||
		e.Repeats.Min != 12 || e.Sweep != nil || e.Variants[2].Force["queue-set"] != "shared" ||
		len(e.Variants[2].Force) != 1 {
		t.Errorf("read back: %+v", e)
	}
}

func TestSetRefuses(t *testing.T) {
	const text = "version: 1\nload: {rates: [1, 2]}\nnoise: [{flows: 1}]\n"
	for path, want := range map[string]string{
		"load.rates[0]": "want the path of one key",
		"noise[*].rate": "want the path of one key",
		"":              "want the path of one key",
		"lab.card":      "the file has no lab",
		"noise[1].rate": "the file has no noise[1]",
		"noise.rate":    "noise is no mapping of keys",
		"version.x":     "version is no mapping of keys",
	} {
		if got, err := experiment.Set(text, experiment.Change{Path: path, Value: "1"}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %s", path, got, err, want)
		}
	}
	if _, err := experiment.Set("{", experiment.Change{Path: "x", Value: "1"}); err == nil {
		t.Error("no YAML, and no error")
	}
	if _, err := experiment.Set(text, experiment.Change{Path: "load.x", Value: "{"}); err == nil {
		t.Error("no value, and no error")
	}
}
