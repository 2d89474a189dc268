// SPDX-License-Identifier: Apache-2.0

package labtest

import (
	"os"
	"testing"

	"github.com/niclane/niclane/lab/virtual"
)

// NeedVirtual skips a test if tools/virtual-kernel has not built the kernel of virtual time. If
// NICLANE_VIRTUAL is 1, as in "make virtual", the test fails instead.
func NeedVirtual(t testing.TB) {
	t.Helper()
	switch err := virtual.Check(""); {
	case err == nil:
	case os.Getenv("NICLANE_VIRTUAL") == "1":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}
