// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxStorage is the largest number of storage directories of a session. With maxText bytes each,
// their names fit into the first line of the session's request.
const maxStorage = 16

// storageName is the start of the name of a session's storage directory. The session's ID follows.
const storageName = "niclane-bench-"

// checkStorage checks the directories that an orchestrator names for storage.
func checkStorage(dirs []string) error {
	if len(dirs) > maxStorage {
		return fmt.Errorf("storage in %d directories, want at most %d", len(dirs), maxStorage)
	}
	var errs []error
	for i, dir := range dirs {
		switch err := checkText("storage", dir); {
		case err != nil:
			errs = append(errs, err)
		case !filepath.IsAbs(dir) || filepath.Clean(dir) != dir:
			errs = append(errs, fmt.Errorf("storage %s: want an absolute path in its shortest form", dir))
		case slices.Contains(dirs[:i], dir):
			errs = append(errs, fmt.Errorf("storage %s: given twice", dir))
		}
	}
	return errors.Join(errs...)
}

// planStorage checks the directories dirs. It returns the paths of the directories that the
// session will make, one in each of dirs.
func (a *Agent) planStorage(session string, dirs []string) (out []string, err error) {
	var errs []error
	for _, dir := range dirs {
		if err := a.mayStore(dir); err != nil {
			errs = append(errs, fmt.Errorf("storage %s: %w", dir, err))
		}
		out = append(out, filepath.Join(dir, storageName+session))
	}
	return out, errors.Join(errs...)
}

// mayStore refuses a directory that another user could replace: root would then create and
// remove files in another directory. It also refuses a directory that jobs cannot reach.
func (a *Agent) mayStore(dir string) error {
	to, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if to != dir {
		return fmt.Errorf("a symbolic link leads to %s, want that path", to)
	}
	for at := dir; ; at = filepath.Dir(at) {
		var st unix.Stat_t
		if err := unix.Lstat(at, &st); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		open := st.Mode&0o022 != 0 && (at == dir || st.Mode&unix.S_ISVTX == 0)
		switch {
		case st.Mode&unix.S_IFMT != unix.S_IFDIR:
			return fmt.Errorf("%s is not a directory", at)
		case st.Uid != 0 && int(st.Uid) != os.Geteuid():
			return fmt.Errorf("%s belongs to user %d, which could replace it; want root or user %d", at,
				st.Uid, os.Geteuid())
		case open:
			return fmt.Errorf("other users than its owner can write %s (mode %04o), want mode 0755", at, st.Mode&0o7777)
		case a.drop && st.Mode&0o001 == 0:
			return fmt.Errorf("user %s, which servers run as, cannot enter %s (mode %04o), want mode 0755",
				a.User, at, st.Mode&0o7777)
		}
		if at == "/" {
			return nil
		}
	}
}

// makeDir makes a directory. If jobs have a user of their own, their group can write to it. The
// directory is then sticky, so that jobs cannot replace the agent's files.
func (a *Agent) makeDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil || !a.drop {
		return err
	}
	if err := os.Chown(path, -1, a.gid); err != nil {
		return err
	}
	return os.Chmod(path, os.ModeSticky|0o770)
}

// removeStorage removes the session's storage directories. The paths come from a record, which may
// be wrong: removeStorage refuses a path that does not end in the name for this session.
func removeStorage(session string, dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		if session == "" || !strings.HasSuffix(dir, "/"+storageName+session) {
			errs = append(errs, fmt.Errorf("storage %s: not this session's", dir))
			continue
		}
		// Skip a directory that was never made: on a read-only file system, RemoveAll would fail.
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}
