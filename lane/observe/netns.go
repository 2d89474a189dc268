// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// inNewNetns runs f on a thread in a new network namespace. When f returns, the thread and the
// namespace end.
func inNewNetns(ctx context.Context, f func() device.Capabilities) (device.Capabilities, error) {
	type result struct {
		caps device.Capabilities
		err  error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		onThrowAwayThread(func() {
			if r.err = unix.Unshare(unix.CLONE_NEWNET); r.err != nil {
				r.err = fmt.Errorf("unshare: %w", r.err)
				return
			}
			r.caps = f()
		})
		done <- r
	}()
	select {
	case r := <-done:
		return r.caps, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// onThrowAwayThread runs f on a thread that runs no other Go code after f. It never uses the main
// thread: /proc/self shows the namespaces of that thread.
func onThrowAwayThread(f func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// This is the main thread. Keep it, so that the next goroutine gets another one.
			onThrowAwayThread(f)
			runtime.UnlockOSThread()
			close(done)
			return
		}
		defer close(done)
		f()
	}()
	<-done
}
