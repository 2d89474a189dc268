// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces files atomically: a reader gets the old text or the new
// text, also after a crash.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Write replaces the file at path with text and gives it exactly the permissions perm. It
// writes a hidden file in the same directory, syncs it (fsync(2)) and renames it. On an
// error the old file stays and the hidden file is removed. Write also removes hidden files that
// killed processes left more than a minute ago.
func Write(path string, text []byte, perm os.FileMode) error {
	dir, hidden := filepath.Dir(path), "."+filepath.Base(path)+"-"
	f, err := os.CreateTemp(dir, hidden+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(perm), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	sweep(dir, hidden)
	return nil
}

// sweep removes old hidden files, whose names are hidden and a number. It ignores errors: the file at
// path is already replaced.
func sweep(dir, hidden string) {
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		number, ok := strings.CutPrefix(f.Name(), hidden)
		if _, err := strconv.ParseUint(number, 10, 64); !ok || err != nil {
			continue
		}
		if info, err := f.Info(); err == nil && time.Since(info.ModTime()) > time.Minute {
			_ = os.Remove(filepath.Join(dir, f.Name()))
		}
	}
}
