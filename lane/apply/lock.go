// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultRunDir is the directory of the lock and the guardian's socket.
const DefaultRunDir = "/run/niclane"

// A Lock is held by the only process that may write. The kernel releases it
// when the process ends in any way (flock(2)).
type Lock struct{ f *os.File }

// A Holder is the process that holds the lock.
type Holder struct {
	PID     int       `json:"pid"`
	Command []string  `json:"command"`
	Since   time.Time `json:"since"`
}

// A LockedError names the process that holds the lock.
type LockedError struct {
	Holder Holder
	// Err is why waiting ended, nil if the caller did not wait.
	Err error
}

// Unwrap implements errors.Unwrap.
func (e *LockedError) Unwrap() error { return e.Err }

// Error implements error.
func (e *LockedError) Error() string {
	if e.Holder.PID == 0 {
		return "another niclane is changing this host; its process ID is not known"
	}
	return fmt.Sprintf("another niclane is changing this host: process %d (%s), since %s",
		e.Holder.PID, strings.Join(e.Holder.Command, " "), e.Holder.Since.Format(time.RFC3339))
}

// TryLock takes the lock in dir, which it creates (mode 0700) if it does not
// exist. If another process holds it, the error is a *LockedError.
func TryLock(dir string) (*Lock, error) { return TryLockNamed(dir, lockName) }

// lockName is the file name of the writers' lock.
const lockName = "lock"

// TryLockNamed is TryLock for another lock, by its file name.
func TryLockNamed(dir, name string) (*Lock, error) {
	f, err := openLock(dir, name)
	if err != nil {
		return nil, err
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		identify(f)
		return &Lock{f}, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		h := readHolder(f)
		f.Close()
		return nil, &LockedError{Holder: h}
	default:
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
}

// WaitLock is like TryLock, but waits until the holder releases the lock or ctx ends.
func WaitLock(ctx context.Context, dir string) (*Lock, error) {
	f, err := openLock(dir, lockName)
	if err != nil {
		return nil, err
	}
	got := make(chan error, 1)
	go func() {
		// This blocks in the kernel. If ctx ends first, the goroutine gets the
		// lock after the holder, releases it and ends.
		for {
			err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
			if err != unix.EINTR {
				got <- err
				return
			}
		}
	}()
	select {
	case err := <-got:
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		identify(f)
		return &Lock{f}, nil
	case <-ctx.Done():
		go func() { <-got; f.Close() }()
		return nil, &LockedError{readHolder(f), ctx.Err()}
	}
}

// Unlock releases the lock.
func (l *Lock) Unlock() error {
	// Closing alone releases the lock only after a freshly forked child has closed its copy
	// (flock(2)). One byte keeps the file's page, so that the next holder can write its
	// name on a full file system.
	return errors.Join(l.f.Truncate(1), unix.Flock(int(l.f.Fd()), unix.LOCK_UN), l.f.Close())
}

func openLock(dir, name string) (*os.File, error) {
	path := filepath.Join(dir, name)
	for try := 1; ; try++ {
		if err := runDir(dir); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if errors.Is(err, fs.ErrNotExist) && try < 10 {
			continue // a lab that ends removes the directory if it is empty
		}
		if err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
		return f, nil
	}
}

// runDir creates dir if necessary, and checks that no other user can enter it.
func runDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("run directory: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("run directory %s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return fmt.Errorf("run directory %s: must be a directory of user %d with mode 0700", dir, os.Geteuid())
	}
	return nil
}

// identify writes the holder of the lock for other processes to read. On a full
// /run it cannot, but holds the lock all the same.
func identify(f *os.File) {
	b, err := json.Marshal(Holder{PID: os.Getpid(), Command: os.Args, Since: time.Now().UTC().Round(time.Second)})
	if err == nil && f.Truncate(1) == nil {
		_, _ = f.WriteAt(append(b, '\n'), 0)
	}
}

// readHolder returns a zero Holder if there is nothing to read yet.
func readHolder(f *os.File) Holder {
	var h Holder
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<16))
	if err != nil || json.Unmarshal(b, &h) != nil {
		return Holder{}
	}
	return h
}
