// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/intent"
)

// withGroup returns the first lane with a control group, nil if there is none.
func withGroup(lanes []intent.Lane) *intent.Lane {
	i := slices.IndexFunc(lanes, func(l intent.Lane) bool {
		return slices.ContainsFunc(l.Members, func(m intent.Member) bool { return m.Cgroup != "" })
	})
	if i < 0 {
		return nil
	}
	return &lanes[i]
}

// needsGroups reports whether the systemd unit of a lanes file needs the rights for control groups.
// It does if a lane has a control group. It also does if a lane had one when the file was last
// applied, because the next apply must undo that.
func (a *app) needsGroups(r *request) bool {
	if withGroup(r.Intent.Lanes) != nil {
		return true
	}
	groups, _ := a.Engine().GroupsOf(r.config) // its error concerns the devices
	return len(groups) > 0
}

// checkUnit returns an error if a lane has a control group, but this command runs in a systemd unit
// without the rights for it (systemd.exec(5), INVOCATION_ID). Such a unit was written when the file
// had no group yet. Without this check, the steps would fail one by one.
func checkUnit(r *request) error {
	lane := withGroup(r.Intent.Lanes)
	if lane == nil || os.Getenv("INVOCATION_ID") == "" {
		return nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData // version 3 has two words
	if err := unix.Capget(&header, &has[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	if has[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0 {
		return nil
	}
	return fmt.Errorf("%s: %s has a control group, and this unit lacks the rights for it (CAP_SYS_PTRACE): "+
		"write the unit again: niclane persist %[1]s, then systemctl daemon-reload and restart the unit", r.config,
		lane.Path)
}
