// SPDX-License-Identifier: Apache-2.0

package load

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// TLS says how the connections of a protocol use TLS. Certificates are verified unless Insecure is
// set.
type TLS struct {
	// Name is the name in the server's certificate (default: its address).
	Name string `json:"name,omitempty"`
	// CAFile is a file of PEM certificates to trust (default: the system's).
	CAFile string `json:"caFile,omitempty"`
	// Insecure accepts any certificate.
	Insecure bool `json:"insecure,omitempty"`
	// Min and Max version, "1.2" or "1.3" (default: both are allowed).
	Min string `json:"minVersion,omitempty"`
	Max string `json:"maxVersion,omitempty"`
}

var tlsVersions = map[string]uint16{"": 0, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// config returns the client's configuration, or every error in t.
func (t *TLS) config(addr netip.AddrPort) (*tls.Config, error) {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	c := &tls.Config{
		ServerName: cmp.Or(t.Name, addr.Addr().WithZone("").String()),
		MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.Insecure, NextProtos: nil,
	}
	for _, v := range []struct {
		name, text string
		to         *uint16
	}{{"minVersion", t.Min, &c.MinVersion}, {"maxVersion", t.Max, &c.MaxVersion}} {
		n, ok := tlsVersions[v.text]
		if !ok {
			bad("tls.%s %q: want \"1.2\" or \"1.3\"", v.name, v.text)
		} else if n != 0 {
			*v.to = n
		}
	}
	if c.MaxVersion != 0 && c.MaxVersion < c.MinVersion {
		bad("tls: minVersion %s is above maxVersion %s", t.Min, t.Max)
	}
	if t.CAFile != "" {
		if t.Insecure {
			bad("tls: caFile and insecure, want one of them")
		}
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			bad("tls.caFile: %w", err)
		} else if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			bad("tls.caFile %s: no certificate in PEM form", t.CAFile)
		}
	}
	return c, errors.Join(errs...)
}

// A layer is TLS on one connection. The worker reads and writes the socket; crypto/tls works on
// data in memory. When there is no more data, layer returns a net.Error that is Temporary. After such
// an error, crypto/tls can go on: crypto/tls.Conn.readRecord keeps the part of a record that has
// arrived. Data that crypto/tls writes is appended to out. A handshake cannot be interrupted in this
// way, so it blocks.
type layer struct {
	conn *tls.Conn
	fd   int    // during the handshake, -1 after it
	in   []byte // received and not yet read by crypto/tls
	out  []byte // to be sent
	end  bool   // the peer has closed
	till time.Time
}

// handshake performs the TLS handshake on the connected socket fd.
func handshake(ctx context.Context, fd int, c *tls.Config, timeout time.Duration) (*layer, error) {
	l := &layer{fd: fd, till: time.Now().Add(timeout)}
	l.conn = tls.Client(l, c)
	if err := l.conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	l.fd = -1
	return l, nil
}

// cipher returns the TLS version and cipher suite of the connection; "plain" without TLS.
func (l *layer) cipher() string {
	if l == nil {
		return "plain"
	}
	s := l.conn.ConnectionState()
	return tls.VersionName(s.Version) + " " + tls.CipherSuiteName(s.CipherSuite)
}

// again is a temporary error: no more data is there now.
type again struct{}

func (again) Error() string   { return "resource temporarily unavailable" }
func (again) Timeout() bool   { return true }
func (again) Temporary() bool { return true }

var errAgain net.Error = again{}

// Read is called by crypto/tls.
func (l *layer) Read(b []byte) (int, error) {
	if l.fd >= 0 {
		return l.block(unix.POLLIN, func() (int, error) { return unix.Read(l.fd, b) })
	}
	if len(l.in) == 0 {
		if l.end {
			return 0, io.EOF
		}
		return 0, errAgain
	}
	n := copy(b, l.in)
	l.in = l.in[n:]
	return n, nil
}

// Write is called by crypto/tls.
func (l *layer) Write(b []byte) (int, error) {
	if l.fd < 0 {
		l.out = append(l.out, b...)
		return len(b), nil
	}
	for done := 0; done < len(b); {
		n, err := l.block(unix.POLLOUT, func() (int, error) { return unix.Write(l.fd, b[done:]) })
		if err != nil {
			return done, err
		}
		done += n
	}
	return len(b), nil
}

// block calls do until it does not return EAGAIN.
func (l *layer) block(events int16, do func() (int, error)) (int, error) {
	for {
		n, err := do()
		switch {
		case err == nil && n == 0 && events == unix.POLLIN:
			return 0, io.EOF
		case err == nil:
			return n, nil
		case err != unix.EAGAIN && err != unix.EINTR: //nolint:errorlint // at every write
			return 0, err
		}
		left := time.Until(l.till)
		if left <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		p := []unix.PollFd{{Fd: int32(l.fd), Events: events}}
		if _, err := unix.Poll(p, int(left.Milliseconds())+1); err != nil && err != unix.EINTR {
			return 0, err
		}
	}
}

// The following methods complete net.Conn. Close does nothing: the worker closes the socket.
func (l *layer) Close() error                     { return nil }
func (l *layer) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (l *layer) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (l *layer) SetDeadline(time.Time) error      { return nil }
func (l *layer) SetReadDeadline(time.Time) error  { return nil }
func (l *layer) SetWriteDeadline(time.Time) error { return nil }
