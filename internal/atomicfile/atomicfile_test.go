// SPDX-License-Identifier: Apache-2.0

package atomicfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

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
