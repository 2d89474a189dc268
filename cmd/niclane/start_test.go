// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestStart: every command, apply among them, waits for what all packages do
// before main. None of niclane's own does much: a regular expression that counts
// to 255 is a thousand allocations, each a part of a page that the kernel has to
// give (strictyaml.Lazy compiles it when it is needed).
func TestStart(t *testing.T) {
	const most = 150 // allocations of one package
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "version")
	cmd.Args[0] = "niclane"
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		m := regexp.MustCompile(`^init (github\.com/niclane/niclane/\S+) .* (\d+) allocs`).FindStringSubmatch(line)
		if m == nil {
			continue
		}
		seen++
		if n, _ := strconv.Atoi(m[2]); n > most {
			t.Errorf("%s allocates %d times before main, at most %d are allowed", m[1], n, most)
		}
	}
	if seen == 0 {
		t.Errorf("no package of niclane's in\n%.500s", out)
	}
}
