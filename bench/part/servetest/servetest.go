// SPDX-License-Identifier: Apache-2.0

// Package servetest runs servers for tests.
package servetest

import (
	"bufio"
	"context"
	"net"
	"sync"
	"testing"
)

// Start runs serve until the test ends or stop is called. stop returns its result. An error of
// serve fails the test.
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

// Listen listens until the test ends, and returns the address. It calls talk for each connection and
// closes the connection when talk returns.
func Listen(t testing.TB, talk func(c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				talk(c, bufio.NewReader(c))
			})
		}
	})
	return l.Addr().String()
}
