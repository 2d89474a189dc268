// SPDX-License-Identifier: Apache-2.0

package atomicfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/atomicfile"
)

func TestWrite(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, perm := range []os.FileMode{0o644, 0o600} {
		if err := atomicfile.Write(path, []byte(perm.String()), perm); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != perm {
			t.Errorf("%v, %v, want %v", info.Mode(), err, perm)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != perm.String() {
			t.Errorf("%q, %v", text, err)
		}
	}
	if err := atomicfile.Write(dir, nil, 0o600); err == nil {
		t.Error("a folder was replaced")
	}
	if err := atomicfile.Write(filepath.Join(dir, "none", "f"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("left: %v, %v", all, err)
	}
}

// TestSweep: a killed process has left a hidden file. Files of others, and of a process that writes
// now, stay.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{".f-123": 2 * time.Minute, ".f-124": 0, ".f-x": time.Hour,
		".fg-125": time.Hour} {
		path, at := filepath.Join(dir, name), time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := atomicfile.Write(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir(dir)
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	if want := []string{".f-124", ".f-x", ".fg-125", "f"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%v, %v, want %v", names, err, want)
	}
}
