// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// masked are the directories of sysctls and of interrupts' CPUs, which lanes write. In unprivileged
// containers, runtimes mount them read-only (readonlyPaths of the OCI runtime specification).
var masked = []string{"/proc/sys", "/proc/irq"}

// writable remounts the directories that are read-only mounts as read-write, in this mount
// namespace. It needs CAP_SYS_ADMIN, and an AppArmor profile that allows mounts.
func writable(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", dir, err))
			continue
		}
		if fs.Flags&unix.ST_RDONLY == 0 {
			continue
		}
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
			""); err != nil {
			errs = append(errs, fmt.Errorf("%s is mounted read-only; remount it read-write: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}
