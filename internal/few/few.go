// SPDX-License-Identifier: Apache-2.0

// Package few bounds the connections of a server, so that idle clients cannot keep
// other clients out. At the bound, it closes the connection that has been silent
// longest and accepts the new one. It sets no deadlines; servers do.
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
	silent list.List // of *conn, oldest first
	heard  int
}

// Listen returns a Listener that bounds the connections of l. silent is the maximum of
// connections for which Heard was not called, heard the maximum of the others.
func Listen(l net.Listener, silent, heard int) *Listener {
	return &Listener{Listener: l, mostSilent: silent, mostHeard: heard}
}

// Accept waits for a connection. At the bound, it closes the oldest silent connection.
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

// tooMany removes and returns the oldest silent connection if there are more than
// mostSilent. Otherwise it returns nil.
func (l *Listener) tooMany() *conn {
	if l.silent.Len() <= l.mostSilent {
		return nil
	}
	k := l.silent.Remove(l.silent.Front()).(*conn)
	k.place = nil
	return k
}

// A conn is an accepted connection. It is silent or heard; after Close it is neither.
type conn struct {
	net.Conn
	of    *Listener
	place *list.Element // in Listener.silent, or nil
	heard bool
}

// forget removes a connection from the counts of its Listener.
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

// Heard marks c as a connection whose client has identified itself. c is a connection of
// a Listener, perhaps inside TLS. If the Listener has its maximum of heard connections,
// Heard closes c.
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

// Silent undoes Heard: the connection becomes the newest silent one.
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
