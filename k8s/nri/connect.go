// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// name and index of the plugin. The runtime calls plugins in the order of their indices; a
// late one sees the pod's network as the others have made it.
const (
	name  = "niclane"
	index = "90"
)

// register is the most time from the connection to the runtime's first request. The stub
// itself limits only a part of this time.
const register = 2 * stub.DefaultRegistrationTimeout

// grace is how long a stub may take to notice that its connection has ended.
const grace = time.Second

// connect makes one connection to the runtime and returns when it ends. connected says that
// the runtime had synchronized. The error is never nil.
func (p *Plugin) connect(ctx context.Context) (connected bool, err error) {
	raw, err := new(net.Dialer).DialContext(ctx, "unix", p.o.Socket)
	if err != nil {
		return false, fmt.Errorf("the runtime's socket: %w: %s", err, p.advice())
	}
	conn := &line{Conn: raw, gone: make(chan struct{})}
	defer conn.Close()
	s := &session{Plugin: p, conn: conn, configured: make(chan struct{})}
	st, err := stub.New(s, stub.WithPluginName(name), stub.WithPluginIdx(index), stub.WithConnection(conn),
		stub.WithLogger(logger{p.o.Log}))
	if err != nil {
		return false, err
	}
	ended := make(chan error, 1)
	go func() { ended <- st.Run(ctx) }()
	timer := time.NewTimer(register)
	defer timer.Stop()
	select {
	case err = <-ended:
	case <-s.configured:
		err = <-ended
	case <-timer.C:
		s.giveUp(st, ended)
		err = fmt.Errorf("no answer in %v", register)
	case <-conn.gone:
		s.giveUp(st, ended)
	case <-ctx.Done():
		s.giveUp(st, ended)
	}
	if s.synchronized() {
		return true, errLost
	}
	if err == nil {
		err = errLost
	}
	return false, fmt.Errorf("%s: %w", p.o.Socket, err)
}

// A line is a connection that closes gone when it has ended.
type line struct {
	net.Conn
	once sync.Once
	gone chan struct{}
}

func (l *line) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if err != nil {
		l.once.Do(func() { close(l.gone) })
	}
	return n, err
}

// A session is the plugin on one connection. The stub calls its methods.
type session struct {
	*Plugin
	conn       *line
	configured chan struct{}

	mu     sync.Mutex
	synced bool
}

// Configure subscribes to the events that the session has methods for.
func (s *session) Configure(_ context.Context, _, runtime, version string) (api.EventMask, error) {
	select {
	case <-s.conn.gone:
		return 0, errLost
	case <-s.configured:
		return 0, fmt.Errorf("%s configures a plugin twice", runtime)
	default:
	}
	close(s.configured)
	s.o.Log.Info("NRI", "runtime", runtime, "version", version)
	return 0, nil
}

// giveUp ends a stub that was not configured. Its Start may wait forever (nri v0.12.5: it
// reads cfgErrC while it holds the lock that the end of the connection needs). Configure then
// ends it with an error.
func (s *session) giveUp(st stub.Stub, ended <-chan error) {
	s.conn.once.Do(func() { close(s.conn.gone) })
	_ = s.conn.Close()
	select {
	case <-ended:
		return
	case <-time.After(grace):
	}
	if c, ok := st.(api.PluginService); ok {
		_, _ = c.Configure(context.Background(), &api.ConfigureRequest{})
	}
}

func (s *session) synchronized() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// A logger writes the stub's messages to the agent's log, informational ones at debug level.
type logger struct{ to *slog.Logger }

func (l logger) Debugf(ctx context.Context, format string, args ...any) {
	l.to.DebugContext(ctx, fmt.Sprintf(format, args...))
}

func (l logger) Infof(ctx context.Context, format string, args ...any) {
	l.Debugf(ctx, format, args...)
}

func (l logger) Warnf(ctx context.Context, format string, args ...any) {
	l.to.WarnContext(ctx, fmt.Sprintf(format, args...))
}

func (l logger) Errorf(ctx context.Context, format string, args ...any) {
	l.to.ErrorContext(ctx, fmt.Sprintf(format, args...))
}
