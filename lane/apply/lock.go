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

	"github.com/niclane/niclane/internal/privatedir"
)

// DefaultRunDir is the directory of the lock and the guardian's socket.
const DefaultRunDir = "/run/niclane"

// A Lock allows this process, and no other, to write. The kernel releases it when the process
// ends for any reason (flock(2)).
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
	// Err is the reason why waiting ended; nil if the caller did not wait.
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

// TryLock takes the lock in dir. It creates dir (mode 0700) if necessary. If another process
// holds the lock, the error is a *LockedError.
func TryLock(dir string) (*Lock, error) { return TryLockNamed(dir, lockName) }

// lockName is the file name of the writers' lock.
const lockName = "lock"

// TryLockNamed is like TryLock, with another lock file in dir.
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

// WaitLock is like TryLock, but waits until the lock is released or ctx ends.
func WaitLock(ctx context.Context, dir string) (*Lock, error) {
	f, err := openLock(dir, lockName)
	if err != nil {
		return nil, err
	}
	got := make(chan error, 1)
	go func() {
		// Flock blocks in the kernel. If ctx ends first, this goroutine still waits for the lock, then
		// releases it and ends.
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
	// Closing alone would not release the lock while a child that was just forked has a copy of the
	// descriptor (flock(2)). The file keeps one byte, and thus its page: the next holder can then
	// write its name even if the file system is full.
	return errors.Join(l.f.Truncate(1), unix.Flock(int(l.f.Fd()), unix.LOCK_UN), l.f.Close())
}

func openLock(dir, name string) (*os.File, error) {
	path := filepath.Join(dir, name)
	for try := 1; ; try++ {
		if err := privatedir.Make(dir); err != nil {
			return nil, fmt.Errorf("run directory: %w", err)
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if errors.Is(err, fs.ErrNotExist) && try < 10 {
			continue // a lab that ended has removed the directory, because it was empty
		}
		if err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
		return f, nil
	}
}

// identify writes the holder's name into the lock file for other processes. If /run is full, that
// fails, but this process holds the lock anyway.
func identify(f *os.File) {
	b, err := json.Marshal(Holder{PID: os.Getpid(), Command: os.Args, Since: time.Now().UTC().Round(time.Second)})
	if err == nil && f.Truncate(1) == nil {
		_, _ = f.WriteAt(append(b, '\n'), 0)
	}
}

// readHolder returns the holder's name from the lock file, or a zero Holder if there is none yet.
func readHolder(f *os.File) Holder {
	var h Holder
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<16))
	if err != nil || json.Unmarshal(b, &h) != nil {
		return Holder{}
	}
	return h
}
