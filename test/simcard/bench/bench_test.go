// SPDX-License-Identifier: Apache-2.0

// Package bench compares niclane with the usual scripts, on the simulated card in a guest. make
// matrix-bench runs it. Guests are emulated, so only ratios within one run mean something.
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

// lanes is the number of classes without the default class, and ports the number of ports of each.
// The script gets fewer ports, because with 64 it takes minutes in an emulated guest.
const (
	lanes       = 15
	ports       = 64
	scriptPorts = 16
)

// A way is one way to make lanes on a card.
type way struct {
	name   string
	params []string
	made   func(t *testing.T) int // number of rules or filters that the card has
}

var ways = []way{
	{"traffic classes and flower filters", []string{"driver=ice", "queues=16", "channels=16", "contexts=1", "pow2=1"},
		func(t *testing.T) int {
			return strings.Count(bed.Sh(t, "tc filter show dev sim0 ingress"), "hw_tc")
		}},
	{"RSS contexts and ntuple rules", []string{"queues=16", "channels=16", "contexts=16", "rules=1024"},
		func(t *testing.T) int {
			return strings.Count(bed.Sh(t, "ethtool -n sim0"), "Filter: ")
		}},
}

// A bench is a card and a lanes file for it.
type bench struct {
	t   *testing.T
	way way
	dir string
}

func newBench(t *testing.T, w way, ports int) *bench {
	bed.Plug(t, w.params...)
	b := &bench{t, w, t.TempDir()}
	bed.Write(t, filepath.Join(b.dir, "lanes.yaml"), file(ports))
	return b
}

func (b *bench) took(argv ...string) time.Duration {
	b.t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = b.dir
	start := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("%s: %v: %.400s", strings.Join(argv, " "), err, out)
	}
	return time.Since(start)
}

func (b *bench) niclane(args ...string) time.Duration {
	b.t.Helper()
	return b.took(append(command(), args...)...)
}

func (b *bench) check(who string, want int) {
	b.t.Helper()
	if got := b.way.made(b.t); got != want {
		b.t.Errorf("%s: %d rules or filters, want %d", who, got, want)
	}
}

// TestApplyBesideScript makes the same lanes on the same card in two ways, in turn: with niclane
// apply and with a script. The script has the plan's command lines for tc, ethtool and echo. It has
// nothing in place of niclane's classifier.
func TestApplyBesideScript(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			b := newBench(t, w, scriptPorts)
			script, n := script(t, b.dir)
			bed.Write(t, filepath.Join(b.dir, "script"), script)
			apply := b.niclane("apply", "lanes.yaml")
			b.check("apply", lanes*scriptPorts)
			b.niclane("rollback")
			b.check("rollback", 0)
			byHand := b.took("sh", "-e", "script")
			b.check("the script", lanes*scriptPorts)
			fmt.Printf("%s: %d lanes of %d ports: apply %.1f s; a script of %d lines %.1f s: %.1f times apply\n",
				w.name, lanes, scriptPorts, apply.Seconds(), n, byHand.Seconds(), byHand.Seconds()/apply.Seconds())
		})
	}
}

// TestRollbackBesideApply compares the time to remove many rules with the time to make them.
func TestRollbackBesideApply(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			b := newBench(t, w, ports)
			looking := b.niclane("probe", "sim0") // the time of the reads and probes that every plan needs
			apply := b.niclane("apply", "lanes.yaml")
			b.check("apply", lanes*ports)
			undo := b.niclane("rollback")
			b.check("rollback", 0)
			fmt.Printf("%s: %d lanes of %d ports: looking alone %.1f s; apply %.1f s; rollback %.1f s: %.1f times "+
				"apply\n",
				w.name, lanes, ports, looking.Seconds(), apply.Seconds(), undo.Seconds(),
				undo.Seconds()/apply.Seconds())
		})
	}
}

func command() []string {
	return []string{os.Getenv("NICLANE_BINARY"), "--state-dir", "state", "--run-dir", "run"}
}

// file returns the text of the lanes file.
func file(ports int) string {
	var b strings.Builder
	b.WriteString("version: 1\nglobals:\n  dev: sim0\n  queues: 1\n  poller: interrupt\nlanes:\n")
	for l := range lanes {
		var list []string
		for p := range ports {
			list = append(list, fmt.Sprint(1000+100*l+p))
		}
		fmt.Fprintf(&b, "  lane%d:\n    queues: 1\n    protocol: udp\n    poller: interrupt\n    addrs: "+
			"[10.9.0.1]\n    ports: [%s]\n", l, strings.Join(list, ", "))
	}
	return b.String()
}

// script returns those lines of the plan that a shell can run, and how many they are.
func script(t *testing.T, dir string) (text string, n int) {
	t.Helper()
	argv := append(command(), "--json", "plan", "lanes.yaml")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	out, _ := cmd.Output() // exit code 3 is no error: changes are pending
	var plan struct {
		Steps []struct{ Commands []string }
	}
	if err := json.Unmarshal(out, &plan); err != nil {
		t.Fatalf("%v: %.400s", err, out)
	}
	for _, s := range plan.Steps {
		for _, line := range s.Commands {
			tool, _, _ := strings.Cut(line, " ")
			if (tool == "tc" || tool == "ethtool" || tool == "echo") && !strings.Contains(line, "<") &&
				!strings.Contains(line, "niclane.o") {
				text += line + "\n"
				n++
			}
		}
	}
	return text, n
}
