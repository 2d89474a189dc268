// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lab/emucard"
)

// down removes all objects in the record, and the record last. It can be called again after a
// failure: an object that no longer exists is no error.
func (r record) down(ctx context.Context) error {
	for _, host := range append(HostNames(), Switch) {
		if err := r.clear(ctx, host); err != nil {
			return fmt.Errorf("lab %s: %w", r.Config.Name, err)
		}
	}
	for _, step := range []func() error{
		func() error { return emucard.Remove(emucard.Dir(r.Config.MAC(SUT))) },
		unmountBPF,
		r.Cgroup.remove,
		r.remove,
	} {
		if err := step(); err != nil {
			return fmt.Errorf("lab %s: %w", r.Config.Name, err)
		}
	}
	return nil
}

// clear ends the processes on a host and removes the host's devices and namespace.
func (r record) clear(ctx context.Context, host string) error {
	path := netnsPath(r.Config.Netns(host))
	if named(path) {
		n, err := openNode(r.Config, host)
		if err != nil {
			return err
		}
		err = errors.Join(n.kill(ctx), n.deleteLinks())
		n.close()
		if err != nil {
			return err
		}
	}
	return deleteNetns(r.Config.Netns(host))
}

// named reports whether a network namespace is mounted at path. If the lab was killed, path may be
// an empty file, without a namespace.
func named(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC
}

// deleteLinks deletes the host's devices now. The kernel would delete them some time after the
// namespace has ended.
func (n *node) deleteLinks() error {
	links, err := n.nl.LinkList()
	if err != nil {
		return fmt.Errorf("devices of %s: %w", n.host, err)
	}
	for _, l := range links {
		if l.Type() != "veth" {
			continue
		}
		err := n.nl.LinkDel(l)
		var gone netlink.LinkNotFoundError
		// When one end of a pair is deleted, the kernel also deletes the other end.
		if err != nil && !errors.As(err, &gone) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("delete %s in %s: %w", l.Attrs().Name, n.host, err)
		}
	}
	return nil
}

// kill ends the processes in the namespace. It sends SIGTERM, and after a second SIGKILL.
func (n *node) kill(ctx context.Context) error {
	start := time.Now()
	for {
		pids, err := n.processes()
		if err != nil || len(pids) == 0 {
			return err
		}
		sig := unix.SIGTERM
		if time.Since(start) > time.Second {
			sig = unix.SIGKILL
		}
		for _, pid := range pids {
			if err := n.signal(pid, sig); err != nil {
				return fmt.Errorf("end process %d on %s: %w", pid, n.host, err)
			}
		}
		if time.Since(start) > 10*time.Second {
			return fmt.Errorf("processes %v on %s do not end", pids, n.host)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// processes returns the PIDs of the processes in the namespace, without this process.
func (n *node) processes() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	inode, err := n.inode()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && pid != os.Getpid() && netnsOf(pid) == inode {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// netnsOf returns the inode of a process's network namespace, or 0 if the process has ended.
func netnsOf(pid int) uint64 {
	var st unix.Stat_t
	if unix.Stat(filepath.Join("/proc", strconv.Itoa(pid), "ns/net"), &st) != nil {
		return 0
	}
	return st.Ino
}

// signal sends a signal to a process of the namespace. If the process has ended and another one has
// its PID now, signal does nothing.
func (n *node) signal(pid int, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	inode, err := n.inode()
	if err != nil || netnsOf(pid) != inode {
		return err
	}
	err = unix.PidfdSendSignal(fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
