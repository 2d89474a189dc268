// SPDX-License-Identifier: Apache-2.0

package waits_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/live/waits"
)

// TestLockdown locks the kernel down, until it ends. The level of Secure Boot, integrity, leaves the waits; the
// next one takes them, and the error says so.
func TestLockdown(t *testing.T) {
	if !emulated() {
		t.Skip("only in a guest, because it cannot be undone")
	}
	vethtest.NeedRoot(t)
	const dir = "/sys/kernel/security"
	if err := unix.Mount("securityfs", dir, "securityfs", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		t.Fatal(err)
	}
	o := waits.Options{Targets: []waits.Target{{Name: "server", Protocol: "tcp", Ports: []uint16{port}}}}
	for _, level := range []string{"integrity", "confidentiality"} {
		must.Do(t, os.WriteFile(dir+"/lockdown", []byte(level), 0))
		c, err := waits.Open(t.Context(), o)
		if level == "integrity" {
			must.Do(t, err)
			must.Do(t, c.Close())
		} else if err == nil || !strings.Contains(err.Error(), "the kernel is locked down") {
			t.Errorf("%s: error %v", level, err)
		}
	}
}
