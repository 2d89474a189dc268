// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/niclane/niclane/lane/apply"
)

// repairTakes bounds how long a watch may hold the lock.
const repairTakes = 30 * time.Second

// lock takes the lock of who may write. A watch has it for as long as a repair
// takes: that is waited for. Whoever else has it is an error.
func (a *app) lock(ctx context.Context) (*apply.Lock, error) {
	l, err := apply.TryLock(a.runDir)
	var locked *apply.LockedError
	if !errors.As(err, &locked) || !watches(locked.Holder) {
		return l, err
	}
	ctx, cancel := context.WithTimeout(ctx, repairTakes)
	defer cancel()
	return apply.WaitLock(ctx, a.runDir)
}

// watches reports whether a process is a watch, or has not said yet what it is.
func watches(h apply.Holder) bool {
	return h.PID == 0 || slices.Contains(h.Command, "watch")
}
