// SPDX-License-Identifier: Apache-2.0

package few

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/must"
)

// pair makes a connection to l and returns both ends.
func pair(t *testing.T, l *Listener) (client, server net.Conn) {
	t.Helper()
	client, err := net.Dial("unix", l.Addr().String())
	must.Do(t, err)
	t.Cleanup(func() { client.Close() })
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

// open reports whether the other end of a connection is open.
func open(t *testing.T, c net.Conn) bool {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return true
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("read: %v", err)
	}
	return false
}

func TestListener(t *testing.T) {
	raw, err := net.Listen("unix", t.TempDir()+"/s")
	must.Do(t, err)
	defer raw.Close()
	l := Listen(raw, 2, 2)
	want := func(when string, c net.Conn, want bool) {
		t.Helper()
		if got := open(t, c); got != want {
			t.Errorf("%s: open %v, want %v", when, got, want)
		}
	}
	a, as := pair(t, l)
	b, bs := pair(t, l)
	Heard(tls.Server(as, nil)) // wrapped, as a TLS server has it
	c, cs := pair(t, l)
	d, _ := pair(t, l)
	want("heard", a, true)
	want("the oldest of three that are silent", b, false)
	want("the next", c, true)
	bs.Close() // the Listener has closed it already
	Heard(cs)
	Heard(cs)
	e, es := pair(t, l)
	Heard(es)
	want("one more in earnest than may be", e, false)
	want("silent", d, true)
	as.Close()
	f, fs := pair(t, l)
	Heard(fs)
	want("in the place of one that has ended", f, true)
	Silent(fs)
	g, _ := pair(t, l)
	want("the oldest, since the other was heard", d, false)
	want("silent again", f, true)
	want("the newest", g, true)
	Heard(d) // not a connection of a Listener
}
