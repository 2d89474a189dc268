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
	if !last.Virtual || last.Environment.VirtualSeed != 1 {
		t.Errorf("the result says virtual: %v, seed %d", last.Virtual, last.Environment.VirtualSeed)
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

// TestSwitchClasses runs the experiment on the switch's classes. The mark that a lane on the client gives
// the requests takes them past the switch's queue, which a lane on the server does not shorten. After
// each window with a lane on the client, the client is restored: a round measures the variants in one
// order, the next round in the opposite one.
func TestSwitchClasses(t *testing.T) {
	if os.Getenv("NICLANE_VIRTUAL") != "1" {
		t.Skip("it takes long: make virtual runs it")
	}
	labtest.NeedVirtual(t)
	bin, out := t.TempDir(), t.TempDir()
	programs.Build(t, bin, program.Niclane, program.Bench)
	if said, err := exec.Command(filepath.Join(bin, program.Bench), "run", "../../experiments/switch-classes.yaml",
		"--virtual", "--quick", "--out", out).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	r, err := result.ReadFile(filepath.Join(out, resultFile))
	must.Do(t, err)
	const frame, queue = 13e3, 1e6 // ns: a frame of the noise at 1 Gbit/s, and a part of the queue of noise
	windows := map[string]int{}
	for _, w := range r.Windows {
		if w.Purpose != result.Repeat {
			continue
		}
		windows[w.Variant]++
		short := w.Variant == "idle" || w.Variant == "marked"
		if mean := w.Load.Latency.Mean(); short && mean > frame || !short && mean < queue {
			t.Errorf("%s, repeat %d: a mean latency of %.0f ns, want below %.0f: %v, else above %.0f", w.Variant, w.Repeat,
				mean, frame, short, queue)
		}
	}
	for _, name := range []string{"idle", "no-lane", "server", "marked"} {
		if windows[name] != 2 {
			t.Errorf("%d windows of %s, want 2", windows[name], name)
		}
	}
}

// TestPaperSize runs a paper's experiment with its 110 queues at 100 Gbit/s, each variant once. All of these queues
// receive, and since work takes no time, the link is full.
func TestPaperSize(t *testing.T) {
	if os.Getenv("NICLANE_VIRTUAL") != "1" {
		t.Skip("it takes long: make virtual runs it")
	}
	labtest.NeedVirtual(t)
	bin, out := t.TempDir(), t.TempDir()
	programs.Build(t, bin, program.Niclane, program.Bench)
	if said, err := exec.Command(filepath.Join(bin, program.Bench), "run", "../../experiments/memcached-connections.yaml",
		"--virtual", "--trial", "--out", out).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	r, err := result.ReadFile(filepath.Join(out, resultFile))
	must.Do(t, err)
	const answer = 14 + 20 + 32 + len("VALUE 12345678 0 64\r\n") + 64 + len("\r\nEND\r\n") // the frame
	for _, w := range r.Windows {
		busy := 0
		for _, q := range w.Machine.Device.Rx {
			if q.Packets > 0 {
				busy++
			}
		}
		use := float64(8*answer*int(w.Load.Completed)) / float64(w.Load.Duration) / 100
		if n := len(w.Machine.Device.Rx); n != 112 || busy < 110 || use < 0.75 || use > 1.05 {
			t.Errorf("%s: %d of %d queues received, and answers took %.3f of the link; want 110 of 112, and 0.75 to 1.05",
				w.Variant, busy, n, use)
		}
	}
	if len(r.Windows) != 2 {
		t.Errorf("%d windows, want 2", len(r.Windows))
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
	if !exact.Virtual || len(exact.Windows) != 16 {
		t.Errorf("virtual %v, %d windows", exact.Virtual, len(exact.Windows))
	}
}
