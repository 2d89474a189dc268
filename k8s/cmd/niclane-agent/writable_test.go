// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWritable mounts directories read-only, as a runtime does, in a mount namespace of its own. It
// checks that writable makes them writable again.
func TestWritable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			t.Error(err)
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Error(err)
			return
		}
		testWritable(t, t.TempDir())
	}()
	<-done
}

func testWritable(t *testing.T, dir string) {
	free, masked, plain := filepath.Join(dir, "free"), filepath.Join(dir, "masked"), filepath.Join(dir, "plain")
	for _, d := range []string{free, masked, plain} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Error(err)
			return
		}
	}
	for _, d := range []string{free, masked} {
		if err := unix.Mount(d, d, "", unix.MS_BIND, ""); err != nil {
			t.Error(err)
			return
		}
		defer unix.Unmount(d, 0)
	}
	if err := unix.Mount("", masked, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Error(err)
		return
	}
	write := func(d string) error { return os.WriteFile(filepath.Join(d, "f"), nil, 0o600) }
	if err := write(masked); err == nil {
		t.Error("what is masked can be written before")
	}
	if err := writable([]string{free, masked, plain}); err != nil {
		t.Error(err)
	}
	for _, d := range []string{free, masked, plain} {
		if err := write(d); err != nil {
			t.Error(err)
		}
	}
	missing := filepath.Join(dir, "missing")
	if err := writable([]string{missing}); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("%v, want one that names %s", err, missing)
	}
}
