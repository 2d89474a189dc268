// SPDX-License-Identifier: Apache-2.0

// Package bench compares niclane with the scripts that people write instead, on
// the simulated card in a guest: make matrix-bench runs it. Guests are emulated, so
// that only ratios within one run mean anything.
package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/test/simcard/bed"
)

// As many lanes as there are classes beside the default, with so many ports
// each: of 64 the script alone takes minutes in an emulated guest.
const (
	lanes = 15
	ports = 16
)

// TestApplyBesideScript has niclane apply and a script in turn make the same
// lanes on the same card. The script is what plan prints that tc, ethtool and
// echo can do; what would stand for niclane's classifier is not in it.
func TestApplyBesideScript(t *testing.T) {
	for _, c := range []struct {
		name   string
		params []string
		made   func(t *testing.T) int // rules or filters on the card
	}{
		{"traffic classes and flower filters", []string{"driver=ice", "queues=16", "channels=16", "contexts=1", "pow2=1"}, func(t *testing.T) int {
			return strings.Count(bed.Sh(t, "tc filter show dev sim0 ingress"), "hw_tc")
		}},
		{"RSS contexts and ntuple rules", []string{"queues=16", "channels=16", "contexts=16", "rules=1024"}, func(t *testing.T) int {
			return strings.Count(bed.Sh(t, "ethtool -n sim0"), "Filter: ")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bed.Plug(t, c.params...)
			dir := t.TempDir()
			bed.Write(t, filepath.Join(dir, "lanes.yaml"), file())
			script, n := script(t, dir)
			bed.Write(t, filepath.Join(dir, "script"), script)
			fmt.Printf("%s: %d lanes of %d ports, a script of %d lines\n", c.name, lanes, ports, n)

			took := func(argv ...string) time.Duration {
				cmd := exec.Command(argv[0], argv[1:]...)
				cmd.Dir = dir
				start := time.Now()
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v: %.400s", strings.Join(argv, " "), err, out)
				}
				return time.Since(start)
			}
			check := func(who string) {
				if got := c.made(t); got != lanes*ports {
					t.Errorf("%s made %d of %d", who, got, lanes*ports)
				}
			}
			niclane := func(args ...string) time.Duration { return took(append(command(), args...)...) }
			planned := niclane("probe", "sim0") // what is read and probed for any plan
			apply := niclane("apply", "lanes.yaml")
			check("apply")
			undo := niclane("rollback")
			byHand := took("sh", "-e", "script")
			check("the script")
			fmt.Printf("  apply %.1f s (looking alone %.1f s), rollback %.1f s; the script %.1f s: %.1f times apply\n",
				apply.Seconds(), planned.Seconds(), undo.Seconds(), byHand.Seconds(), byHand.Seconds()/apply.Seconds())
		})
	}
}

func command() []string {
	return []string{os.Getenv("NICLANE_BINARY"), "--state-dir", "state", "--run-dir", "run"}
}

// file is the lanes file.
func file() string {
	var b strings.Builder
	b.WriteString("version: 1\nglobals:\n  dev: sim0\n  queues: 1\n  poller: interrupt\nlanes:\n")
	for l := range lanes {
		var list []string
		for p := range ports {
			list = append(list, fmt.Sprint(1000+100*l+p))
		}
		fmt.Fprintf(&b, "  lane%d:\n    queues: 1\n    protocol: udp\n    poller: interrupt\n    addrs: [10.9.0.1]\n    ports: [%s]\n", l, strings.Join(list, ", "))
	}
	return b.String()
}

// script returns the plan's lines that a shell can run, and their number.
func script(t *testing.T, dir string) (text string, n int) {
	t.Helper()
	argv := append(command(), "--json", "plan", "lanes.yaml")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	out, _ := cmd.Output() // 3: changes are pending
	var plan struct {
		Steps []struct{ Commands []string }
	}
	if err := json.Unmarshal(out, &plan); err != nil {
		t.Fatalf("%v: %.400s", err, out)
	}
	for _, s := range plan.Steps {
		for _, line := range s.Commands {
			tool, _, _ := strings.Cut(line, " ")
			if (tool == "tc" || tool == "ethtool" || tool == "echo") && !strings.Contains(line, "<") && !strings.Contains(line, "niclane.o") {
				text += line + "\n"
				n++
			}
		}
	}
	return text, n
}
