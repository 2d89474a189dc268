// SPDX-License-Identifier: Apache-2.0

package cgroup

import "testing"

func TestIsLogin(t *testing.T) {
	for group, want := range map[string]bool{
		"/user.slice/user-0.slice/session-3.scope":                        true,
		"/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope": true,
		"/system.slice/niclane@eth0.service":                              false,
		"/system.slice/ssh.service":                                       false,
		"/user.slice":                                                     false,
		"/":                                                               false,
	} {
		if got := IsLogin(group); got != want {
			t.Errorf("%s: %v, want %v", group, got, want)
		}
	}
}

func TestHierarchy(t *testing.T) {
	const mounts = `30 24 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw
31 24 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
32 24 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
`
	for name, want := range map[string]string{"": "/sys/fs/cgroup/unified", "name=systemd": "/sys/fs/cgroup/systemd",
		"name=other": ""} {
		if got := hierarchy(mounts, name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
