// SPDX-License-Identifier: Apache-2.0

// Package hostfs reads and writes the files of sysfs, procfs and control groups that a plan
// may change. Paths are those that an administrator would type. A path in /sys means the
// sysfs of the calling thread's network namespace, even if the sysfs mounted at /sys shows
// another namespace. For writing, the package refuses every path outside /sys/class/net,
// /proc/irq, /proc/sys/net and the control group mounts, and follows no symbolic link except a
// network device's. It creates and removes no files.
package hostfs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// An FS gives access to the files of one network namespace. It is safe for concurrent use.
type FS struct {
	sys     int // descriptor of a sysfs root
	private bool
	cgroups []string
}

// Open makes an FS for the calling thread's network namespace. cgroups are the
// mount points of control group hierarchies.
//
// A sysfs shows the network namespace of the process that mounted it
// (sysfs_init_fs_context, net_grab_current_ns). So after unshare(2) or setns(2), /sys shows
// another namespace. Open mounts a sysfs for this namespace without attaching it
// (fsopen(2), fsmount(2)), which needs CAP_SYS_ADMIN. If that fails, Open uses /sys. Private
// reports which of the two the FS uses.
func Open(cgroups []string) (*FS, error) {
	f := &FS{cgroups: slices.Clone(cgroups)}
	fd, err := mountSysfs()
	if err == nil {
		f.sys, f.private = fd, true
		return f, nil
	}
	fd, err2 := unix.Open("/sys", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err2 != nil {
		return nil, fmt.Errorf("mount sysfs: %w; open /sys: %w", err, err2)
	}
	f.sys = fd
	return f, nil
}

// mountSysfs mounts a sysfs without attaching it. If the namespace has a sysfs already, the
// kernel uses the same superblock.
func mountSysfs() (int, error) {
	ctx, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(ctx)
	if err := unix.FsconfigCreate(ctx); err != nil {
		return -1, err
	}
	return unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
}

// Private reports whether the FS has mounted its own sysfs, which belongs to the namespace in
// which Open was called. Otherwise the FS uses /sys, which may show another namespace.
func (f *FS) Private() bool { return f.private }

// Close frees the sysfs.
func (f *FS) Close() error { return unix.Close(f.sys) }

const netPrefix = "/sys/class/net/"

// writable are the directories below which the package may write files. It may also write
// below control group mounts.
var writable = [...]string{netPrefix, "/proc/irq/", "/proc/sys/net/"}

// checkWrite returns an error if the package must not write the file name.
func (f *FS) checkWrite(name string) error {
	if !path.IsAbs(name) || path.Clean(name) != name {
		return fmt.Errorf("%s: not a clean absolute path", name)
	}
	for _, p := range writable {
		if strings.HasPrefix(name, p) {
			return nil
		}
	}
	for _, m := range f.cgroups {
		if strings.HasPrefix(name, m+"/") {
			return nil
		}
	}
	return fmt.Errorf("%s: niclane writes only below %s and control group mounts", name,
		strings.Join(writable[:], ", "))
}

// roots are the directories of procfs from which base resolves paths.
var roots = [...]string{"/proc/irq", "/proc/sys/net"}

// base opens the directory from which name is resolved, and returns the rest of the path. It
// tries control group mounts first, because they may be below /sys.
func (f *FS) base(name string) (dir int, rest string, err error) {
	best := ""
	for _, m := range f.cgroups {
		if strings.HasPrefix(name, m+"/") && len(m) > len(best) {
			best = m
		}
	}
	for _, r := range roots {
		if strings.HasPrefix(name, r+"/") {
			best = r
		}
	}
	if best != "" {
		dir, err = unix.Open(best, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return dir, name[len(best)+1:], err
	}
	if rest, ok := strings.CutPrefix(name, "/sys/"); ok {
		dir, err = unix.FcntlInt(uintptr(f.sys), unix.F_DUPFD_CLOEXEC, 0)
		return dir, rest, err
	}
	return -1, "", unix.EPERM
}

// openRead opens name for reading. It follows symbolic links that stay below the directory of
// base.
func (f *FS) openRead(name string, flags int) (int, error) {
	dir, rest, err := f.base(name)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return openat2(dir, rest, unix.OpenHow{
		Flags:   uint64(unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOCTTY | flags),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// openWrite opens name for writing. It follows only the link from /sys/class/net/DEV to the
// device, and crosses no mount.
func (f *FS) openWrite(name string) (int, error) {
	dir, rest, err := f.base(name)
	if err != nil {
		return -1, err
	}
	defer func() { unix.Close(dir) }()
	if below, ok := strings.CutPrefix(name, netPrefix); ok {
		dev, file, _ := strings.Cut(below, "/")
		fd, err := openat2(dir, "class/net/"+dev, unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV,
		})
		if errors.Is(err, unix.ENOENT) {
			return -1, fmt.Errorf("%s: %w", dev, unix.ENODEV)
		}
		if err != nil {
			return -1, err
		}
		unix.Close(dir)
		dir, rest = fd, file
	}
	return openat2(dir, rest, unix.OpenHow{
		Flags:   unix.O_WRONLY | unix.O_CLOEXEC | unix.O_NOCTTY,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
}

func openat2(dir int, name string, how unix.OpenHow) (int, error) {
	for {
		fd, err := unix.Openat2(dir, name, &how)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// ReadFile returns a file's content. It can read all files of sysfs, and all files that the
// package may write.
func (f *FS) ReadFile(name string) ([]byte, error) {
	fd, err := f.openRead(name, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 4096) // sysfs attributes are at most one page
	for {
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		if n == 0 {
			return b, nil
		}
		if b = b[:len(b)+n]; len(b) == cap(b) {
			b = slices.Grow(b, cap(b))
		}
	}
}

// ReadLink returns the target of a symbolic link in sysfs.
func (f *FS) ReadLink(name string) (string, error) {
	fd, err := f.openRead(path.Dir(name), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, path.Base(name), b)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return string(b[:n]), nil
}

// ReadDir returns the names in a directory, sorted.
func (f *FS) ReadDir(name string) ([]string, error) {
	fd, err := f.openRead(name, unix.O_DIRECTORY)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	h := os.NewFile(uintptr(fd), name)
	defer h.Close()
	names, err := h.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// Read returns the present value of the file with o's path, or nil if there is no such file.
// It trims white space around the value.
func (f *FS) Read(o device.Object) (device.Object, error) {
	v, ok := o.(device.File)
	if !ok {
		return nil, fmt.Errorf("object kind %q is not a file", o.Kind())
	}
	b, err := f.ReadFile(v.Path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v.Value = string(bytes.TrimSpace(b))
	return v, nil
}

// Write writes the value of next to its file in one write(2). It creates and removes no
// files, so it refuses a nil old or next. It also refuses paths outside the writable places.
// It keeps the kernel's errno.
func (f *FS) Write(old, next device.Object) error {
	if old == nil || next == nil {
		o := cmp.Or(next, old)
		return fmt.Errorf("%s: niclane does not make or remove files", o.Key())
	}
	v, ok := next.(device.File)
	if !ok {
		return fmt.Errorf("object kind %q is not a file", next.Kind())
	}
	return f.WriteFile(v.Path, v.Value)
}

// WriteFile writes value to an existing file in one write(2). It writes an empty value as a
// line end, because a write of no bytes does not reach the kernel's handler of cpuset.cpus
// and similar files.
func (f *FS) WriteFile(name, value string) error {
	if err := f.checkWrite(name); err != nil {
		return err
	}
	if strings.ContainsRune(value, 0) {
		return fmt.Errorf("%s: value %q contains a zero byte", name, value)
	}
	if value == "" {
		value = "\n"
	}
	fd, err := f.openWrite(name)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	n, err := writeOnce(fd, value)
	if err != nil {
		return &fs.PathError{Op: "write " + value + " to", Path: name, Err: err}
	}
	if n != len(value) {
		return &fs.PathError{Op: "write " + value + " to", Path: name, Err: io.ErrShortWrite}
	}
	return nil
}

func writeOnce(fd int, value string) (int, error) {
	for {
		n, err := unix.Write(fd, []byte(value))
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
