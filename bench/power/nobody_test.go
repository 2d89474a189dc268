// SPDX-License-Identifier: Apache-2.0

package power

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// asNobody calls do on a thread that has the file access rights of user nobody. It makes all
// directories above path accessible to this user. The thread ends with its goroutine.
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
			runtime.LockOSThread() // never unlocked, so the thread ends
			// setfsuid(2) returns no error. It affects only this thread, and removes CAP_DAC_OVERRIDE from
			// it (capabilities(7)).
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
