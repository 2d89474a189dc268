// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/load/proto"
)

var errClosed = errors.New("closed by the server")

type state uint8

const (
	opening state = iota
	live
	gone // closed for the rest of the step
)

// conn is one connection with its outstanding requests in order.
type conn struct {
	fd       int
	index    int32 // index in worker.conns, and epoll's data
	state    state
	offered  bool // it is in worker.free
	blocked  bool // waiting for epoll to report that it is writable
	more     bool // it is in worker.more
	ending   bool // the server will send no more, or there is an error
	sent     queue
	out      []byte // encoded requests
	outAt    int    // number of its bytes that are written
	stash    []byte // received bytes that are not parsed yet
	parser   proto.Parser
	tls      *layer
	failures int // failed attempts to open, in a row
}

// issue encodes a request; flush sends it. waited says that no connection was free when the request
// was due.
func (w *worker) issue(c *conn, p pending, now int64, waited bool) {
	p.actual = now
	if c.tls == nil {
		c.out = w.codec.Append(c.out, p.ticket)
	} else {
		w.plain = w.codec.Append(w.plain[:0], p.ticket)
		c.tls.out = c.out
		if _, err := c.tls.conn.Write(w.plain); err != nil {
			w.lose(c, fmt.Errorf("send: %w", err))
			w.account.lost(&p, false, now)
			return
		}
		c.out = c.tls.out
	}
	c.sent.push(p)
	w.outstanding++
	w.account.sent(&p, waited)
}

// flush writes as much as the socket takes now.
func (w *worker) flush(c *conn) {
	for c.state == live && c.outAt < len(c.out) {
		n, errno := send(c.fd, c.out[c.outAt:])
		switch errno {
		case 0:
			w.account.res.Work.SentBytes += int64(n)
			c.outAt += n
		case unix.EINTR:
		case unix.EAGAIN:
			w.block(c, true)
			return
		default:
			w.lose(c, fmt.Errorf("send: %w", errno))
			return
		}
	}
	c.out, c.outAt = c.out[:0], 0
	w.block(c, false)
}

// block starts or stops waiting for epoll to report that c is writable.
func (w *worker) block(c *conn, on bool) {
	if c.blocked == on || c.state != live {
		return
	}
	c.blocked = on
	ev := unix.EpollEvent{Events: readable, Fd: c.index}
	if on {
		ev.Events |= unix.EPOLLOUT
	}
	if err := epollCtl(w.epfd, unix.EPOLL_CTL_MOD, c.fd, &ev); err != nil {
		w.lose(c, fmt.Errorf("epoll_ctl: %w", err))
	}
}

// smallSkip is the smallest number of bytes that is dropped by a system call of its own. Fewer bytes
// are read together with bytes that must be parsed.
const smallSkip = 16 << 10

// receive reads once from c, handles the replies and gives c its next requests. If the read did not
// fill the buffer, no more data is there (epoll(7)). If it did, receive puts c into worker.more.
func (w *worker) receive(c *conn) {
	if c.tls == nil && len(c.stash) == 0 {
		if skip := c.parser.Skip(); skip >= smallSkip {
			skip = min(skip, 1<<30)
			n, errno := drop(c.fd, skip)
			if w.arrived(c, n, errno, int(skip)) {
				c.parser.Skipped(int64(n))
			}
			return
		}
	}
	have := copy(w.in, c.stash)
	if c.tls != nil {
		have = 0
	}
	n, errno := recv(c.fd, w.in[have:])
	if !w.arrived(c, n, errno, len(w.in)-have) {
		return
	}
	now := w.now()
	if c.tls == nil {
		w.take(c, w.in[:have+n], now)
	} else {
		c.tls.in = w.in[:n]
		w.decrypt(c, now)
	}
	w.next(c)
}

// arrived handles the result of a system call that could receive up to most bytes. It reports
// whether data was received.
func (w *worker) arrived(c *conn, n int, errno unix.Errno, most int) bool {
	switch {
	case errno == unix.EAGAIN:
		return false
	case errno == unix.EINTR:
		w.again(c)
		return false
	case errno != 0:
		w.lose(c, fmt.Errorf("receive: %w", errno))
		return false
	case n == 0:
		w.ended(c)
		return false
	}
	w.account.res.Work.GotBytes += int64(n)
	if n == most || c.ending {
		w.again(c)
	}
	return true
}

// again makes the worker read c in its next turn. epoll does not report data that was there before.
func (w *worker) again(c *conn) {
	if !c.more {
		c.more = true
		w.more = append(w.more, c.index)
	}
}

// decrypt handles the data that TLS decrypts from c.tls.in.
func (w *worker) decrypt(c *conn, now int64) {
	for c.state == live {
		have := copy(w.text, c.stash)
		n, err := c.tls.conn.Read(w.text[have:])
		if n > 0 {
			w.take(c, w.text[:have+n], now)
			continue
		}
		switch {
		case err == error(errAgain): //nolint:errorlint // at every read
			return
		case errors.Is(err, io.EOF):
			w.ended(c)
			return
		case err != nil:
			w.lose(c, fmt.Errorf("receive: %w", err))
			return
		}
	}
}

// take handles the replies in b and keeps the rest of b in c.stash.
func (w *worker) take(c *conn, b []byte, now int64) {
	for len(b) > 0 {
		if c.sent.len() == 0 {
			w.lose(c, fmt.Errorf("reply without request: %.60q", b))
			return
		}
		p := c.sent.front()
		if p.first == 0 {
			p.first = now
		}
		r, err := c.parser.Parse(b, p.ticket)
		if err != nil {
			w.lose(c, fmt.Errorf("%w: %.60q", err, b))
			return
		}
		b = b[r.Used:]
		if r.Outcome == proto.Incomplete {
			break
		}
		w.complete(c, p, r, now)
		if c.state != live {
			return
		}
	}
	c.stash = append(c.stash[:0], b...)
}

// complete accounts for the reply to p, the oldest request of c.
func (w *worker) complete(c *conn, p *pending, r proto.Reply, now int64) {
	w.outstanding--
	w.account.done(p, r, now)
	if r.Outcome == proto.Failed && w.account.res.FirstError == "" {
		w.account.fault(c.parser.Problem())
	}
	c.sent.pop()
	if r.Close {
		w.hangUp(c)
		w.reopen(c, 0)
	}
}

// ended handles a connection that the server has closed.
func (w *worker) ended(c *conn) {
	if c.sent.len() > 0 {
		if r := c.parser.End(); r.Outcome != proto.Incomplete {
			r.Close = true
			w.complete(c, c.sent.front(), r, w.now())
			return
		}
	} else if w.cfg.Protocol == HTTP {
		// This is no error: a server may close an idle connection at any time (RFC 9112 9.8).
		w.hangUp(c)
		w.reopen(c, 0)
		return
	}
	w.lose(c, errClosed)
}

// lose closes c because of an error; its requests are lost.
func (w *worker) lose(c *conn, why error) {
	if c.state != live {
		return
	}
	w.hangUp(c)
	w.account.res.ConnectionsLost++
	w.account.fault(why.Error())
	if w.cfg.Reconnect {
		w.reopen(c, w.cfg.Backoff)
	}
}

// hangUp closes c and gives up its requests.
func (w *worker) hangUp(c *conn) {
	closeSocket(c.fd) // also leaves the epoll set
	c.fd, c.state, c.blocked, c.tls = -1, gone, false, nil
	c.more, c.ending = false, false
	c.out, c.outAt, c.stash = c.out[:0], 0, c.stash[:0]
	w.live--
	now := w.now()
	for ; c.sent.len() > 0; c.sent.pop() {
		w.outstanding--
		w.account.lost(c.sent.front(), true, now)
	}
}
