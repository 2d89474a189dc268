// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// reservations is the directory with a file for each lab that a run has started. The file is
// locked while the run lives, and names the run's directory. If a run was killed, the next run
// with that lab removes what it left.
const reservations = "/run/niclane/bench"

// A reservation is the locked file that reserves a lab's name for this run.
type reservation struct{ f *os.File }

// errReserved says that another run has the lab.
var errReserved = errors.New("another run measures there now")

// reserveLab reserves a name for this run. left is the directory of a run that was killed
// before it could remove its lab, "" if there was none.
func reserveLab(in, name string) (c *reservation, left string, err error) {
	path := filepath.Join(in, name)
	for try := 0; ; try++ {
		if err := os.MkdirAll(in, 0o700); err != nil {
			return nil, "", err
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if errors.Is(err, fs.ErrNotExist) && try < 10 { // another run has just removed the directory
			continue
		}
		if err != nil {
			return nil, "", err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, "", fmt.Errorf("lab %s: %w: wait for its end, or choose another name", name, errReserved)
			}
			return nil, "", fmt.Errorf("lock %s: %w", path, err)
		}
		// Between open and lock, the run that held the file may have removed it.
		mine, err1 := f.Stat()
		there, err2 := os.Stat(path)
		if err1 != nil || err2 != nil || !os.SameFile(mine, there) {
			f.Close()
			if err1 != nil {
				return nil, "", err1
			}
			continue
		}
		b, err := io.ReadAll(io.LimitReader(f, 4096))
		if err != nil {
			f.Close()
			return nil, "", err
		}
		return &reservation{f}, strings.TrimSpace(string(b)), nil
	}
}

// write records the directory of this run's files.
func (c *reservation) write(dir string) error {
	if err := c.f.Truncate(0); err != nil {
		return err
	}
	_, err := c.f.WriteAt([]byte(dir+"\n"), 0)
	return err
}

// release removes the reservation. The caller has removed everything else of the run.
func (c *reservation) release() error {
	err := os.Remove(c.f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	err = errors.Join(err, c.f.Close())
	// Remove the directories too, unless they have other files.
	for dir := filepath.Dir(c.f.Name()); filepath.Base(dir) == "bench" ||
		filepath.Base(dir) == "niclane"; dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil {
			break
		}
	}
	return err
}

// tidy removes the directory that a killed run left. A path that does not look like a run's
// directory stays.
func tidy(left string) error {
	if filepath.Dir(left) != filepath.Clean(os.TempDir()) || !strings.HasPrefix(filepath.Base(left), dirPrefix) {
		return nil // not written by a run
	}
	return os.RemoveAll(left)
}

// dirPrefix is the start of the name of a run's directory.
const dirPrefix = "niclane-bench-"
