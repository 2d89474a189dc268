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

// Below makes a group below a group's directory that keeps its processes to
// processors and to the memory of NUMA nodes, and returns its directory. That is
// more than an affinity: a process that places its own threads cannot leave it.
// Where the hierarchy has no cpuset there it is the directory itself. Of the
// unified hierarchy the upper group may have no processes of its own.
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

// leaving is how long a process may take to leave its group: it does when its
// parent has collected it, which can be after it ended.
const leaving = 5 * time.Second

// Remove removes a group, whose processes have been ended, and those below it.
// One that is gone is no error.
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
