// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestDump checks that dump asks again if the list changed during the dump, but not without end.
func TestDump(t *testing.T) {
	other := errors.New("other")
	for name, c := range map[string]struct {
		interrupted, want int
		err               error
	}{"at once": {0, 1, nil}, "interrupted": {3, 4, nil}, "an error": {2, 3, other},
		"always": {1 << 20, dumps, netlink.ErrDumpInterrupted}} {
		asked := 0
		got, err := dump(func() (int, error) {
			if asked++; asked <= c.interrupted {
				return 0, netlink.ErrDumpInterrupted
			}
			return asked, c.err
		})
		if asked != c.want || !errors.Is(err, c.err) || err == nil && got != asked {
			t.Errorf("%s: asked %d times, got %d, %v", name, asked, got, err)
		}
	}
}
