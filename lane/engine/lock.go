// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/lane/apply"
)

// ErrBusy means that another process applies, or that a change waits for confirmation.
var ErrBusy = errors.New("another niclane is at work on this host")

// repairTakes is the longest time that lock waits for a watch or an agent to release the lock.
const repairTakes = 30 * time.Second

// lock takes the writers' lock. A watch or an agent holds it only during a repair, or for one
// pod, so lock waits for these. For any other process, it waits only if wait is true; otherwise
// it returns an error.
func (e *Engine) lock(ctx context.Context, wait bool) (*apply.Lock, error) {
	l, err := apply.TryLock(e.RunDir)
	var locked *apply.LockedError
	if !errors.As(err, &locked) {
		return l, err
	}
	if !wait {
		if !passes(locked.Holder) {
			return nil, err
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, repairTakes)
		defer cancel()
	}
	return apply.WaitLock(ctx, e.RunDir)
}

// passes reports whether the process will release the lock soon: a watch, an agent, or a process
// that has not written its name yet.
func passes(h apply.Holder) bool {
	return h.PID == 0 || slices.Contains(h.Command, "watch") ||
		len(h.Command) > 0 && filepath.Base(h.Command[0]) == "niclane-agent"
}

// Hold takes the writers' lock. It does not wait: if another process has the lock, the error is
// ErrBusy.
func (e *Engine) Hold() (release func(), err error) {
	l, err := apply.TryLock(e.RunDir)
	var locked *apply.LockedError
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return nil, err
	}
	release = func() { _ = l.Unlock() } // if it fails, the kernel releases the lock with the process
	if err := apply.CheckPending(e.RunDir); err != nil {
		release()
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return release, nil
}

// LockWatch makes this process the keeper of a device's lanes until the lock is released. If
// another process is the keeper, the error is an apply.LockedError.
func (e *Engine) LockWatch(dev string) (*apply.Lock, error) {
	path, err := e.runFile("watch", dev)
	if err != nil {
		return nil, err
	}
	return apply.TryLockNamed(e.RunDir, strings.TrimSuffix(filepath.Base(path), ".json")+".lock")
}
