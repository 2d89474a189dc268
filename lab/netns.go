// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// thread runs f on a new OS thread, which ends with f. So no other code runs in namespaces that f
// enters. thread never uses the first thread of the process: /proc/PID shows that thread's
// namespaces as those of the process, and the Go runtime never ends it.
func thread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// This goroutine now holds the first thread, so thread(f) gets another one.
			done <- thread(f)
			runtime.UnlockOSThread()
			return
		}
		done <- f() // never unlocked, so the runtime ends the thread here
	}()
	return <-done
}

func netnsPath(name string) string { return filepath.Join(netnsDir, name) }

// addNetns makes a network namespace with a name, as ip-netns(8) does.
func addNetns(name string) error {
	path := netnsPath(name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	return thread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("network namespace %s: %w", name, err)
		}
		self := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		if err := unix.Mount(self, path, "", unix.MS_BIND, ""); err != nil {
			return &fs.PathError{Op: "mount", Path: path, Err: err}
		}
		return nil
	})
}

// deleteNetns removes the name of a network namespace. The kernel removes the namespace itself when
// nothing uses it.
func deleteNetns(name string) error {
	path := netnsPath(name)
	for {
		err := unix.Unmount(path, unix.MNT_DETACH)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break // path is not a mount point, or no longer
		}
		if err != nil {
			return &fs.PathError{Op: "umount", Path: path, Err: err}
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// A node is the open network namespace of a host.
type node struct {
	host string
	ns   netns.NsHandle
	nl   *netlink.Handle
}

func openNode(c Config, host string) (*node, error) {
	ns, err := netns.GetFromPath(netnsPath(c.Netns(host)))
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: netnsPath(c.Netns(host)), Err: err}
	}
	nl, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		ns.Close()
		return nil, fmt.Errorf("netlink in %s: %w", c.Netns(host), err)
	}
	return &node{host, ns, nl}, nil
}

func (n *node) close() {
	n.nl.Close()
	n.ns.Close()
}

// inode returns the inode of the namespace's file. It identifies the namespace.
func (n *node) inode() (uint64, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(n.ns), &st)
	return st.Ino, err
}

// do runs f on a thread in the namespace. /sys shows the namespace's devices to f.
func (n *node) do(f func() error) error {
	return thread(func() error {
		if err := enter(int(n.ns)); err != nil {
			return fmt.Errorf("%s: %w", n.host, err)
		}
		return f()
	})
}

// enter moves the calling thread into a network namespace. It also moves it into a new mount
// namespace whose /sys shows the devices of that network namespace. Unlike "ip netns exec", it
// keeps what is mounted below /sys: control groups, BPF and tracing.
func enter(ns int) error {
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("setns: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	// MS_SLAVE: a later mount or unmount on the host also happens here, but one here does not happen
	// on the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	below := []string{"/sys/fs/cgroup", "/sys/fs/bpf", "/sys/kernel/debug", "/sys/kernel/tracing"}
	trees := map[string]int{}
	defer func() {
		for _, fd := range trees {
			unix.Close(fd)
		}
	}()
	for _, path := range below {
		if !mountPoint(path) {
			continue
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return &fs.PathError{Op: "open_tree", Path: path, Err: err}
		}
		trees[path] = fd
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	for _, path := range below {
		if fd, ok := trees[path]; ok {
			if err := unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
				return &fs.PathError{Op: "move_mount", Path: path, Err: err}
			}
		}
	}
	return nil
}

// mountPoint reports whether something is mounted at path. If so, path is on another device than
// its parent directory.
func mountPoint(path string) bool {
	var here, above unix.Stat_t
	return unix.Stat(path, &here) == nil && unix.Stat(filepath.Dir(path), &above) == nil && here.Dev != above.Dev
}
