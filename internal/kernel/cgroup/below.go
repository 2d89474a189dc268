// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// Below makes a group name in the directory dir of another group, and returns the new group's
// directory. The new group keeps its processes on the CPUs cpus and on the memory of the NUMA
// nodes mems. Unlike an affinity, it also binds a process that places its own threads. If dir
// has no cpuset controller, Below makes no group and returns dir. In the unified hierarchy, the
// upper group must not have processes of its own.
func Below(dir, name string, cpus, mems []int) (string, error) {
	switch have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers")); {
	case err == nil && !slices.Contains(strings.Fields(string(have)), "cpuset"):
		return dir, nil
	case err == nil:
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+cpuset"), 0); err != nil {
			return "", fmt.Errorf("enable cpuset: %w", err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	default: // version 1
		if _, err := os.Stat(filepath.Join(dir, "cpuset.cpus")); errors.Is(err, fs.ErrNotExist) {
			return dir, nil
		}
	}
	below := filepath.Join(dir, name)
	if err := os.Mkdir(below, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	for _, f := range []struct {
		name string
		set  []int
	}{{"cpuset.mems", mems}, {"cpuset.cpus", cpus}} {
		if err := os.WriteFile(filepath.Join(below, f.name), []byte(device.FormatCPUList(f.set)), 0); err != nil {
			return "", err
		}
	}
	return below, nil
}

// leaving is how long Remove waits until the processes have left a group. An ended process
// leaves its group only when its parent reaps it.
const leaving = 5 * time.Second

// Remove removes a group and the groups below it. The caller must end their processes first. It
// is no error if the group does not exist.
func Remove(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for deadline := time.Now().Add(leaving); ; {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		time.Sleep(10 * time.Millisecond)
	}
}
