// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces files at once: whoever reads one reads the old or the new
// text, also after a crash.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write gives the file at path this text and exactly these permissions. The text is first
// written to a hidden file beside it and synced (fsync(2)). What fails leaves the file as
// it is and nothing beside it.
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
