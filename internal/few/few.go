// SPDX-License-Identifier: Apache-2.0

// Package few bounds the connections of a server so that clients that say
// nothing cannot keep others out: beyond the bound, the one that has been silent
// for longest is closed for the newest. It sets no deadline; servers do.
package few

import (
	"container/list"
	"net"
	"sync"
)

// A Listener bounds the connections that it has accepted.
type Listener struct {
	net.Listener
	mostSilent, mostHeard int

	mu     sync.Mutex
	silent list.List // of *conn, the oldest first
	heard  int
}

// Listen has at most silent connections that Heard was not called for, and at
// most heard others.
func Listen(l net.Listener, silent, heard int) *Listener {
	return &Listener{Listener: l, mostSilent: silent, mostHeard: heard}
}

// Accept waits for a connection, never for room.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	k := &conn{Conn: c, of: l}
	l.mu.Lock()
	k.place = l.silent.PushBack(k)
	oldest := l.tooMany()
	l.mu.Unlock()
	if oldest != nil {
		oldest.Conn.Close()
	}
	return k, nil
}

// tooMany takes the oldest silent connection out if there are more than may be.
func (l *Listener) tooMany() *conn {
	if l.silent.Len() <= l.mostSilent {
		return nil
	}
	k := l.silent.Remove(l.silent.Front()).(*conn)
	k.place = nil
	return k
}

// conn is silent, heard, or neither when it is closed.
type conn struct {
	net.Conn
	of    *Listener
	place *list.Element // among the silent
	heard bool
}

// forget takes a connection out of the count.
func (k *conn) forget() {
	if k.place != nil {
		k.of.silent.Remove(k.place)
		k.place = nil
	}
	if k.heard {
		k.of.heard--
		k.heard = false
	}
}

// Close implements net.Conn.
func (k *conn) Close() error {
	k.of.mu.Lock()
	k.forget()
	k.of.mu.Unlock()
	return k.Conn.Close()
}

// Heard says that a connection of a Listener's, perhaps with TLS, has shown that
// it is in earnest. It closes it where there are as many of these as may be.
func Heard(c net.Conn) {
	k := of(c)
	if k == nil {
		return
	}
	l := k.of
	l.mu.Lock()
	full := k.place != nil && l.heard >= l.mostHeard
	if k.place != nil && !full {
		k.forget()
		k.heard = true
		l.heard++
	}
	l.mu.Unlock()
	if full {
		k.Close()
	}
}

// Silent takes back what Heard said: the connection is the newest of the silent.
func Silent(c net.Conn) {
	k := of(c)
	if k == nil {
		return
	}
	l := k.of
	l.mu.Lock()
	var oldest *conn
	if k.heard {
		k.forget()
		k.place = l.silent.PushBack(k)
		oldest = l.tooMany()
	}
	l.mu.Unlock()
	if oldest != nil {
		oldest.Conn.Close()
	}
}

func of(c net.Conn) *conn {
	for {
		if k, ok := c.(*conn); ok {
			return k
		}
		wrapped, ok := c.(interface{ NetConn() net.Conn }) // tls.Conn
		if !ok {
			return nil
		}
		c = wrapped.NetConn()
	}
}
