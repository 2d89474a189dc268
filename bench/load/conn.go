// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// pending is a request that is due and not yet answered.
type pending struct {
	intended int64
	actual   int64 // of the send, once sent
	key      int32
	counted  bool
}

// conn is one connection with its requests in order: [head, sent) are on the
// wire, [sent, tail) wait in the generator.
type conn struct {
	fd               int
	index            int32     // in run.conns, and epoll's data
	ring             []pending // length is a power of two
	head, sent, tail uint64
	partial          int // bytes of request sent already written
	in               []byte
	have             int
	polledOut        bool
	dead             bool
}

func (c *conn) at(i uint64) *pending { return &c.ring[i&uint64(len(c.ring)-1)] }

// push queues p. The ring grows only when a stall lets requests pile up.
func (c *conn) push(p pending) {
	if c.tail-c.head == uint64(len(c.ring)) {
		bigger := make([]pending, 2*len(c.ring))
		for i := c.head; i < c.tail; i++ {
			bigger[i&uint64(len(bigger)-1)] = *c.at(i)
		}
		c.ring = bigger
	}
	*c.at(c.tail) = p
	c.tail++
}

// flush writes what may be written now.
func (r *run) flush(c *conn) {
	for !c.dead && c.sent < c.tail {
		if r.cfg.Pipeline > 0 && c.sent-c.head >= uint64(r.cfg.Pipeline) {
			break
		}
		p := c.at(c.sent)
		if c.partial == 0 {
			p.actual = r.clock.Now()
		}
		request := r.keys.get(int(p.key))
		n, errno := send(c.fd, request[c.partial:])
		switch errno {
		case 0:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			r.pollOut(c, true)
			return
		default:
			r.kill(c, fmt.Errorf("send: %w", errno))
			return
		}
		if c.partial += n; c.partial < len(request) {
			r.pollOut(c, true)
			return
		}
		c.partial = 0
		c.sent++
		if p.counted {
			r.res.Sent++
			r.res.Lateness.Record(p.actual - p.intended)
		}
	}
	r.pollOut(c, false)
}

// pollOut asks epoll to say when c can be written to, or no longer.
func (r *run) pollOut(c *conn, on bool) {
	if c.polledOut == on || c.dead {
		return
	}
	c.polledOut = on
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: c.index}
	if on {
		ev.Events |= unix.EPOLLOUT
	}
	if err := unix.EpollCtl(r.epfd, unix.EPOLL_CTL_MOD, c.fd, &ev); err != nil {
		r.kill(c, fmt.Errorf("epoll_ctl: %w", err))
	}
}

// receive reads once and takes every complete reply.
func (r *run) receive(c *conn) {
	n, errno := recv(c.fd, c.in[c.have:])
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return
	case errno != 0:
		r.kill(c, fmt.Errorf("receive: %w", errno))
		return
	case n == 0:
		r.kill(c, errClosed)
		return
	}
	now := r.clock.Now()
	c.have += n
	from := 0
	for from < c.have {
		rep, err := parseReply(c.in[from:c.have], r.cfg.ValueBytes+maxLine)
		if err != nil {
			r.kill(c, fmt.Errorf("%w: %.60q", err, c.in[from:c.have]))
			return
		}
		if rep.kind == incomplete {
			break
		}
		if c.head == c.sent {
			r.kill(c, fmt.Errorf("reply without request: %.60q", c.in[from:c.have]))
			return
		}
		r.complete(c.at(c.head), rep, now)
		c.head++
		from += rep.size
	}
	if from > 0 {
		c.have = copy(c.in, c.in[from:c.have])
		r.flush(c)
	}
}

// complete accounts for one reply.
func (r *run) complete(p *pending, rep reply, now int64) {
	r.outstanding--
	bad := ""
	switch {
	case rep.kind == failure:
		bad = string(rep.line)
	case rep.kind == hit && string(rep.key) != string(r.keys.key(int(p.key))):
		bad = fmt.Sprintf("asked for %s, got %s", r.keys.key(int(p.key)), rep.key)
	case rep.kind == hit && !r.keys.matches(rep.value, int(p.key)):
		bad = fmt.Sprintf("%s: got %d bytes that are not its value of %d bytes", rep.key, len(rep.value), r.cfg.ValueBytes)
	}
	if bad != "" && r.res.FirstError == "" {
		r.res.FirstError = bad
	}
	if !p.counted {
		return
	}
	latency := now - p.intended
	r.res.Latency.Record(latency)
	r.res.Uncorrected.Record(now - p.actual)
	r.res.Completed++
	switch {
	case bad != "":
		r.res.Errors++
	case rep.kind == miss:
		r.res.Misses++
	default:
		r.res.Hits++
	}
	if latency > r.cfg.Timeout {
		r.res.TimedOut++
	}
}

// kill closes c. Its requests stay in the ring and end up unanswered.
func (r *run) kill(c *conn, why error) {
	if c.dead {
		return
	}
	c.dead = true
	unix.Close(c.fd) // also leaves the epoll set
	r.live--
	r.res.ConnectionsLost++
	r.outstanding -= int64(c.tail - c.head)
	if r.res.FirstError == "" {
		r.res.FirstError = why.Error()
	}
}
