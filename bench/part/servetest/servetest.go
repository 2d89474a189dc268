// SPDX-License-Identifier: Apache-2.0

// Package servetest runs servers beside tests.
package servetest

import (
	"context"
	"sync"
	"testing"
)

// Start runs serve until the test ends or stop is called. stop returns its
// result; an error of it fails the test.
func Start[R any](t testing.TB, serve func(context.Context) (R, error)) (stop func() R) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan R, 1)
	go func() {
		r, err := serve(ctx)
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	stop = sync.OnceValue(func() R {
		cancel()
		return <-done
	})
	t.Cleanup(func() { stop() })
	return stop
}
