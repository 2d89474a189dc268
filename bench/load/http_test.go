// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/load/proto/http1"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/part/httpserver"
	"github.com/niclane/niclane/bench/part/servetest"
)

// serveHTTP starts an httpserver and returns its address, the file of its certificate and a
// function that ends it.
func serveHTTP(t testing.TB, c httpserver.Config) (addr, ca string, stop func() httpserver.Result) {
	t.Helper()
	c.Address = "127.0.0.1:0"
	s, err := httpserver.Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	stop = servetest.Start(t, s.Serve)
	if c.SelfSigned {
		ca = filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(ca, s.CA(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s.Addr().String(), ca, stop
}

func objects(paths ...http1.Path) *Objects { return &Objects{Paths: paths} }

// TestHTTP: in every form of HTTP, every request must be answered, and the server must have
// counted as many as the generator.
func TestHTTP(t *testing.T) {
	mixed := objects(http1.Path{Path: "/100", Weight: 3, Bytes: 100}, http1.Path{Path: "/chunked/70000", Bytes: 70_000},
		http1.Path{Path: "/1000000", Bytes: 1_000_000})
	for _, tt := range []struct {
		name string
		tls  *TLS
		c    Config
		s    httpserver.Config
	}{
		{name: "open", c: Config{Rate: 1000, Connections: 4, Objects: objects(http1.Path{Path: "/100", Bytes: 100})}},
		{name: "closed", c: Config{Mode: Closed, Connections: 4, Objects: mixed}},
		{name: "4 MB", c: Config{Rate: 100, Connections: 2,
			Objects: objects(http1.Path{Path: "/4194304", Bytes: 4 << 20})}},
		{name: "two threads", c: Config{Rate: 1000, Arrivals: Poisson, Threads: 2, Connections: 5, Objects: mixed}},
		{name: "pipelined", c: Config{Rate: 1000, Pipeline: 8, Objects: mixed}},
		{name: "close", s: httpserver.Config{CloseEvery: 7}, c: Config{Mode: Closed, Connections: 3, Objects: mixed}},
		{name: "TLS 1.2", tls: &TLS{Max: "1.2"}, c: Config{Rate: 500, Connections: 3, Objects: mixed}},
		{name: "TLS 1.3", tls: &TLS{Min: "1.3"}, c: Config{Mode: Closed, Connections: 3, Pipeline: 2, Objects: mixed}},
		{name: "TLS, close", tls: &TLS{}, s: httpserver.Config{CloseEvery: 3},
			c: Config{Rate: 100, Connections: 3, Objects: mixed}},
		{name: "TLS, 4 MB", tls: &TLS{},
			c: Config{Rate: 50, Objects: objects(http1.Path{Path: "/4194304", Bytes: 4 << 20})}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.s.SelfSigned = tt.tls != nil
			addr, ca, stop := serveHTTP(t, tt.s)
			c := tt.c
			c.Protocol, c.Address, c.TLS = HTTP, addr, tt.tls
			if c.TLS != nil {
				c.TLS.CAFile = ca
			}
			c.Warmup, c.Duration, c.Timeout = 20e6, 100e6, 20e9
			r := some(t, c)
			if r.Intended == 0 || r.Hits != r.Intended || r.Unanswered != 0 || r.Statuses[200] != r.Hits ||
				len(r.Statuses) != 1 {
				t.Errorf("intended %d, hits %d, errors %d, unanswered %d, statuses %v: %s", r.Intended, r.Hits,
					r.Errors, r.Unanswered, r.Statuses, r.FirstError)
			}
			for cipher := range r.Ciphers {
				if (cipher == "plain") != (tt.tls == nil) || tt.tls != nil && tt.tls.Max == "1.2" &&
					!strings.HasPrefix(cipher, "TLS 1.2 TLS_") {
					t.Errorf("connections %v", r.Ciphers)
				}
			}
			for name, n := range map[string]int64{"latency": r.Latency.Count(), "series": r.Series.Count(),
				"first byte": r.FirstByte.Count(), "its series": r.FirstByteSeries.Count()} {
				if n != r.Intended {
					t.Errorf("%s holds %d values, want %d", name, n, r.Intended)
				}
			}
			if r.FirstByte.Max() > r.Latency.Max() || r.FirstByte.Mean() > r.Latency.Mean() {
				t.Errorf("first byte after %.0f, last after %.0f", r.FirstByte.Mean(), r.Latency.Mean())
			}
			// With few requests, the run may end before a closed connection is open again.
			closes := tt.s.CloseEvery > 0 && r.Work.Gets >= 4*tt.s.CloseEvery
			if closes && r.Reconnects == 0 || tt.s.CloseEvery == 0 && r.Reconnects > 0 || r.ConnectionsLost > 0 {
				t.Errorf("%d reconnects, %d lost", r.Reconnects, r.ConnectionsLost)
			}
			s := stop()
			if s.Requests != r.Work.Gets {
				t.Errorf("server saw %d requests, generator sent %d", s.Requests, r.Work.Gets)
			}
			// s.Bytes includes the warm-up, r.Payload does not.
			if s.Bytes < r.Payload || tt.tls == nil && r.Work.GotBytes < s.Bytes {
				t.Errorf("server sent %d bytes of bodies, generator counted %d, received %d", s.Bytes, r.Payload,
					r.Work.GotBytes)
			}
		})
	}
}

// TestHTTPFaults: a server's errors must be counted, by kind.
func TestHTTPFaults(t *testing.T) {
	base := Config{Protocol: HTTP, Rate: 1000, Connections: 1, Duration: 100e6, Timeout: 20e9}
	path := objects(http1.Path{Path: "/10", Bytes: 10})
	t.Run("status", func(t *testing.T) {
		c := base
		c.Address, _, _ = serveHTTP(t, httpserver.Config{FailEvery: 4})
		c.Objects = path
		r := result(t, c)
		if want := map[int]int64{200: 75, 500: 25}; !maps.Equal(r.Statuses, want) || r.Errors != 25 || r.Hits != 75 {
			t.Errorf("statuses %v, want %v; errors %d, hits %d", r.Statuses, want, r.Errors, r.Hits)
		}
		if r.FirstError != "/10: status 500, want 2xx" {
			t.Error(r.FirstError)
		}
	})
	t.Run("size", func(t *testing.T) {
		c := base
		c.Address, _, _ = serveHTTP(t, httpserver.Config{})
		c.Objects = objects(http1.Path{Path: "/10", Bytes: 11})
		r := result(t, c)
		if r.Errors != 100 || r.FirstError != "/10: got 10 bytes, want 11" {
			t.Errorf("errors %d, %s", r.Errors, r.FirstError)
		}
	})
	for _, reconnect := range []bool{false, true} {
		t.Run(map[bool]string{false: "abort", true: "abort and reconnect"}[reconnect], func(t *testing.T) {
			c := base
			c.Address, _, _ = serveHTTP(t, httpserver.Config{AbortEvery: 25})
			c.Objects, c.Reconnect, c.Backoff, c.Timeout = path, reconnect, 1, 5e9
			r := result(t, c)
			if r.Latency.Count() != 100 || r.Completed+r.Unanswered != 100 {
				t.Errorf("%d completed, %d unanswered, %d in the distribution; want 100 in all", r.Completed,
					r.Unanswered, r.Latency.Count())
			}
			if !reconnect && (r.Completed != 24 || r.ConnectionsLost != 1 || r.Reconnects != 0) {
				t.Errorf("completed %d, lost %d, reconnects %d; want 24, 1, 0", r.Completed, r.ConnectionsLost,
					r.Reconnects)
			}
			if reconnect && (r.Completed != 96 || r.ConnectionsLost != 4 || r.Reconnects < 3) {
				t.Errorf("completed %d, lost %d, reconnects %d; want 96, 4, 3 or 4", r.Completed, r.ConnectionsLost,
					r.Reconnects)
			}
			// A lost request is at least as slow as the timeout.
			if lost := r.Latency.Max(); lost < c.Timeout {
				t.Errorf("slowest %d, want at least the timeout %d", lost, c.Timeout)
			}
		})
	}
}

func TestTLSRefusals(t *testing.T) {
	addr, ca, _ := serveHTTP(t, httpserver.Config{SelfSigned: true})
	c := Config{Protocol: HTTP, Address: addr, Rate: 100, Duration: 50e6, Objects: objects(http1.Path{Path: "/1"})}
	for _, tt := range []struct {
		name string
		tls  TLS
		want string
	}{
		{"unknown authority", TLS{}, "certificate signed by unknown authority"},
		{"another name", TLS{CAFile: ca, Name: "example.com"}, "example.com"},
		{"no file", TLS{CAFile: "/nonexistent"}, "tls.caFile: open /nonexistent"},
		{"no certificate", TLS{CAFile: "/dev/null"}, "no certificate in PEM form"},
		{"version", TLS{Min: "1.1", Max: "1.4"}, `tls.maxVersion "1.4"`},
		{"versions", TLS{Min: "1.3", Max: "1.2"}, "minVersion 1.3 is above maxVersion 1.2"},
		{"both", TLS{CAFile: ca, Insecure: true}, "caFile and insecure"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := c
			c.TLS = &tt.tls
			_, err := Run(t.Context(), c)
			errtest.Says(t, tt.name, err, tt.want)
		})
	}
	c.TLS = &TLS{Insecure: true}
	if r, err := Run(t.Context(), c); err != nil || r.Hits == 0 {
		t.Errorf("insecure: %d hits, %v", r.Hits, err)
	}
	c.Address, _, _ = serveHTTP(t, httpserver.Config{})
	_, err := Run(t.Context(), c)
	errtest.Says(t, "plain server", err, "TLS handshake")
}

// TestEndWithTheLastBytes: the end of a connection may arrive in one segment with the last bytes.
// epoll reports both as one event, only once. The generator must notice the end nevertheless.
func TestEndWithTheLastBytes(t *testing.T) {
	address := servetest.Listen(t, func(c net.Conn, r *bufio.Reader) {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err == nil {
			// With TCP_CORK, data is sent only when the connection is closed (tcp(7)).
			_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, 1) })
		}
		if _, err := http.ReadRequest(r); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nuntil the end")
		}
	})
	r := result(t, Config{Protocol: HTTP, Address: address, Rate: 200, Connections: 2,
		Duration: 100e6, Timeout: 3e9,
		Objects: objects(http1.Path{Path: "/", Bytes: 13})})
	if r.Hits != 20 || r.Reconnects < 18 {
		t.Errorf("%d of 20 answered, %d connections opened again: %s", r.Hits, r.Reconnects, r.FirstError)
	}
}
