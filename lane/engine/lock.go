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

// ErrBusy is another applier at work, or a change that somebody has yet to confirm.
var ErrBusy = errors.New("another niclane is at work on this host")

// repairTakes bounds how long a watch may hold the lock.
const repairTakes = 30 * time.Second

// lock takes the lock of who may write. A watch or an agent has it for as long as a repair
// or a pod takes: that is waited for. Whoever else has it is an error, or waited for too.
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

// passes reports whether a process has the lock for a moment: a watch, an agent, or one that
// has not said yet what it is.
func passes(h apply.Holder) bool {
	return h.PID == 0 || slices.Contains(h.Command, "watch") ||
		len(h.Command) > 0 && filepath.Base(h.Command[0]) == "niclane-agent"
}

// Hold takes the lock of who may write and waits for nobody: ErrBusy.
func (e *Engine) Hold() (release func(), err error) {
	l, err := apply.TryLock(e.RunDir)
	var locked *apply.LockedError
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return nil, err
	}
	release = func() { _ = l.Unlock() } // the kernel lets go in any case
	if err := apply.CheckPending(e.RunDir); err != nil {
		release()
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return release, nil
}

// LockWatch makes this process the one that keeps the lanes of a device until it unlocks.
// apply.LockedError: another one does.
func (e *Engine) LockWatch(dev string) (*apply.Lock, error) {
	path, err := e.runFile("watch", dev)
	if err != nil {
		return nil, err
	}
	return apply.TryLockNamed(e.RunDir, strings.TrimSuffix(filepath.Base(path), ".json")+".lock")
}
