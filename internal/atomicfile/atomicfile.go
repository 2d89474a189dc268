// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces files atomically: a reader gets the old text or the new
// text, also after a crash.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write replaces the file at path with text and gives it exactly the permissions perm. It
// writes a hidden file in the same directory, syncs it (fsync(2)) and renames it. On an
// error the old file stays and the hidden file is removed.
func Write(path string, text []byte, perm os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
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
	return nil
}
