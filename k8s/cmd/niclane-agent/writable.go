// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// masked are the directories that lanes write (sysctls, interrupts' processors) and
// that runtimes mount read-only over /proc of containers that are not privileged
// (readonlyPaths of the OCI runtime specification).
var masked = []string{"/proc/sys", "/proc/irq"}

// writable mounts directories read-write again in this mount namespace, each of
// which is a read-only mount of its own; others are left as they are. It takes
// CAP_SYS_ADMIN, and an AppArmor profile that allows mounts.
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
			errs = append(errs, fmt.Errorf("%s is mounted read-only, and mounting it read-write: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}
