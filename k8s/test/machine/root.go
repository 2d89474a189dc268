// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// makeRoot mounts the machine's root directory, and makes it the root of the calling process.
func makeRoot(c Config, hierarchies []hierarchy) error {
	root := filepath.Join(c.Disk, "root")
	in := func(path string) string { return filepath.Join(root, path) }
	if err := mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, dir := range []string{"/usr", "/dev"} {
		if err := bind(dir, in(dir), dir == "/usr"); err != nil {
			return err
		}
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib32", "lib64"} {
		// Since Debian 12, these directories are links into /usr.
		if to, err := os.Readlink("/" + dir); err == nil {
			if err := os.Symlink(to, in(dir)); err != nil {
				return err
			}
		}
	}
	for _, dir := range onDisk {
		if err := bind(filepath.Join(c.Disk, dir), in(dir), false); err != nil {
			return err
		}
	}
	for _, dir := range c.Programs {
		if err := bind(dir, in(dir), true); err != nil {
			return err
		}
	}
	for _, fs := range []struct{ kind, path string }{
		{"tmpfs", "run"}, {"tmpfs", "tmp"}, {"proc", "proc"}, {"sysfs", "sys"}, {"bpf", "sys/fs/bpf"},
		{"tmpfs", "sys/fs/cgroup"}, {"tracefs", "sys/kernel/tracing"},
	} {
		if err := mount(fs.kind, in(fs.path), fs.kind, 0, ""); err != nil {
			return err
		}
	}
	if err := ownSysctls(c.Sysctls, in("proc/sys"), in("run/sysctl")); err != nil {
		return err
	}
	for _, h := range hierarchies {
		if err := h.mount(in("sys/fs/cgroup")); err != nil {
			return err
		}
	}
	if err := os.Symlink("../run", in("var/run")); err != nil && !os.IsExist(err) {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	// If both arguments are the same, the old root is mounted on top of the new one (pivot_root(2)).
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root to %s: %w", root, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the host's root: %w", err)
	}
	// Container runtimes share mounts with containers, which needs a shared root.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	return os.Chdir("/")
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s at %s: %w", kind, target, err)
	}
	return nil
}

func bind(source, target string, readOnly bool) error {
	if err := mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil || !readOnly {
		return err
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make %s read only: %w", target, err)
	}
	return nil
}

// ownSysctls keeps the machine's writes to sysctls (below sys) away from the host's kernel. Sysctls
// in net belong to the network namespace and stay writable. All others are global
// (Documentation/admin-guide/sysctl) and become read-only. For those in values, ownSysctls mounts
// plain files with the values over them, which programs can write.
func ownSysctls(values map[string]string, sys, dir string) error {
	for name, value := range values {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(file, filepath.Join(sys, name), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount over sysctl %s: %w", name, err)
		}
	}
	net := filepath.Join(sys, "net")
	if err := bind(net, net, false); err != nil {
		return err
	}
	// The mounts below sys (net and the values) stay writable (mount(2)).
	return bind(sys, sys, true)
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}
