// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/part/sock"
)

// A target is the server to which connections are opened.
type target struct {
	addr    netip.AddrPort
	tls     *tls.Config // nil: plain
	timeout time.Duration
	nagle   bool

	// Connections are opened at least gap apart. due is the time of the next one.
	mu  sync.Mutex
	gap time.Duration
	due time.Time
}

// newTarget returns the server of c, which must be a checked Config.
func newTarget(c *Config, addr netip.AddrPort) (*target, error) {
	t := &target{addr: addr, timeout: time.Duration(c.ConnectTimeout), nagle: c.Nagle}
	if c.ConnectRate > 0 {
		t.gap = time.Duration(float64(time.Second) / c.ConnectRate)
	}
	if c.TLS != nil {
		var err error
		if t.tls, err = c.TLS.config(addr); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// open returns a connected non-blocking socket. With TLS, it also returns the TLS layer on it.
func (t *target) open(ctx context.Context) (int, *layer, error) {
	if err := t.pace(ctx); err != nil {
		return -1, nil, err
	}
	before := noDelay
	if t.nagle {
		before = nil
	}
	fd, err := sock.Dial(t.addr, t.timeout, before)
	if err != nil || t.tls == nil {
		return fd, nil, err
	}
	l, err := handshake(ctx, fd, t.tls, t.timeout)
	if err != nil {
		unix.Close(fd)
		return -1, nil, fmt.Errorf("%s: %w", t.addr, err)
	}
	return fd, l, nil
}

// pace waits until the next connection may be opened.
func (t *target) pace(ctx context.Context) error {
	if t.gap == 0 {
		return nil
	}
	t.mu.Lock()
	at := time.Now()
	if at.Before(t.due) {
		at = t.due
	}
	t.due = at.Add(t.gap)
	t.mu.Unlock()
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func noDelay(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("set TCP_NODELAY: %w", err)
	}
	return nil
}

// dialResult is a new connection, or the error.
type dialResult struct {
	index int32
	fd    int
	tls   *layer
	err   error
}

// A dialer opens connections outside a worker's loop, which must not block, and wakes the loop
// by an eventfd.
type dialer struct {
	target *target
	event  int
	wg     sync.WaitGroup
	mu     sync.Mutex
	ready  []dialResult
	ctx    context.Context
	cancel context.CancelFunc
}

func newDialer(t *target) (*dialer, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	d := &dialer{target: t, event: fd}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d, nil
}

// open opens connection index after a delay.
func (d *dialer) open(index int32, after time.Duration) {
	d.wg.Go(func() {
		if after > 0 {
			t := time.NewTimer(after)
			defer t.Stop()
			select {
			case <-t.C:
			case <-d.ctx.Done():
			}
		}
		o := dialResult{index: index, fd: -1, err: d.ctx.Err()}
		if o.err == nil {
			o.fd, o.tls, o.err = d.target.open(d.ctx)
		}
		d.mu.Lock()
		d.ready = append(d.ready, o)
		d.mu.Unlock()
		_, _ = unix.Write(d.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // fails only if the counter is full
	})
}

// take returns the connections opened, or failed, since the last call.
func (d *dialer) take() []dialResult {
	var b [8]byte
	_, _ = unix.Read(d.event, b[:]) // EAGAIN: nothing new
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.ready
	d.ready = nil
	return r
}

// close ends all attempts to connect, and closes the connections that were not taken.
func (d *dialer) close() {
	d.cancel()
	d.wg.Wait()
	for _, o := range d.take() {
		if o.fd >= 0 {
			unix.Close(o.fd)
		}
	}
	unix.Close(d.event)
}

// Dial connects to the server of c, with TLS if c has it, for requests outside the load.
func Dial(ctx context.Context, c Config) (net.Conn, error) {
	c, addr, err := c.withDefaults()
	if err != nil && !addr.IsValid() {
		return nil, err
	}
	t, err := newTarget(&c, addr)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	return t.dial(ctx)
}

// dial connects like open, for callers that may block.
func (t *target) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: t.timeout}
	conn, err := d.DialContext(ctx, "tcp", t.addr.String())
	if err != nil || t.tls == nil {
		return conn, err
	}
	return tls.Client(conn, t.tls), nil
}
