// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/poller"
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 3 && os.Args[1] == poller.Command:
		if err := poller.Main(os.Args[2]); err != nil {
			os.Exit(1)
		}
		return
	case len(os.Args) == 3 && os.Args[1] == apply.GuardArg:
		if err := apply.RunGuard(os.Args[2]); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(vethtest.Isolate(m))
}

func newEngine(t testing.TB) *Engine {
	t.Helper()
	dir := t.TempDir()
	return &Engine{StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"),
		Warn: func(w string) { t.Errorf("warning: %s", w) }}
}

// shared returns a file with one lane. The lane has a ceiling and the given members. A member's
// number is the last byte of its address.
func shared(t testing.TB, dev, ceiling string, members ...int) *File {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nglobals: {dev: %s, link-rate: 1gbit, force: {queue-set: shared}}\nlanes:\n  web:\n "+
		"   mode: shared\n    queues: 1\n    ceiling: %s\n    members:\n", dev, ceiling)
	for _, i := range members {
		fmt.Fprintf(&b, "      - {name: pod-%d, ports: [80], addrs: [10.98.0.%[1]d]}\n", i)
	}
	f, err := Parse("/lanes.yaml", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func entries(t testing.TB, dev string) []device.FilterEntry {
	t.Helper()
	st, err := observe.Observe(t.Context(), observe.Options{Devices: []string{dev}, NoProbes: true})
	if err != nil {
		t.Fatal(err)
	}
	return st.Device(dev).Entries
}

// membersIn returns the numbers of shared's members for which the kernel has an entry.
func membersIn(t testing.TB, dev string) []int {
	t.Helper()
	var found []int
	for _, e := range entries(t, dev) {
		found = append(found, int(netip.MustParsePrefix(e.Match.Local).Addr().As4()[3]))
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func look(t testing.TB, e *Engine) *View {
	t.Helper()
	views, err := e.Look(t.Context(), nil)
	if err != nil || len(views) != 1 {
		t.Fatal(views, err)
	}
	return views[0]
}

func drifts(v *View) (keys []string) {
	for _, f := range v.Findings {
		if f.Severity == "drift" {
			keys = append(keys, f.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

func rollback(t testing.TB, e *Engine) {
	t.Helper()
	if _, err := e.Rollback(t.Context(), RollbackOptions{}); err != nil {
		t.Fatal(err)
	}
}

// openFiles returns how many files and sockets this process has open.
func openFiles(t testing.TB) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}
