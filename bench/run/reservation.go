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

// reservations are in the directory of the labs, a file for each lab that a run has
// raised. It is locked while the run lives, and names the run's directory: what
// a run that was killed has left, the next one of that lab removes.
const reservations = "/run/niclane/bench"

// A reservation of the name of a lab.
type reservation struct{ f *os.File }

// errReserved says that another run has the lab.
var errReserved = errors.New("another run measures there now")

// reserveLab takes a name for this run. left is the directory of a run that was
// killed before it could take its lab down, "" if there was none.
func reserveLab(in, name string) (c *reservation, left string, err error) {
	path := filepath.Join(in, name)
	for try := 0; ; try++ {
		if err := os.MkdirAll(in, 0o700); err != nil {
			return nil, "", err
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if errors.Is(err, fs.ErrNotExist) && try < 10 { // another run ends
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
		// Between open and lock the run that had it may have removed it.
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

// write says where the files of this run are.
func (c *reservation) write(dir string) error {
	if err := c.f.Truncate(0); err != nil {
		return err
	}
	_, err := c.f.WriteAt([]byte(dir+"\n"), 0)
	return err
}

// release gives the name back, when nothing is left of the run.
func (c *reservation) release() error {
	err := os.Remove(c.f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	err = errors.Join(err, c.f.Close())
	// The directories too, unless somebody else has something there.
	for dir := filepath.Dir(c.f.Name()); filepath.Base(dir) == "bench" ||
		filepath.Base(dir) == "niclane"; dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil {
			break
		}
	}
	return err
}

// tidy removes the directory that a run left, if that is what it is.
func tidy(left string) error {
	if filepath.Dir(left) != filepath.Clean(os.TempDir()) || !strings.HasPrefix(filepath.Base(left), dirPrefix) {
		return nil // not written by a run
	}
	return os.RemoveAll(left)
}

// dirPrefix of a run's directory.
const dirPrefix = "niclane-bench-"
