// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFileFlood: fileEvents reads one buffer at a time. So a file that is written all the time
// does not keep the reader from other events, or from its end.
func TestFileFlood(t *testing.T) {
	dir := t.TempDir()
	s := &Source{watches: map[string]watch{}}
	var err error
	if s.inotify, err = unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s.inotify)
	if _, err := s.watchFiles(Interest{Dirs: []string{dir}}); err != nil {
		t.Fatal(err)
	}
	const files = 100
	for i := range files { // two names in turn, because the kernel merges equal consecutive events
		if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i%2))), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	some := len(s.fileEvents(make([]byte, 10*(unix.SizeofInotifyEvent+16))))
	if some == 0 || some > 10 {
		t.Errorf("%d events at once, want those of a buffer", some)
	}
	if more := len(s.fileEvents(make([]byte, 1<<16))); more < files/2 {
		t.Errorf("%d events later, want the others", more)
	}
}
