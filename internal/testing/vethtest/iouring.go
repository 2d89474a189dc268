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

// HoldIOUring keeps the sysctl kernel.io_uring_disabled unchanged until the test ends. The
// sysctl belongs to the whole machine, and go test runs packages in parallel. A test that
// changes it locks the file exclusively (flock(2)).
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
