// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/niclane/niclane/bench/part/ready"
)

// A dialer opens a connection from a host.
type dialer func(ctx context.Context, address string) (net.Conn, error)

// A question is how a server is asked whether it is ready.
type question struct {
	protocol string // of experiment.Ready
	host     string // Host header
	path     string
}

// ask asks once.
func ask(ctx context.Context, dial dialer, address string, q question) error {
	return ready.Ask(ctx, ready.Dialer(dial), address, ready.Question{Protocol: q.protocol, Host: q.host, Path: q.path})
}

// until asks a server, called what in the error, until it answers, patience has
// passed, or down says that it is no longer there.
func until(ctx context.Context, what string, ask func(context.Context) error, patience time.Duration,
	down func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if gone := down(); gone != nil {
			return gone
		}
		if wait(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("%s does not answer within %v: %w", what, patience, err)
		}
	}
}
