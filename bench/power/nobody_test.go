// SPDX-License-Identifier: Apache-2.0

package power

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// asNobody runs do on a thread with the file system rights of nobody, who may
// enter all directories above path. The thread ends with its goroutine.
func asNobody(t *testing.T, path string, do func()) {
	t.Helper()
	if os.Geteuid() == 0 {
		for dir := path; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if os.Geteuid() == 0 {
			runtime.LockOSThread() // and never unlock
			// setfsuid(2) tells no errors; it acts on this thread alone and
			// takes CAP_DAC_OVERRIDE with it (capabilities(7)).
			unix.SetfsuidRetUid(65534)
			if was, _ := unix.SetfsuidRetUid(-1); was != 65534 {
				t.Error("setfsuid did not work")
				return
			}
		}
		do()
	}()
	<-done
}
