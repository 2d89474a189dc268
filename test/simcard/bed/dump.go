// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// assigned matches parts of a dump that the kernel chooses itself: numbers, and the qdiscs of
// queues. When mq is made, queues beyond the first channels get pfifo_fast, whatever the default
// qdisc is (net/sched/sch_mq.c: mq_init). It also matches classes of fq_codel and cake, which are
// flows that wait.
var assigned = regexp.MustCompile(`qdisc [a-z_]+ 8[0-9a-f]{3}:|qdisc [a-z_]+ 0: parent :.*|` +
	`class (?:fq_codel|cake) .*\n`)

var gsoSize = regexp.MustCompile("gso_max_size [0-9]+")

// Dump returns everything that a plan can write on the card, as other programs print it.
func Dump(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	lines := []string{
		"tc -d qdisc show dev sim0", "tc -d class show dev sim0", "tc filter show dev sim0 ingress",
		"tc filter show dev sim0 egress",
		"ethtool -k sim0", "ethtool -l sim0", "ethtool -x sim0", "ethtool -n sim0", "ethtool -c sim0",
		"ethtool -g sim0",
		"ethtool --per-queue sim0 --show-coalesce", "ethtool --show-priv-flags sim0",
	}
	for context := 1; context < 4; context++ {
		lines = append(lines, fmt.Sprintf("ethtool -x sim0 context %d", context))
	}
	for _, line := range lines {
		f := strings.Fields(line)
		out, err := exec.Command(f[0], f[1:]...).CombinedOutput()
		fmt.Fprintf(&b, "$ %s\n%s", line, assigned.ReplaceAllString(string(out), ""))
		if err != nil {
			fmt.Fprintf(&b, "(%v)\n", err)
		}
	}
	for _, g := range []string{
		"/sys/class/net/sim0/queues/*/?ps_*", "/sys/class/net/sim0/queues/*/tx_maxrate", "/sys/class/net/sim0/threaded",
		"/sys/class/net/sim0/gro_flush_timeout", "/sys/class/net/sim0/napi_defer_hard_irqs",
	} {
		files, err := filepath.Glob(g)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			fmt.Fprintf(&b, "%s: %s\n", f, Read(t, f))
		}
	}
	fmt.Fprintln(&b, gsoSize.FindString(Run(t, "ip", "-d", "link", "show", "sim0")))
	// Compare interrupts by name: an interrupt may keep its number after its last use.
	for line := range strings.Lines(Read(t, "/proc/interrupts")) {
		number, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		if strings.Contains(rest, "sim0") {
			names := strings.Fields(rest)
			fmt.Fprintf(&b, "%s: %s\n", names[len(names)-1], Read(t, "/proc/irq/"+number+"/smp_affinity_list"))
		}
	}
	return b.String()
}
