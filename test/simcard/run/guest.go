// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// guestCommand is the argument with which this command runs in a guest.
const guestCommand = "internal-guest"

// prepareGuest mounts the machine's programs with a cache. virtme mounts its root without a cache,
// so the guest would read a program from the host again at each start.
func prepareGuest() error {
	const cachedRoot = "/run/cached-root"
	if err := os.Mkdir(cachedRoot, 0o755); err != nil {
		return err
	}
	for _, m := range []struct {
		source, dir, kind string
		flags             uintptr
		data              string
	}{
		{rootTag, cachedRoot, "9p", unix.MS_RDONLY,
			"version=9p2000.L,trans=virtio,access=any,msize=524288,cache=loose"},
		{cachedRoot + "/usr", "/usr", "", unix.MS_BIND, ""},
	} {
		if err := unix.Mount(m.source, m.dir, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	return nil
}
