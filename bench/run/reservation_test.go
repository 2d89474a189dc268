// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestReservation(t *testing.T) {
	in := filepath.Join(t.TempDir(), "niclane", "bench")
	c, left, err := reserveLab(in, "a")
	if err != nil || left != "" {
		t.Fatalf("%q, %v", left, err)
	}
	dir, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.write(dir); err != nil {
		t.Fatal(err)
	}
	if _, _, err := reserveLab(in, "a"); !errors.Is(err, errReserved) {
		t.Errorf("%v, want that another run has it", err)
	}
	b, _, err := reserveLab(in, "b")
	if err != nil {
		t.Fatalf("another name: %v", err)
	}
	if err := b.release(); err != nil {
		t.Fatal(err)
	}
	// The run is killed: its lock is released, its file stays.
	if err := c.f.Close(); err != nil {
		t.Fatal(err)
	}
	c, left, err = reserveLab(in, "a")
	if err != nil || left != dir {
		t.Fatalf("%q, %v; want what it left: %s", left, err, dir)
	}
	if err := tidy(left); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", dir, err)
	}
	if err := c.release(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(in)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directories are left: %v", err)
	}
}

// TestTidy: a directory that does not look like a run's is not removed.
func TestTidy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), dirPrefix+"x")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"", "/", dir, filepath.Join(os.TempDir(), dirPrefix+"x", "..", "..")} {
		if err := tidy(left); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}
