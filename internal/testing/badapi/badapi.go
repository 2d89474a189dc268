// SPDX-License-Identifier: Apache-2.0

// Package badapi is an API server of Kubernetes that misbehaves on demand, for tests: it is slow or
// away, or answers with errors. It passes all other requests to a handler. It counts all requests.
package badapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Fault is what the server does wrong.
type Fault int

// Faults. Each begins with the end of all open watches, but for Hanging.
const (
	None Fault = iota
	// Slow: each answer is 5 s late.
	Slow
	// Refused: connections are refused, and the open ones end.
	Refused
	// Hanging: no byte passes, on open connections and on new ones. They never recover.
	Hanging
	// Conflict: each write is answered with 409.
	Conflict
	// Gone: each watch from a resource version is answered with 410.
	Gone
	// TooMany: each request is answered with 429, and is to come again after 1 s.
	TooMany
	// Broken: each request is answered with 500.
	Broken
)

// All are the faults by name.
var All = []struct {
	Name  string
	Fault Fault
}{
	{"slow", Slow}, {"refused", Refused}, {"hanging", Hanging}, {"409", Conflict}, {"410", Gone}, {"429", TooMany},
	{"500", Broken},
}

// late is how late an answer of Slow is.
const late = 5 * time.Second

// A Server is a running server.
type Server struct {
	// URL is its address. Its certificate is self-signed.
	URL string

	next http.Handler
	gate *gate

	mu     sync.Mutex
	fault  Fault
	over   chan struct{}   // closed when the next fault begins: open watches end
	open   *sync.WaitGroup // the watches since the last fault began
	counts map[string]int
}

// New starts a server that passes requests to next. It ends with the test.
func New(t testing.TB, next http.Handler) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{next: next, gate: newGate(l), over: make(chan struct{}), open: &sync.WaitGroup{},
		counts: map[string]int{}}
	h := httptest.NewUnstartedServer(s)
	_ = h.Listener.Close()
	h.Listener, h.EnableHTTP2 = s.gate, true
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.StartTLS()
	s.URL = h.URL
	t.Cleanup(func() {
		s.Set(None)
		s.gate.cut()
		h.CloseClientConnections()
		h.Close()
	})
	return s
}

// Before returns a handler that passes requests to the server at an address, whose certificate it
// does not verify.
func Before(t testing.TB, address string) http.Handler {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(u) },
		FlushInterval: -1, // a watch's events pass at once
		ErrorLog:      log.New(io.Discard, "", 0),
		Transport: &http.Transport{ForceAttemptHTTP2: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
}

// Set begins a fault, and ends the one before. No event of a watch from before passes after it.
func (s *Server) Set(f Fault) {
	s.mu.Lock()
	before, open := s.fault, s.open
	s.fault, s.open = f, &sync.WaitGroup{}
	close(s.over)
	s.over = make(chan struct{})
	s.mu.Unlock()
	s.gate.set(f, before)
	open.Wait()
}

// Requests returns the number of requests so far, by method and resource, for example "PATCH
// lanenodes". A watch has the method WATCH. Connections that were refused or hang are not counted.
func (s *Server) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

// Connections returns how many connections clients have made so far. It does not count those that
// were refused.
func (s *Server) Connections() int { return s.gate.connections() }

// resource returns the resource of an URL's path, for example "pods", or "lanenodes/status".
func resource(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	skip := 2 // api/v1
	if parts[0] == "apis" {
		skip = 3
	}
	if len(parts) <= skip {
		return path
	}
	parts = parts[skip:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2]
	}
	return parts[0]
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	watch := r.URL.Query().Get("watch") != "" && r.URL.Query().Get("watch") != "false"
	method := r.Method
	if watch {
		method = "WATCH"
	}
	s.mu.Lock()
	s.counts[method+" "+resource(r.URL.Path)]++
	fault, over, open := s.fault, s.over, s.open
	if watch {
		open.Add(1)
		defer open.Done()
	}
	s.mu.Unlock()
	ctx := r.Context()
	if watch {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-over:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	write := r.Method != http.MethodGet && r.Method != http.MethodHead
	switch {
	case fault == Slow:
		select {
		case <-ctx.Done():
			return
		case <-time.After(late):
		}
	case fault == Conflict && write:
		say(w, http.StatusConflict, "Conflict")
		return
	case fault == Gone && watch && r.URL.Query().Get("resourceVersion") != "":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"type": "ERROR", "object": %s}`+"\n", status(http.StatusGone, "Expired"))
		return
	case fault == TooMany:
		w.Header().Set("Retry-After", "1")
		say(w, http.StatusTooManyRequests, "TooManyRequests")
		return
	case fault == Broken:
		say(w, http.StatusInternalServerError, "InternalError")
		return
	}
	s.next.ServeHTTP(w, r.WithContext(ctx))
}

func say(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprint(w, status(code, reason))
}

// status returns a metav1.Status in JSON.
func status(code int, reason string) string {
	return fmt.Sprintf(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": %d, "reason": %q, `+
		`"message": "the test says so"}`, code, reason)
}

// A gate is a listener that can be closed and opened again, and whose connections can hang.
type gate struct {
	mu      sync.Mutex
	address net.Addr
	l       net.Listener // nil: closed for now
	opened  chan struct{}
	ended   chan struct{}
	hang    bool
	conns   map[*conn]bool
	made    int
}

func newGate(l net.Listener) *gate {
	return &gate{address: l.Addr(), l: l, opened: make(chan struct{}), ended: make(chan struct{}),
		conns: map[*conn]bool{}}
}

func (g *gate) connections() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.made
}

func (g *gate) set(f, before Fault) {
	g.mu.Lock()
	if f == Refused && g.l != nil {
		_ = g.l.Close()
		g.l = nil
	}
	if f != Refused && before == Refused && g.l == nil {
		// Nothing else takes the port meanwhile: it is not one that is given out by itself again soon.
		l, err := net.Listen("tcp", g.address.String())
		if err != nil {
			panic(fmt.Sprintf("badapi: listen again: %v", err))
		}
		g.l = l
		close(g.opened)
		g.opened = make(chan struct{})
	}
	g.hang = f == Hanging
	if g.hang {
		for c := range g.conns {
			c.stop()
		}
	}
	g.mu.Unlock()
	if f == Refused {
		g.cut()
	}
}

// cut ends all connections.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		_ = c.Conn.Close()
		c.stop()
	}
}

// Accept implements [net.Listener].
func (g *gate) Accept() (net.Conn, error) {
	for {
		g.mu.Lock()
		l, opened := g.l, g.opened
		g.mu.Unlock()
		if l == nil {
			select {
			case <-opened:
				continue
			case <-g.ended:
				return nil, net.ErrClosed
			}
		}
		c, err := l.Accept()
		select {
		case <-g.ended:
			return nil, net.ErrClosed
		default:
		}
		if err != nil {
			g.mu.Lock()
			still := g.l == l
			g.mu.Unlock()
			if still {
				return nil, err
			}
			continue
		}
		g.mu.Lock()
		k := &conn{Conn: c, gate: g, hangs: make(chan struct{}), closed: make(chan struct{})}
		g.conns[k] = true
		g.made++
		if g.hang {
			k.stop()
		}
		g.mu.Unlock()
		return k, nil
	}
}

// Close implements [net.Listener].
func (g *gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.ended:
	default:
		close(g.ended)
	}
	if g.l != nil {
		return g.l.Close()
	}
	return nil
}

// Addr implements [net.Listener].
func (g *gate) Addr() net.Addr { return g.address }

// A conn is a connection that can be made to hang for ever.
type conn struct {
	net.Conn
	gate          *gate
	once, ending  sync.Once
	hangs, closed chan struct{}
}

func (c *conn) stop() { c.once.Do(func() { close(c.hangs) }) }

// Read implements [net.Conn].
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.hangs:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

// Write implements [net.Conn].
func (c *conn) Write(p []byte) (int, error) {
	select {
	case <-c.hangs:
		return len(p), nil // lost on the way
	default:
		return c.Conn.Write(p)
	}
}

// Close implements [net.Conn]. The client of a connection that hangs does not see it.
func (c *conn) Close() error {
	c.ending.Do(func() { close(c.closed) })
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	delete(c.gate.conns, c)
	return c.Conn.Close()
}
