// SPDX-License-Identifier: Apache-2.0

package vethtest

import (
	"os/exec"
	"strings"
	"testing"
)

// Command runs a command line and returns the output. It splits the line at spaces.
func Command(t testing.TB, line string) string {
	t.Helper()
	words := strings.Fields(line)
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

// IP runs ip(8) once for each line of a script. If the kernel lacks a kind of device, it skips the
// test.
func IP(t testing.TB, script string) {
	t.Helper()
	for line := range strings.Lines(strings.TrimSpace(script)) {
		line = strings.TrimSpace(line)
		out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
		if err != nil && strings.Contains(string(out), "Unknown device type") {
			t.Skipf("ip %s: %s", line, out)
		}
		if err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
}

// Qdiscs returns what tc(8) shows of a device's qdiscs.
func Qdiscs(t testing.TB, dev string) string {
	t.Helper()
	return TC(t, "qdisc show dev "+dev)
}

// TC runs tc(8) and returns its output.
func TC(t testing.TB, args string) string {
	t.Helper()
	return Command(t, "tc "+args)
}
