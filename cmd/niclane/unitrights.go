// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/intent"
)

// withGroup is the first lane of a file that has a control group, nil if none has.
func withGroup(lanes []intent.Lane) *intent.Lane {
	i := slices.IndexFunc(lanes, func(l intent.Lane) bool {
		return slices.ContainsFunc(l.Members, func(m intent.Member) bool { return m.Cgroup != "" })
	})
	if i < 0 {
		return nil
	}
	return &lanes[i]
}

// checkUnit refuses a file that has got a control group since persist wrote the unit
// in which this command runs (systemd.exec(5), INVOCATION_ID): its steps would fail
// one by one, for want of rights.
func checkUnit(r *request) error {
	lane := withGroup(r.Intent.Lanes)
	if lane == nil || os.Getenv("INVOCATION_ID") == "" {
		return nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData // the version's two words
	if err := unix.Capget(&header, &has[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	if has[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0 {
		return nil
	}
	return fmt.Errorf("%s: %s has a control group, and this unit has not the rights for it (CAP_SYS_PTRACE): "+
		"write it again: niclane persist %[1]s, then systemctl daemon-reload and restart the unit", r.config, lane.Path)
}
