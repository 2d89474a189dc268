// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"strings"
)

// Leave moves this process out of its control groups, to the root of each hierarchy by which
// systemd can kill it: version 2, and the named hierarchies of version 1 (systemd's own). If
// which is not nil, Leave leaves only the groups for which it returns true.
func Leave(which func(group string) bool) []error {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return []error{err}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []error{err}
	}
	var errs []error
	for line := range strings.Lines(string(b)) {
		// "1:name=systemd:/user.slice", "0::/user.slice" (cgroups(7)).
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || f[2] == "/" || f[1] != "" && !strings.HasPrefix(f[1], "name=") {
			continue
		}
		if which != nil && !which(f[2]) {
			continue
		}
		root := hierarchy(string(mounts), f[1])
		if root == "" {
			continue // not mounted here, so systemd cannot kill by it either
		}
		procs := filepath.Join(root, "cgroup.procs")
		if err := os.WriteFile(procs, []byte("0"), 0); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// hierarchy returns the mount point of a hierarchy, or "" if it is not mounted. name is "" for
// version 2, or the option of a named hierarchy ("name=systemd"). mountinfo has the lines of
// proc_pid_mountinfo(5).
func hierarchy(mountinfo, name string) string {
	for line := range strings.Lines(mountinfo) {
		head, tail, ok := strings.Cut(line, " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(h) < 5 || len(t) < 3 {
			continue
		}
		if name == "" && t[0] == "cgroup2" {
			return h[4]
		}
		if name != "" && t[0] == "cgroup" && strings.Contains(","+t[2]+",", ","+name+",") {
			return h[4]
		}
	}
	return ""
}

// IsLogin reports whether a group belongs to a login session or to a user's own manager, not
// to a system service. A login session's processes end when the user logs out
// (logind.conf(5), KillUserProcesses).
func IsLogin(group string) bool {
	first, rest, _ := strings.Cut(strings.TrimPrefix(group, "/"), "/")
	return first == "user.slice" && rest != ""
}
