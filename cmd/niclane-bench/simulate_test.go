// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/bench/simulate"
	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/programs"
)

const simulated = `version: 1
globals: {dev: eth99, queues: 4}
lanes:
  cache: {queues: 2, guarantee: 20%, ports: 11211, addrs: 192.0.2.7}
  names: {queues: 1, rank: 2, protocol: udp, ports: 53}
`

// TestSimulate runs a guest twice. The lane's requests wait less than without the lanes, and both runs
// have equal numbers.
func TestSimulate(t *testing.T) {
	labtest.NeedVirtual(t)
	dir := programs.Readable(t, program.Niclane, program.Bench)
	file := filepath.Join(t.TempDir(), "lanes.yaml")
	must.Do(t, os.WriteFile(file, []byte(simulated), 0o644))
	simulateOnce := func(options ...string) []byte {
		cmd := exec.Command(filepath.Join(dir, program.Niclane), append([]string{"simulate", file, "--link", "500mbit",
			"--for", "400ms", "--json"}, options...)...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %s", err, errs.String())
		}
		return out.Bytes()
	}
	text := simulateOnce()
	if err := conforms(t, []string{"simulate"}, text); err != nil {
		t.Error(err)
	}
	var r simulate.Result
	must.Do(t, json.Unmarshal(text, &r))
	if len(r.Lanes) != 3 || r.Lanes[0].AsItIs == nil || r.Lanes[0].WithLanes == nil {
		t.Fatalf("got %+v", r.Lanes)
	}
	before, after := r.Lanes[0].AsItIs, r.Lanes[0].WithLanes
	// Requests still wait in the switch, which no lane changes: noise arrives there in units of 16 KiB, and
	// this link takes 262 µs for one.
	if after.P99 == 0 || after.P99 > 300_000 || before.P99 < 4*after.P99 {
		t.Errorf("P99 of the lane: %d ns as it is, %d ns with lanes; want a quarter or less, and at most 300 µs",
			before.P99, after.P99)
	}
	if udp := r.Lanes[1]; udp.AsItIs != nil || !strings.Contains(udp.Missing, "udp") {
		t.Errorf("the lane of UDP: got %+v", udp)
	}
	if diff := cmp.Diff(string(text), string(simulateOnce())); diff != "" {
		t.Errorf("a second run differs (-first +second):\n%s", diff)
	}
	must.Do(t, json.Unmarshal(simulateOnce("--for", "2s", "--noise", "0%", "--bulk", "5%"), &r))
	if share := float64(r.Lanes[0].WithLanes.Sends) / float64(r.Link); share < 0.045 || share > 0.065 {
		t.Errorf("the lane sends %.3f of the link, want 0.05 and its answers", share)
	}
}

// TestSimulateReadsLittle: a wrong path is not read into memory.
func TestSimulateReadsLittle(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lanes.yaml")
	must.Do(t, os.WriteFile(file, []byte(simulated), 0o644))
	for want, args := range map[string][]string{
		"/dev/zero: larger than 1048576 bytes, not a lanes file":                        {"/dev/zero"},
		"/dev/zero: larger than 67108864 bytes, not the output of niclane probe --json": {file, "--host", "/dev/zero"},
	} {
		var out, errs bytes.Buffer
		if code := run(append([]string{"simulate"}, args...), nil, &out, &errs); code != 1 ||
			!strings.Contains(errs.String(), want) {
			t.Errorf("exit %d, %s, want %q", code, errs.String(), want)
		}
	}
}

// TestSimulateWithoutKernel: without a kernel, the error says how to make one.
func TestSimulateWithoutKernel(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lanes.yaml")
	must.Do(t, os.WriteFile(file, []byte(simulated), 0o644))
	var out, errs bytes.Buffer
	code := run([]string{"simulate", file, "--virtual-kernel", "/nowhere/linux"}, nil, &out, &errs)
	if code != 1 || !strings.Contains(errs.String(), "tools/virtual-kernel") {
		t.Errorf("exit %d, %s", code, errs.String())
	}
}
