// SPDX-License-Identifier: Apache-2.0

package vethtest

import (
	"errors"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/emucard"
)

// AddCard puts an emulated card behind Dev, in a mount namespace that ends
// with the test. It is to be called in Run's f. The card's programs are
// attached to nothing: it steers no packets.
func AddCard(t *testing.T, cfg emucard.Config) {
	t.Helper()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skipf("unshare of the mount namespace: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skipf("private mounts: %v", err)
	}
	for _, m := range []struct{ dir, fstype string }{{"/run", "tmpfs"}, {emucard.Root, "bpf"}} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("none", m.dir, m.fstype, 0, ""); err != nil {
			t.Skipf("mount %s: %v", m.fstype, err)
		}
	}
	MakeCard(t, cfg)
}

// MakeCard makes the card anew, as a lab that went down and up does.
func MakeCard(t *testing.T, cfg emucard.Config) {
	t.Helper()
	link, err := net.InterfaceByName(Dev)
	if err != nil {
		t.Fatal(err)
	}
	if err := emucard.Remove(emucard.Dir(link.HardwareAddr)); err != nil {
		t.Fatal(err)
	}
	cfg.MAC, cfg.Arbiter = link.HardwareAddr, link.Index
	programs, err := emucard.Create(cfg)
	if errors.Is(err, unix.EPERM) {
		t.Skipf("emulated card: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { programs.Close() })
}
