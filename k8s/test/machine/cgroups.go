// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A hierarchy is a hierarchy of control groups: version 2, one or several controllers of version 1,
// or a named hierarchy of version 1 without controllers.
type hierarchy struct {
	kind    string // the type for mount(2)
	options string // "cpu", "name=systemd"
	dir     string // name of the directory in /sys/fs/cgroup where it is mounted
}

// hierarchies returns the hierarchies that the host has mounted. It adds net_prio if the kernel has
// it, because many hosts do not mount net_prio.
func hierarchies() ([]hierarchy, error) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []hierarchy
	known := controllers()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		field := strings.Fields(lines.Text())
		if len(field) < 4 || !strings.HasPrefix(field[1], "/sys/fs/cgroup") {
			continue
		}
		switch field[2] {
		case "cgroup2":
			found = append(found, hierarchy{"cgroup2", "", filepath.Base(field[1])})
		case "cgroup":
			var options []string
			for option := range strings.SplitSeq(field[3], ",") {
				if known[option] || strings.HasPrefix(option, "name=") {
					options = append(options, option)
				}
			}
			found = append(found, hierarchy{"cgroup", strings.Join(options, ","), filepath.Base(field[1])})
		}
	}
	prio := hierarchy{"cgroup", "net_prio", "net_prio"}
	if known["net_prio"] && !slices.ContainsFunc(found, func(h hierarchy) bool {
		return strings.Contains(h.options, "net_prio")
	}) {
		found = append(found, prio)
	}
	return found, nil
}

// controllers returns the names of the kernel's controllers that version 1 can have.
func controllers() map[string]bool {
	text, _ := os.ReadFile("/proc/cgroups") // empty if the kernel has no control groups
	known := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if name, _, ok := strings.Cut(line, "\t"); ok && !strings.HasPrefix(name, "#") {
			known[name] = true
		}
	}
	return known
}

func (h hierarchy) mount(below string) error {
	return mount(h.kind, filepath.Join(below, h.dir), h.kind, 0, h.options)
}

// group returns the path of a machine's control group in a hierarchy that is mounted at root.
func group(root, machine string) string { return filepath.Join(root, "niclane-machine-"+machine) }

// Inherited are the files that a new group of version 1 copies from the group above. Without CPUs and
// memory nodes, it accepts no process (cgroup-v1/cpusets.rst).
var Inherited = []string{"cpuset.cpus", "cpuset.mems"}

// enterCgroups makes the machine's own group in each hierarchy, and moves the calling process into
// it. It moves the calling thread into a cgroup namespace in which these groups are the roots. The
// hierarchies are mounted below scratch only during the call.
func enterCgroups(machine, scratch string) ([]hierarchy, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	if err := mount("tmpfs", scratch, "tmpfs", 0, ""); err != nil {
		return nil, err
	}
	for _, h := range all {
		if err := h.mount(scratch); err != nil {
			return nil, err
		}
		own := group(filepath.Join(scratch, h.dir), machine)
		if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		for _, file := range Inherited {
			text, err := os.ReadFile(filepath.Join(scratch, h.dir, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(own, file), text, 0)
			}
			if err != nil {
				return nil, err
			}
		}
		if err := os.WriteFile(filepath.Join(own, "cgroup.procs"), []byte("0"), 0); err != nil {
			return nil, err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return nil, fmt.Errorf("a namespace of control groups: %w", err)
	}
	for _, h := range all {
		if err := unix.Unmount(filepath.Join(scratch, h.dir), 0); err != nil {
			return nil, fmt.Errorf("unmount %s: %w", h.dir, err)
		}
	}
	return all, unix.Unmount(scratch, 0)
}

// removeCgroups removes the control groups of a halted machine.
func removeCgroups(machine string) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with this goroutine, and its mount namespace too.
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			all, err := hierarchies()
			if err != nil {
				return err
			}
			const scratch = "/tmp"
			if err := mount("tmpfs", scratch, "tmpfs", 0, ""); err != nil {
				return err
			}
			for _, h := range all {
				if err := h.mount(scratch); err != nil {
					return err
				}
				if err := removeTree(group(filepath.Join(scratch, h.dir), machine)); err != nil {
					return err
				}
			}
			return nil
		}()
	}()
	return <-done
}

// removeTree removes a control group and the groups below it.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(dir)
}
