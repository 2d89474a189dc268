// SPDX-License-Identifier: Apache-2.0

package vethtest

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
)

// HoldIOUring makes sure that no other test changes the sysctl kernel.io_uring_disabled until this
// test ends. The whole machine has one such sysctl, and go test runs packages in parallel. So
// HoldIOUring takes a shared lock on the sysctl's file (flock(2)); a test that changes the sysctl
// takes an exclusive one.
func HoldIOUring(t testing.TB) {
	t.Helper()
	f, err := os.Open("/proc/sys/kernel/io_uring_disabled")
	if errors.Is(err, fs.ErrNotExist) { // before Linux 6.6
		return
	}
	must.Do(t, err)
	t.Cleanup(func() { f.Close() })
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH)
	}
	must.Do(t, err)
}
