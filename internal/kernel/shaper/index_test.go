// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func TestIndex(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip(err)
	}
	if got, err := ifindex("lo"); got != lo.Index || err != nil {
		t.Errorf("lo: %d, %v, want %d", got, err, lo.Index)
	}
	for _, absent := range []string{"absent0", "a-name-of-more-than-15"} {
		if got, err := ifindex(absent); !errors.Is(err, unix.ENODEV) {
			t.Errorf("%s: %d, %v, want ENODEV", absent, got, err)
		}
	}
}
