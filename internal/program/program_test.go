// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
	t.Cleanup(func() { os.Remove(path) })
	return path
}

// TestFind: Find prefers a program in this process's directory to one in the PATH.
func TestFind(t *testing.T) {
	self, err := os.Executable()
	must.Do(t, err)
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if path, err := Find(Bench); err == nil || !strings.Contains(err.Error(), "want the package niclane-bench installed") {
		t.Errorf("found %q, %v", path, err)
	}
	inPath := write(t, filepath.Join(dir, Bench), "")
	if path, err := Find(Bench); path != inPath {
		t.Errorf("found %q, %v, want %s", path, err, inPath)
	}
	beside := write(t, filepath.Join(filepath.Dir(self), Bench), "")
	if path, err := Find(Bench); path != beside {
		t.Errorf("found %q, %v, want %s", path, err, beside)
	}
	must.Do(t, os.Chmod(beside, 0o644))
	if path, err := Find(Bench); path != inPath {
		t.Errorf("one that cannot be executed: found %q, %v, want %s", path, err, inPath)
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	l := Lanes{Path: write(t, filepath.Join(dir, Niclane), `echo "$*"; echo why >&2; exit 3`), StateDir: "/s", RunDir: "/r"}
	out, err := l.Run(t.Context(), "verify", "x.yaml")
	if string(out) != "--json --state-dir /s --run-dir /r verify x.yaml\n" {
		t.Errorf("prints %q", out)
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || err.Error() != "niclane verify: exit status 3: why" {
		t.Errorf("%v", err)
	}

	// Run gives an interrupted command time to undo its steps.
	started := filepath.Join(dir, "started")
	l.Path = write(t, filepath.Join(dir, "slow"), `trap 'echo undone; exit 1' TERM; : >`+started+`; while :; do sleep 0.01; done`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(started); err == nil {
				cancel()
			}
		}
	}()
	if out, err := l.Run(ctx, "apply"); string(out) != "undone\n" || err == nil {
		t.Errorf("prints %q, %v", out, err)
	}
}
