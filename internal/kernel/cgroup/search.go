// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// shortestID is the length of the short IDs that container tools print, longestID the
// length of complete ones.
const (
	shortestID = 12
	longestID  = 64
)

// NamesContainer reports whether a control group with the name base is that of the container
// with the ID id. Runtimes use these names: ID (docker, containerd, runc with cgroupfs),
// RUNTIME-ID (podman, CRI-O with cgroupfs), RUNTIME-ID.scope (systemd), and SLICE:RUNTIME:ID (a
// systemd name given to cgroupfs, if kubelet and containerd use different drivers). Groups of
// conmon, which podman and CRI-O also make for a container, do not count. The first 12 or more
// digits of an ID are enough.
func NamesContainer(base, id string) bool {
	name := strings.TrimSuffix(base, ".scope")
	if i := strings.LastIndex(name, ":"); i >= 0 {
		return sameID(name[i+1:], id)
	}
	i := strings.LastIndex(name, "-")
	if i < 0 {
		return sameID(name, id)
	}
	runtime, rest := name[:i], name[i+1:]
	if name == id && name == base { // an ID that the user chose
		return true
	}
	return !strings.HasSuffix(runtime, "conmon") && len(rest) == longestID && sameID(rest, id)
}

// sameID reports whether id equals name. If name has 64 digits, its first 12 or more are
// enough as id, because tools print such IDs shortened.
func sameID(name, id string) bool {
	return name == id && id != "" || len(name) == longestID && len(id) >= shortestID && strings.HasPrefix(name, id)
}

// Search returns the control groups whose names want accepts, as paths below root. root is the
// mount point of the first hierarchy that has such groups, because runtimes do not use all
// hierarchies. root is "" if no hierarchy has them. Search does not look inside an accepted
// group.
func Search(c device.Cgroup, want func(base string) bool) (root string, groups []string, err error) {
	for _, root := range Roots(c) {
		if groups, err = below(root, want); err != nil || len(groups) > 0 {
			return root, groups, err
		}
	}
	return "", nil, nil
}

// Roots returns the mount points of the hierarchies, the unified one first.
func Roots(c device.Cgroup) []string {
	roots := Mounts(c)
	if c.V2 == "" {
		return roots
	}
	return append([]string{c.V2}, slices.DeleteFunc(roots, func(r string) bool { return r == c.V2 })...)
}

func below(root string, want func(base string) bool) ([]string, error) {
	var found []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV): // removed meanwhile
			return nil
		case err != nil:
			return err
		case !d.IsDir() || name == root:
			return nil
		case want(path.Base(name)):
			found = append(found, strings.TrimPrefix(name, root))
			return fs.SkipDir
		}
		return nil
	})
	return found, err
}
