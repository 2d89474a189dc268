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

// shortestID is the length of the short IDs that container tools print, longestID that
// of whole ones.
const (
	shortestID = 12
	longestID  = 64
)

// NamesContainer reports whether a control group is a container's, by its name and the
// container's ID, as runtimes name it: ID (docker, containerd, runc with cgroupfs),
// RUNTIME-ID (podman, CRI-O with cgroupfs), RUNTIME-ID.scope (with systemd), or
// SLICE:RUNTIME:ID (a name for systemd that was given to cgroupfs: kubelet and containerd
// with different drivers). The groups that podman and CRI-O put beside it (conmon) are not
// it. The beginning of an ID, 12 digits or more, is enough.
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
	if name == id && name == base { // an ID that somebody chose
		return true
	}
	return !strings.HasSuffix(runtime, "conmon") && len(rest) == longestID && sameID(rest, id)
}

// sameID reports whether id is name, or enough of its beginning if name is one
// of the 64 hexadecimal digits that tools shorten.
func sameID(name, id string) bool {
	return name == id && id != "" || len(name) == longestID && len(id) >= shortestID && strings.HasPrefix(name, id)
}

// Search returns the control groups whose name is wanted, by path below the root of the
// first hierarchy that has any: runtimes do not use all of them. Those within one that is
// wanted are left out. Where none has any it returns "".
func Search(c device.Cgroup, want func(base string) bool) (root string, groups []string, err error) {
	for _, root := range Roots(c) {
		if groups, err = below(root, want); err != nil || len(groups) > 0 {
			return root, groups, err
		}
	}
	return "", nil, nil
}

// Roots are the hierarchies' mount points, the unified one first.
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
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV): // it went meanwhile
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
