// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// drives returns directories in which sessions can have storage.
func drives(t *testing.T, n int) (out []string) {
	t.Helper()
	dir := t.TempDir()
	// Change only the test's own directories: os.TempDir is the system's.
	for at := dir; at != filepath.Clean(os.TempDir()); at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		out = append(out, filepath.Join(dir, fmt.Sprintf("nvme%d", i)))
		if err := os.Mkdir(out[i], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// empty checks that directories are empty.
func empty(t *testing.T, dirs []string) {
	t.Helper()
	for _, dir := range dirs {
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("in %s is left: %v, %v", dir, left, err)
		}
	}
}

// TestStorage: a session gets a directory of its own in each requested directory. Jobs can write
// to it. At the session's end it is removed with its content.
func TestStorage(t *testing.T) {
	dirs := drives(t, 2)
	d, a := served(t, func(c *Config) { c.Any = true })
	d.Storage = []string{dirs[1], dirs[0]}
	c := open(t, d)
	made := c.Host.Storage
	if len(made) != 2 || filepath.Dir(made[0]) != dirs[1] || filepath.Dir(made[1]) != dirs[0] {
		t.Fatalf("storage %q in %q", made, d.Storage)
	}
	for _, path := range made {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || a.drop &&
			(st.Mode&0o7777 != unix.S_ISVTX|0o770 || st.Uid != 0 || int(st.Gid) != a.gid) {
			t.Errorf("%s: mode %o, user %d, group %d: %v", path, st.Mode, st.Uid, st.Gid, err)
		}
	}
	j := start(t, c, Request{What: "a server", Command: []string{"sh", "-c",
		"mkdir -p $0/cache/a && echo x > $0/cache/a/b && ln -s $1 $0/link", made[0], dirs[0]}})
	if e := ends(t, j); e.Error != "" {
		t.Errorf("a server writes there: %s", e.Error)
	}
	end(t, c)
	empty(t, dirs)
}

// TestStorageIsRefused: only root may be able to write to a directory for storage, and servers
// must be able to enter it. Otherwise the agent refuses the session and makes nothing.
func TestStorageIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: directories of other users are needed")
	}
	d, _ := served(t, nil)
	dirs := drives(t, 2)
	good, bad := dirs[0], dirs[1]
	below := filepath.Join(bad, "below")
	restored := func() error {
		return errors.Join(os.RemoveAll(bad), os.Mkdir(bad, 0o755), os.Mkdir(below, 0o755))
	}
	for name, tt := range map[string]struct {
		spoil   func() error
		storage string
		want    string
	}{
		"relative":  {nil, "srv/nvme0", "storage srv/nvme0: want an absolute path in its shortest form"},
		"not clean": {nil, bad + "/../nvme1", "want an absolute path in its shortest form"},
		"twice":     {nil, good, "storage " + good + ": given twice"},
		"control":   {nil, bad + "\n", "want 1 to 200 bytes of text in one line"},
		"none": {func() error { return os.RemoveAll(bad) }, bad,
			"storage " + bad + ": lstat " + bad + ": no such file or directory"},
		"a file": {func() error { return errors.Join(os.RemoveAll(bad), os.WriteFile(bad, nil, 0o755)) },
			bad, "storage " + bad + ": " + bad + " is not a directory"},
		"a link": {func() error { return errors.Join(os.RemoveAll(bad), os.Symlink(good, bad)) }, bad,
			"storage " + bad + ": a symbolic link leads to " + good + ", want that path"},
		"everybody writes": {func() error { return os.Chmod(bad, 0o777) }, bad,
			"storage " + bad + ": other users than its owner can write " + bad + " (mode 0777), want mode 0755"},
		"and sticky": {func() error { return os.Chmod(bad, os.ModeSticky|0o777) }, bad,
			"other users than its owner can write " + bad + " (mode 1777), want mode 0755"},
		"a group writes": {func() error { return os.Chmod(bad, 0o775) }, bad, "(mode 0775), want mode 0755"},
		"above it": {func() error { return os.Chmod(bad, 0o777) }, below,
			"storage " + below + ": other users than its owner can write " + bad + " (mode 0777)"},
		"somebody's": {func() error { return os.Chown(bad, 1000, 0) }, bad,
			"storage " + bad + ": " + bad + " belongs to user 1000, which could replace it; want root or " +
				"user 0"},
		"somebody's above": {func() error { return os.Chown(bad, 1000, 0) }, below,
			"storage " + below + ": " + bad + " belongs to user 1000"},
		"closed": {func() error { return os.Chmod(bad, 0o700) }, below,
			"storage " + below + ": user nobody, which servers run as, cannot enter " + bad +
				" (mode 0700), want mode 0755"},
		"the 17th":              {nil, "", "storage in 17 directories, want at most 16"},
		"fine, above is sticky": {func() error { return os.Chmod(bad, os.ModeSticky|0o777) }, below, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := restored(); err != nil {
				t.Fatal(err)
			}
			if tt.spoil != nil {
				if err := tt.spoil(); err != nil {
					t.Fatal(err)
				}
			}
			d := d
			d.Storage = []string{good, tt.storage}
			if tt.storage == "" {
				for i := range 15 {
					d.Storage = append(d.Storage, fmt.Sprintf("/srv/%d", i))
				}
			}
			c, err := Open(t.Context(), d)
			if tt.want == "" {
				if err == nil {
					err = c.Close(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
				empty(t, []string{good, below})
			} else {
				wantError(t, err, "host sut", tt.want)
			}
			empty(t, []string{good})
		})
	}
}

// TestStorageCannotBeMade: if a directory is on a read-only file system, the session does not
// start. The directories that the agent has made by then are removed.
func TestStorageCannotBeMade(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: cannot mount")
	}
	dirs := drives(t, 2)
	if err := unix.Mount("none", dirs[1], "tmpfs", unix.MS_RDONLY, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dirs[1], 0); err != nil {
			t.Error(err)
		}
	})
	d, a := served(t, nil)
	d.Storage = dirs
	_, err := Open(t.Context(), d)
	wantError(t, err, "host sut", "mkdir "+dirs[1]+"/"+storageName, "read-only file system")
	empty(t, dirs)
	absent(t, recordPath(a.Dir))
}

// TestForeignStorageStays: a path in a record is removed only if it belongs to the record's
// session.
func TestForeignStorageStays(t *testing.T) {
	dirs := drives(t, 1)
	mine := filepath.Join(dirs[0], storageName+"A")
	if err := os.Mkdir(mine, 0o755); err != nil {
		t.Fatal(err)
	}
	for session, path := range map[string]string{"B": mine, "": dirs[0] + "/" + storageName, "A": dirs[0]} {
		wantError(t, removeStorage(session, []string{path}), "not this session's")
	}
	if err := removeStorage("A", []string{mine}); err != nil {
		t.Error(err)
	}
	empty(t, dirs)
}
