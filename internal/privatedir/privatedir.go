// SPDX-License-Identifier: Apache-2.0

// Package privatedir makes and opens directories that no other user can enter. It refuses symbolic
// links, and directories that belong to another user: their owner could replace what is in them.
package privatedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Make creates dir with mode 0700 if it does not exist, and the directories above it too. Its errors
// are those of Open.
func Make(dir string) error {
	if err := create(dir); err != nil {
		return err
	}
	fd, err := Open(dir)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// Claim is like Make, but it takes the rights of other users away from a directory of this user. It
// is for directories that another program, such as kubelet, may have created first.
func Claim(dir string) error {
	if err := create(dir); err != nil {
		return err
	}
	fd, st, err := open(dir)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if int(st.Uid) != os.Geteuid() {
		return foreign(dir, st)
	}
	if err := unix.Fchmod(fd, 0o700); err != nil {
		return &fs.PathError{Op: "chmod", Path: dir, Err: err}
	}
	return nil
}

// Open returns a descriptor of dir, for openat(2). The error is fs.ErrNotExist if there is no dir,
// ENOTDIR if it is a file or a symbolic link, and EPERM if it belongs to another user or if other
// users have rights to it.
func Open(dir string) (fd int, err error) {
	fd, st, err := open(dir)
	if err != nil {
		return -1, err
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		unix.Close(fd)
		return -1, foreign(dir, st)
	}
	return fd, nil
}

func create(dir string) error {
	if _, err := os.Lstat(dir); err == nil {
		return nil // open says whether it is a directory
	}
	return os.MkdirAll(dir, 0o700)
}

func open(dir string) (fd int, st unix.Stat_t, err error) {
	fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) {
		return -1, st, fmt.Errorf("%s: %w: a file or a symbolic link; %s", dir, err, wanted())
	}
	if err != nil {
		return -1, st, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, st, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	return fd, st, nil
}

func foreign(dir string, st unix.Stat_t) error {
	return fmt.Errorf("%s: %w: owner %d, mode %#o; %s", dir, unix.EPERM, st.Uid, st.Mode&0o777, wanted())
}

func wanted() string {
	return fmt.Sprintf("it must be a directory of user %d with mode 0700", os.Geteuid())
}
