// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/examples"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/migrate/adqsetup"
	"github.com/niclane/niclane/test/simcard/bed"
)

// Replacements in the papers' settings, because the guest has another device and fewer processors
// than the papers' hosts. Where the settings have a queue for each processor, it gets fewer: each
// queue takes an emulated guest a third of a second.
var (
	device     = regexp.MustCompile(`(?m)^  dev: .*$`)
	processors = regexp.MustCompile(`(?m)^ +(cpus|cgroup|cgroup-cpus|cgroup-mems): .*\n`)
	perThread  = regexp.MustCompile(`queues: 110`)
)

// onNewest skips a test on all kernels but the newest. These tests take a minute each, and other
// tests cover the differences between kernels.
func onNewest(t *testing.T) {
	t.Helper()
	var name unix.Utsname
	must.Do(t, unix.Uname(&name))
	if strings.HasPrefix(unix.ByteSliceToString(name.Release[:]), "6.") {
		t.Skip("run on the newest kernel")
	}
}

// TestPapers checks that the papers' settings can be applied on a card with ADQ, and removed. Of
// one paper's four cards, which differ only in an address, it tests one.
func TestPapers(t *testing.T) {
	onNewest(t)
	for name, queues := range map[string]int{"aerospike": 30, "ats-ens785f0": 28, "kubernetes": 64, "memcached": 16} {
		t.Run(name, func(t *testing.T) {
			text, err := examples.Papers.ReadFile("papers/" + name + ".yaml")
			must.Do(t, err)
			_, rest, _ := strings.Cut(string(text), "version: 1\n")
			rest = perThread.ReplaceAllString(processors.ReplaceAllString(device.ReplaceAllString(rest, "  dev: sim0"),
				""), "queues: 14")
			h := plug(t, rest, "driver=ice", fmt.Sprint("queues=", queues), "channels=2", "contexts=1",
				"mqprio_takes_rules=1", "speed=1000")
			before := bed.Dump(t)
			h.applied("hw 1 mode channel", "skip_sw hw_tc 1")
			h.restored(before)
		})
	}
}

// TestAdqsetup applies adqsetup's own examples, one after the other, through niclane's version of
// adqsetup's command line. Then it removes them.
func TestAdqsetup(t *testing.T) {
	onNewest(t)
	h := plug(t, "", ice...)
	before := bed.Dump(t)
	busyPoll := bed.Read(t, "/proc/sys/net/core/busy_poll")
	for _, e := range adqsetup.Examples() {
		file := filepath.Join(h.dir, e.Name)
		bed.Write(t, file, string(e.Text))
		h.niclane(0, "adqsetup", "--dev", "sim0", "apply", file)
		h.niclane(0, "adqsetup", "--dev", "sim0", "--dry-run", "apply", file)
	}
	if got := bed.Read(t, "/proc/sys/net/core/busy_poll"); got == busyPoll && got != "10000" {
		t.Errorf("busy_poll: %s as before, want 10000, as the last example has it", got)
	}
	h.niclane(0, "adqsetup", "--dev", "sim0", "create", "[globals]", "busypoll", "15000", "[nginx]", "queues", "6",
		"ports", "80")
	if got := bed.Read(t, "/proc/sys/net/core/busy_poll"); got != "15000" {
		t.Errorf("busy_poll: %s, want 15000", got)
	}
	bed.Says(t, h.niclane(0, "adqsetup", "reset"), "back as before")
	same(t, "after reset", before)
	if got := bed.Read(t, "/proc/sys/net/core/busy_poll"); got != busyPoll {
		t.Errorf("busy_poll: %s, want %s again", got, busyPoll)
	}
}
