// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/internal/kernel/notify"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/watch"
	"github.com/niclane/niclane/watch/host"
)

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

// TestAppliedAnew: repairs of lanes have failed, and the agent reports that the lanes are not
// healthy. When the file is applied again, the keeper tries again.
func TestAppliedAnew(t *testing.T) {
	dev := vethtest.Uplink(t)
	groups, err := cgroup.Find(nil)
	if err != nil {
		t.Fatal(err)
	}
	if groups.V2 == "" {
		t.Skip("no unified hierarchy is mounted")
	}
	group := fmt.Sprintf("/nltest-%d-anew", os.Getpid())
	if err := os.Mkdir(groups.V2+group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(groups.V2 + group) })
	file := func(force, members string) *engine.File {
		f, err := engine.Parse("/lanes.yaml", fmt.Appendf(nil, `version: 1
globals: {dev: %s, link-rate: 1gbit, force: {queue-set: shared%s}}
lanes:
  web: {mode: shared, queues: 1, ceiling: 50%%, members: [%s]}
`, dev, force, members))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	dir := t.TempDir()
	e := &engine.Engine{StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"),
		Memory: new(engine.Memory)}
	apply := func(f *engine.File) {
		t.Helper()
		if _, err := e.Apply(t.Context(), f, engine.ApplyOptions{Wait: true, Keep: true}); err != nil {
			t.Fatal(err)
		}
	}
	apply(file(", classifier: cgroup-sockops", fmt.Sprintf("{name: m, ports: [7], cgroup: %s}", group)))
	source, err := notify.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	events := make(chan watch.Event, 100)
	m := &host.Machine{Engine: e, Source: source, Config: "/lanes.yaml"}
	k := watch.NewKeeper(m, watch.Options{Report: func(e watch.Event) { t.Log(e); events <- e }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- watch.Run(ctx, k, source.Events()) }()
	until := func(kind, text string) {
		t.Helper()
		end := time.After(3 * time.Second)
		for {
			select {
			case e := <-events:
				if e.Kind == kind && strings.Contains(e.Text, text) {
					return
				}
			case <-end:
				t.Fatalf("no event %s %q", kind, text)
			}
		}
	}
	until(watch.Begun, "")
	if err := os.Remove(groups.V2 + group); err != nil {
		t.Fatal(err)
	}
	until(watch.Failed, "no control group")
	apply(file("", ""))
	until(watch.Notice, "applied again")
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := e.Rollback(t.Context(), engine.RollbackOptions{}); err != nil {
		t.Fatal(err)
	}
}
