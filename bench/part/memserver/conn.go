// SPDX-License-Identifier: Apache-2.0

package memserver

import (
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// outLimit is a number of bytes. While a connection has so much unread output, its requests
	// wait. A get of many large values is therefore answered in parts.
	outLimit = 64 << 10
	inSize   = 16 << 10
)

// monthSeconds is the largest expiry time that memcached takes as relative to now, s. A larger one
// is a time since the epoch.
const monthSeconds = 60 * 60 * 24 * 30

type conn struct {
	fd       int
	in       []byte // read and not yet answered
	out      []byte // answered and not yet sent
	sent     int    // number of bytes of out
	skip     int    // bytes of data to discard
	keysDone int    // number of keys that are answered of the get at the start of in
	quit     bool   // close when out is sent
	polled   uint32 // events requested from epoll
	keys     [][]byte
}

// pump reads requests of c, answers them and writes the answers, until a read or write would block.
// It returns false when the connection has ended.
func (t *worker) pump(c *conn) bool {
	empty := false // the last read has taken all that was there (epoll(7)): the next one would fail
	for {
		for t.answer(c) {
		}
		held := len(c.out) >= outLimit // requests may wait for room
		if !c.write() {
			return false
		}
		if c.sent < len(c.out) {
			return t.poll(c, unix.EPOLLOUT)
		}
		if c.quit {
			return false
		}
		if held {
			continue
		}
		if empty {
			return t.quiet(c)
		}
		if len(c.in) == cap(c.in) { // parse needs more: a value is arriving
			bigger := make([]byte, len(c.in), max(inSize, 2*cap(c.in)))
			copy(bigger, c.in)
			c.in = bigger
		}
		n, err := unix.Read(c.fd, c.in[len(c.in):cap(c.in)])
		switch {
		case err == unix.EAGAIN:
			return t.quiet(c)
		case err == unix.EINTR:
			continue
		case err != nil || n == 0:
			return false
		}
		c.in = c.in[:len(c.in)+n]
		empty = len(c.in) < cap(c.in)
	}
}

// quiet waits for the next request of c.
func (t *worker) quiet(c *conn) bool {
	if len(c.in) == 0 && cap(c.in) > 4*inSize {
		c.in = make([]byte, 0, inSize) // do not keep the buffer of one large value
	}
	return t.poll(c, unix.EPOLLIN)
}

// write sends as much as possible and returns false when the peer is gone.
func (c *conn) write() bool {
	for c.sent < len(c.out) {
		n, err := unix.SendmsgN(c.fd, c.out[c.sent:], nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		switch err {
		case nil:
			c.sent += n
		case unix.EAGAIN:
			return true
		case unix.EINTR:
		default:
			return false
		}
	}
	c.sent = 0
	c.out = c.out[:0]
	if cap(c.out) > 4*outLimit {
		c.out = nil
	}
	return true
}

// answer handles one request from in. It returns false when it cannot: the request is
// incomplete, there is no room for the answer, or the connection must be closed.
func (t *worker) answer(c *conn) bool {
	if c.quit || len(c.out)-c.sent >= outLimit {
		return false
	}
	if c.skip > 0 {
		n := min(c.skip, len(c.in))
		c.skip -= n
		c.consume(n)
		if c.skip > 0 {
			return false
		}
	}
	if len(c.in) == 0 {
		return false
	}
	r := parse(c.in, t.cfg.MaxValue, c.keys)
	switch r.verb {
	case verbNone:
		return false
	case verbGet, verbGets:
		c.keys = r.keys // keep the scratch space
		now := time.Now().Unix()
		for ; c.keysDone < len(r.keys); c.keysDone++ {
			if len(c.out)-c.sent >= outLimit {
				return false
			}
			t.appendItem(c, r.keys[c.keysDone], r.verb == verbGets, now)
		}
		c.keysDone = 0
		c.out = append(c.out, "END\r\n"...)
	case verbSet:
		t.sets.Add(1)
		reply := "STORED\r\n"
		if expires, dead := expiry(r.exptime); dead {
			t.store.remove(r.key)
		} else if !t.store.set(r.key, r.value, r.flags, expires) {
			reply = "SERVER_ERROR out of memory storing object\r\n"
			t.store.remove(r.key) // memcached also removes the old value
		}
		c.reply(r, reply)
	case verbDelete:
		if t.store.remove(r.key) {
			c.reply(r, "DELETED\r\n")
		} else {
			c.reply(r, "NOT_FOUND\r\n")
		}
	case verbStats:
		c.out = t.appendStats(c.out)
	case verbVersion:
		c.out = append(c.out, "VERSION niclane-memserver\r\n"...)
	case verbVerbosity:
		c.reply(r, "OK\r\n")
	case verbQuit:
		c.quit = true
	case verbBad:
		c.out = append(c.out, r.reply...)
		c.skip, c.quit = r.skip, r.fatal
	}
	c.consume(r.size)
	return true
}

func (c *conn) consume(n int) { c.in = c.in[:copy(c.in, c.in[n:])] }

func (c *conn) reply(r request, s string) {
	if !r.noreply {
		c.out = append(c.out, s...)
	}
}

func (t *worker) appendItem(c *conn, key []byte, cas bool, now int64) {
	t.gets.Add(1)
	it, ok := t.store.get(key, now)
	if !ok {
		return
	}
	t.hits.Add(1)
	c.out = append(c.out, "VALUE "...)
	c.out = append(c.out, key...)
	c.out = append(c.out, ' ')
	c.out = strconv.AppendUint(c.out, uint64(it.flags), 10)
	c.out = append(c.out, ' ')
	c.out = strconv.AppendInt(c.out, int64(len(it.value)), 10)
	if cas {
		c.out = append(c.out, ' ')
		c.out = strconv.AppendUint(c.out, it.cas, 10)
	}
	c.out = append(c.out, "\r\n"...)
	c.out = append(c.out, it.value...)
	c.out = append(c.out, "\r\n"...)
}

// expiry converts memcached's expiry time to s since the epoch (0: never). dead says that this time
// has passed.
func expiry(t int64) (expires int64, dead bool) {
	now := time.Now().Unix()
	switch {
	case t == 0:
		return 0, false
	case t < 0:
		return 0, true
	case t <= monthSeconds:
		return now + t, false
	}
	return t, t <= now
}

func (s *Server) appendStats(b []byte) []byte {
	r := s.result()
	for _, f := range []struct {
		name  string
		value any
	}{
		{"version", "niclane-memserver"},
		{"threads", s.cfg.Threads},
		{"curr_connections", s.open.Load()},
		{"total_connections", r.Connections},
		{"rejected_connections", r.Refused},
		{"cmd_get", r.Gets},
		{"cmd_set", r.Sets},
		{"get_hits", r.Hits},
		{"get_misses", r.Gets - r.Hits},
		{"curr_items", r.Items},
		{"bytes", r.Memory},
		{"limit_maxbytes", s.cfg.MaxMemory},
	} {
		b = fmt.Appendf(b, "STAT %s %v\r\n", f.name, f.value)
	}
	return append(b, "END\r\n"...)
}
