// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// A Group is a control group of an application in one hierarchy.
type Group struct {
	// Hierarchy is "" for the unified hierarchy, otherwise the controllers as in
	// /proc/PID/cgroup ("cpuset", "net_cls,net_prio").
	Hierarchy string `json:"hierarchy"`
	// Root is the mount point of the hierarchy. Path is the group below it.
	Root string `json:"root"`
	Path string `json:"path"`
	// Made is true if niclane makes the group. niclane then removes the group when it is empty.
	Made bool `json:"made,omitempty"`
}

// Dir returns the group's directory.
func (g Group) Dir() string { return filepath.Join(g.Root, g.Path) }

// add makes a group without processes. In the cpuset hierarchy of cgroup v1, it also sets the
// group's processors and memory nodes, because no process could enter the group without them
// (cpusets(7)).
func (g Group) add(cpus, mems []int) error {
	if err := os.Mkdir(g.Dir(), 0o755); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	if !slices.Contains(strings.Split(g.Hierarchy, ","), "cpuset") && g.Hierarchy != "" {
		return nil
	}
	for _, f := range []struct {
		name string
		set  []int
	}{{"cpuset.cpus", cpus}, {"cpuset.mems", mems}} {
		value := []byte(device.FormatCPUList(f.set))
		name := filepath.Join(g.Dir(), f.name)
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			continue // the unified hierarchy has no cpuset controller here
		}
		if len(f.set) == 0 {
			if g.Hierarchy == "" {
				continue // left empty: the parent group's set applies
			}
			var err error
			if value, err = os.ReadFile(filepath.Join(filepath.Dir(g.Dir()), f.name)); err != nil {
				return fmt.Errorf("control group: %w", err)
			}
		}
		if err := os.WriteFile(name, value, 0); err != nil {
			return fmt.Errorf("%s to %q: %w", f.name, value, err)
		}
	}
	return nil
}

// join moves a process into the group. PID 0 is the calling process.
func (g Group) join(pid int) error {
	err := os.WriteFile(filepath.Join(g.Dir(), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
	if err != nil {
		return fmt.Errorf("process %d into control group %s: %w", pid, g.Dir(), errors.Unwrap(err))
	}
	return nil
}

// processes returns the PIDs in the group and in all groups below it, ascending. If the group no
// longer exists, there are none.
func (g Group) processes() ([]int, error) {
	var all []int
	err := filepath.WalkDir(g.Dir(), func(name string, d fs.DirEntry, err error) error {
		if gone(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if !d.IsDir() {
			return nil
		}
		b, err := os.ReadFile(filepath.Join(name, "cgroup.procs"))
		if gone(err) || errors.Is(err, unix.EOPNOTSUPP) { // a threaded group; its root group lists the PIDs
			return nil
		}
		if err != nil {
			return err
		}
		for f := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
				all = append(all, pid)
			}
		}
		return nil
	})
	slices.Sort(all)
	return slices.Compact(all), err
}

// exists reports whether the group's directory exists.
func (g Group) exists() bool {
	fi, err := os.Stat(g.Dir())
	return err == nil && fi.IsDir()
}

// remove removes a group that niclane made, and the groups that the application made below it. If
// one of them has processes, the error is EBUSY.
func (g Group) remove() error {
	if !g.Made {
		return nil
	}
	entries, err := os.ReadDir(g.Dir())
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		below := g
		below.Path = path.Join(g.Path, e.Name())
		if err := below.remove(); err != nil {
			return err
		}
	}
	if err := unix.Rmdir(g.Dir()); err != nil && !gone(err) {
		return &fs.PathError{Op: "rmdir", Path: g.Dir(), Err: err}
	}
	return nil
}

// gone reports whether an error means that a process, descriptor or group no longer exists.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV)
}

// membership returns the groups of a process by hierarchy, from /proc/PID/cgroup (cgroups(7)).
func membership(pid int) (map[string]string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil, err
	}
	return parseMembership(string(b)), nil
}

func parseMembership(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 {
			out[f[1]] = f[2]
		}
	}
	return out
}
