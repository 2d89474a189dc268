// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/journal"
)

// TestSystemVanish removes the device during an apply. apply must return one error. The undo must
// report the device's objects as gone, and restore all others.
func TestSystemVanish(t *testing.T) {
	for _, at := range []int{0, 4, 9, 14, 19, 24, 29} {
		for _, after := range []bool{false, true} {
			onSystem(t, func(t *testing.T, lanes string) { vanish(t, lanes, at, after) })
		}
	}
}

func vanish(t *testing.T, lanes string, at int, after bool) {
	p := planHere(t, lanes)
	before := hostFiles(t)
	k := openKernel(t)
	defer k.Close()
	j := memoryJournal(t, journal.Head{Plan: p, Devices: p.Devices})
	shrinking := &meddled{System: k, t: t, at: at, after: after, lines: []string{"ip link del v0"}}
	report, err := apply.Run(context.Background(), shrinking, p, j, apply.Options{})
	if err == nil {
		t.Errorf("write %d (after %v): no error", at, after)
	}
	if lines := strings.Count(err.Error(), "\n"); lines > 0 {
		t.Errorf("write %d (after %v): %d lines of error:\n%v", at, after, lines+1, err)
	}
	if len(report.Left) > 0 {
		t.Errorf("write %d (after %v): left %+v", at, after, report.Left)
	}
	if got := j.Records(); len(got) > 0 {
		t.Errorf("write %d (after %v): still owned %+v", at, after, got)
	}
	same(t, fmt.Sprintf("write %d (after %v): files (-before +after)", at, after), before, hostFiles(t))
}

// hostFiles returns the files that a plan can write and that belong to no device.
func hostFiles(t *testing.T) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, pattern := range []string{"/proc/sys/net/core/*",
		"/sys/fs/cgroup/cpuset/" + cgroupPrefix() + "*/cpuset.[cm]*s"} {
		files, err := filepath.Glob(pattern)
		must.Do(t, err)
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil {
				m[f] = string(b)
			}
		}
	}
	return m
}
