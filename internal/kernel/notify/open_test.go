// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenFails checks that what cannot be opened is an error: without a free
// descriptor, no socket is.
func TestOpenFails(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := unix.Rlimit{Cur: 0, Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	s, err := Open()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if s != nil || !errors.Is(err, unix.EMFILE) {
		t.Errorf("%v, %v, want EMFILE", s, err)
	}
}
