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

// name and index of the plugin. The runtime calls plugins in the order of their indices. With a
// high index, the plugin sees the pod's network after other plugins have changed it.
const (
	name  = "niclane"
	index = "90"
)

// register is the longest time from the connection to the runtime's first request. The library's
// stub limits only a part of this time.
const register = 2 * stub.DefaultRegistrationTimeout

// grace is how long the library's stub may take to notice that its connection has ended.
const grace = time.Second

// connect makes one connection to the runtime, and returns when the connection ends. connected says
// that the runtime had sent its list of pods (Synchronize). The error is never nil.
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

// A line is a connection. It closes the channel gone when the connection has ended.
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

// A session is the plugin during one connection. The library's stub calls its methods for the
// runtime's requests.
type session struct {
	*Plugin
	conn       *line
	configured chan struct{}

	mu     sync.Mutex
	synced bool
}

// Configure is the runtime's first request. By the result 0, the plugin subscribes to all events
// for which session has methods.
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

// giveUp ends a stub that the runtime has not configured. The stub's Start may wait forever (nri
// v0.12.5: it reads cfgErrC while it holds a lock that the end of the connection needs). giveUp
// then calls Configure, which returns an error and so ends Start.
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

// A logger writes the stub's messages to the agent's log. Informational messages get debug level.
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
