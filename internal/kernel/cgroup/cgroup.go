// SPDX-License-Identifier: Apache-2.0

// Package cgroup finds where control group hierarchies are mounted: version 1 (one per
// controller), version 2, and both at once (hybrid). It mounts nothing. It makes and
// removes groups with a cpuset, and moves its own process to the root.
package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// Find returns the hierarchies that the calling thread sees. For each group in groups
// ("/system.slice/memcached.service"), it also returns whether the group exists in the
// hierarchy with the cpuset controller, and whether it exists in the unified hierarchy.
func Find(groups []string) (device.Cgroup, error) {
	b, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return device.Cgroup{}, err
	}
	c := Parse(string(b))
	if c.V2 != "" {
		b, err := os.ReadFile(path.Join(c.V2, "cgroup.controllers"))
		if err != nil {
			return c, err
		}
		c.V2Controllers = controllers(string(b))
	}
	for _, g := range groups {
		if c.Groups == nil {
			c.Groups, c.V2Groups, c.IDs = map[string]bool{}, map[string]bool{}, map[string]uint64{}
		}
		if c.Groups[g], err = isDir(c.CpusetDir(g)); err != nil {
			return c, err
		}
		if c.V2 != "" {
			if c.V2Groups[g], err = isDir(path.Join(c.V2, g)); err != nil {
				return c, err
			}
		}
		for _, root := range []string{c.CpusetDir("/"), c.V2, c.V1["net_prio"]} {
			if dir := path.Join(root, g); root != "" {
				if id, err := ID(dir); err == nil {
					c.IDs[dir] = id
				}
			}
		}
	}
	return c, nil
}

// ID returns the inode number of a group's directory. It identifies the group while the group
// exists.
func ID(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	return st.Ino, nil
}

func isDir(name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	fi, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return fi.IsDir(), nil
}

func controllers(s string) []string {
	cs := strings.Fields(s)
	slices.Sort(cs)
	return cs
}

// Parse reads proc_pid_mountinfo(5). If a hierarchy has several mounts, Parse takes the first
// mount of the whole hierarchy, else the first mount. So it prefers the whole hierarchy to a
// part that a container runtime has bound elsewhere. Parse ignores lines that it cannot read.
func Parse(mountinfo string) device.Cgroup {
	var c device.Cgroup
	whole := map[string]bool{} // by controller, "" for version 2
	for line := range strings.Lines(mountinfo) {
		m, ok := parseMount(line)
		if !ok {
			continue
		}
		switch m.fsType {
		case "cgroup2":
			if c.V2 == "" || m.root == "/" && !whole[""] {
				c.V2, whole[""] = m.point, m.root == "/"
			}
		case "cgroup":
			for opt := range strings.SplitSeq(m.superOpts, ",") {
				if !isController(opt) {
					continue
				}
				if c.V1 == nil {
					c.V1 = map[string]string{}
				}
				if c.V1[opt] == "" || m.root == "/" && !whole[opt] {
					c.V1[opt], whole[opt] = m.point, m.root == "/"
				}
			}
		}
	}
	return c
}

// isController reports whether an option of a version 1 superblock is a controller
// (cgroup1_show_options).
func isController(opt string) bool {
	switch opt {
	case "", "rw", "ro", "noprefix", "xattr", "none", "clone_children", "all", "favordynmods", "nofavordynmods",
		"cpuset_v2_mode":
		return false
	}
	return !strings.Contains(opt, "=")
}

type mount struct {
	root, point, fsType, superOpts string
}

// parseMount reads one line:
//
//	36 35 98:0 /root /point rw,noatime shared:1 - cgroup cgroup rw,cpuset
func parseMount(line string) (mount, bool) {
	head, tail, ok := strings.Cut(line, " - ")
	if !ok {
		return mount{}, false
	}
	f, t := strings.Fields(head), strings.Fields(tail)
	if len(f) < 6 || len(t) < 3 {
		return mount{}, false
	}
	return mount{root: unescape(f[3]), point: unescape(f[4]), fsType: t[0], superOpts: t[2]}, true
}

// unescape undoes the kernel's octal escapes of space, tab, newline and
// backslash in paths ("\040").
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Mounts returns the mount points of all hierarchies, sorted.
func Mounts(c device.Cgroup) []string {
	var ms []string
	if c.V2 != "" {
		ms = append(ms, c.V2)
	}
	for _, m := range c.V1 {
		ms = append(ms, m)
	}
	slices.Sort(ms)
	return slices.Compact(ms)
}
