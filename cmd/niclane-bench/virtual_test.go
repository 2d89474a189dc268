// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/programs"
	"github.com/niclane/niclane/internal/testing/vethtest"
)

// TestVirtual runs the demo's experiment twice in virtual time. The two results are equal, with every
// histogram, and say that they are of virtual time. The lane shortens the tail.
func TestVirtual(t *testing.T) {
	labtest.NeedVirtual(t)
	bin := t.TempDir()
	programs.Build(t, bin, program.Niclane, program.Bench)
	var texts []string
	var last *result.Result
	for range 2 {
		out := t.TempDir()
		cmd := exec.Command(filepath.Join(bin, program.Bench), "first-lane", "--virtual", "--pairs", "1", "--window", "400ms",
			"--sweep=false", "--out", out)
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		text, err := os.ReadFile(filepath.Join(out, resultFile))
		must.Do(t, err)
		last = &result.Result{}
		must.Do(t, json.Unmarshal(text, last))
		texts = append(texts, string(text))
	}
	if texts[0] != texts[1] {
		t.Error("two runs with one seed differ")
	}
	if !last.Virtual {
		t.Error("the result does not say that it is of virtual time")
	}
	mean := map[string]float64{}
	for _, v := range result.Summarize(last).Points[0].Variants {
		mean[v.Name] = v.Mean
	}
	if idle, lane, without := mean["idle"], mean["lane"], mean["no-lane"]; idle > 1e3 || lane > without/2 {
		t.Errorf("mean of idle %v, lane %v, no-lane %v ns: want idle below 1 µs, and lane below half of no-lane", idle, lane,
			without)
	}
}

// TestExactPart runs the demo as make demo does, in short.
func TestExactPart(t *testing.T) {
	labtest.NeedVirtual(t)
	vethtest.NeedRoot(t)
	bin, out := t.TempDir(), t.TempDir()
	programs.Build(t, bin, program.Niclane, program.Bench)
	said, err := exec.Command(filepath.Join(bin, program.Bench), "first-lane", "--exact", "--pairs", "2", "--window",
		"200ms", "--warmup", "100ms", "--sweep=false", "--force", "mapper=queue-mapping", "--lab", "niclane-exact", "--out",
		out).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, want := range []string{"the same in virtual time", "no-lane   P50", "This machine hid P50, P90, P99: "} {
		if !strings.Contains(string(said), want) {
			t.Errorf("no %q:\n%s", want, said)
		}
	}
	exact, err := result.ReadFile(filepath.Join(out, exactDir, resultFile))
	must.Do(t, err)
	if !exact.Virtual || len(exact.Windows) != 12 {
		t.Errorf("virtual %v, %d windows", exact.Virtual, len(exact.Windows))
	}
}
