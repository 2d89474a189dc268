// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
)

// TestOpenFails checks that Open returns an error if it cannot open a socket, because no
// descriptor is free.
func TestOpenFails(t *testing.T) {
	var was unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	none := unix.Rlimit{Cur: 0, Max: was.Max}
	must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	s, err := Open()
	must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	if s != nil || !errors.Is(err, unix.EMFILE) {
		t.Errorf("%v, %v, want EMFILE", s, err)
	}
}
