// SPDX-License-Identifier: Apache-2.0

package vethtest

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lab/emucard"
)

// AddCard makes an emulated card behind Dev, in a mount namespace that ends with the test. Call it
// in the function f of Run. The card's programs are not attached, so it steers no packets.
func AddCard(t *testing.T, cfg emucard.Config) {
	t.Helper()
	OwnMounts(t)
	mount(t, emucard.Root, "bpf")
	MakeCard(t, cfg)
}

// OwnMounts moves the test into a new mount namespace with an empty /run. Call it once, in the
// function f of Run.
func OwnMounts(t *testing.T) {
	t.Helper()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skipf("unshare of the mount namespace: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skipf("private mounts: %v", err)
	}
	mount(t, "/run", "tmpfs")
}

func mount(t *testing.T, dir, fstype string) {
	t.Helper()
	must.Do(t, os.MkdirAll(dir, 0o755))
	if err := unix.Mount("none", dir, fstype, 0, ""); err != nil {
		t.Skipf("mount %s: %v", fstype, err)
	}
}

// MakeCard makes the card again, as happens if a lab goes down and up again.
func MakeCard(t *testing.T, cfg emucard.Config) {
	t.Helper()
	link := Interface(t, Dev)
	must.Do(t, emucard.Remove(emucard.Dir(link.HardwareAddr)))
	cfg.MAC, cfg.Arbiter = link.HardwareAddr, link.Index
	programs, err := emucard.Create(cfg)
	if errors.Is(err, unix.EPERM) {
		t.Skipf("emulated card: %v", err)
	}
	must.Do(t, err)
	t.Cleanup(func() { programs.Close() })
}
