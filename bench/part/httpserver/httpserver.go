// SPDX-License-Identifier: Apache-2.0

// Package httpserver is a small HTTP/1.1 server for measurements, over net/http. It serves objects
// of any size, plain or by TLS. Its configuration can make it sleep, stall, fail and close
// connections. Its behaviour is known exactly, so that a generator's results can be checked.
//
// It is not for other uses: it serves no files, and has no access control.
package httpserver

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Config is the configuration of Run. Durations are in ns. Requests are numbered from 1 in the
// order in which they arrive.
//
// "/N" is an object of N bytes with a Content-Length, "/chunked/N" an object of N bytes in chunks.
// "/status/N" has status N and no body. A query is ignored.
type Config struct {
	// Address to listen on. Port 0 chooses a free one, see Server.Addr.
	Address string `json:"address"`
	// CertFile and KeyFile (PEM) enable TLS 1.2 and 1.3. SelfSigned does the same with a
	// certificate that the server makes for its address, see Server.CA.
	CertFile   string `json:"certFile,omitempty"`
	KeyFile    string `json:"keyFile,omitempty"`
	SelfSigned bool   `json:"selfSigned,omitempty"`

	// Sleeps delay answers: request n is answered after the n-th sleep. After the last sleep, the
	// first one is used again.
	Sleeps []int64 `json:"sleepsNs,omitempty"`
	// Stalls stop the whole server.
	Stalls []Stall `json:"stalls,omitempty"`
	// CloseEvery n answers every n-th request with "Connection: close"; 0: none. FailEvery n
	// answers every n-th request with status 500. AbortEvery n closes the connection of every
	// n-th request without an answer.
	CloseEvery int64 `json:"closeEvery,omitempty"`
	FailEvery  int64 `json:"failEvery,omitempty"`
	AbortEvery int64 `json:"abortEvery,omitempty"`

	// Origin makes the server an origin for caches. "/N/ANYTHING" is then an object of N bytes
	// that is cacheable for a year. "/N/miss..." is an object of N bytes that must not be cached.
	// "/stats" is the server's Stats.
	Origin bool `json:"origin,omitempty"`
}

// Stats are counters of an origin since it was started.
type Stats struct {
	Requests int64 `json:"requests"` // for objects
	Bytes    int64 `json:"bytes"`
	// CPU is the CPU time of the server's process, ns. Processors is how many it may use.
	CPU        int64 `json:"cpuNs"`
	Processors int   `json:"processors"`
}

// A Stall begins when request Request arrives. That request and all later ones are answered
// only after Length.
type Stall struct {
	Request int64 `json:"request"`
	Length  int64 `json:"lengthNs"`
}

// Result is what Run counted.
type Result struct {
	Connections int64 `json:"connections"`
	Requests    int64 `json:"requests"`
	Bytes       int64 `json:"bytes"` // of bodies
}

// maxObject is the size of the largest object, bytes.
const maxObject = 1 << 40

func (c Config) check() (netip.AddrPort, error) {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	addr, err := netip.ParseAddrPort(c.Address)
	if err != nil {
		bad("address %q: want ADDRESS:PORT with a numeric address", c.Address)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		bad("certFile %q, keyFile %q: want both or none", c.CertFile, c.KeyFile)
	}
	if c.CertFile != "" && c.SelfSigned {
		bad("certFile and selfSigned: want one of them")
	}
	for i, s := range c.Sleeps {
		if s < 0 {
			bad("sleepsNs[%d] %d: want 0 or more", i, s)
		}
	}
	for i, s := range c.Stalls {
		if s.Request < 1 || s.Length < 0 {
			bad("stalls[%d]: request %d, lengthNs %d, want at least 1 and 0", i, s.Request, s.Length)
		}
	}
	if c.CloseEvery < 0 || c.FailEvery < 0 || c.AbortEvery < 0 {
		bad("closeEvery %d, failEvery %d, abortEvery %d: want 0 (never) or more", c.CloseEvery, c.FailEvery,
			c.AbortEvery)
	}
	if len(errs) > 0 {
		return addr, fmt.Errorf("httpserver: %w", errors.Join(errs...))
	}
	return addr, nil
}

// A Server listens after Listen, and answers requests during Serve.
type Server struct {
	c           Config
	l           net.Listener
	ca          []byte
	tls         *tls.Config
	connections atomic.Int64
	bytes       atomic.Int64
	mu          sync.Mutex // held during a stall
	requests    int64
}

// Listen returns a server that listens on c.Address.
func Listen(c Config) (*Server, error) {
	addr, err := c.check()
	if err != nil {
		return nil, err
	}
	s := &Server{c: c}
	var cert tls.Certificate
	switch {
	case c.SelfSigned:
		cert, s.ca, err = selfSigned(addr.Addr().WithZone("").AsSlice())
	case c.CertFile != "":
		cert, err = tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("httpserver: %w", err)
	}
	if s.l, err = net.Listen("tcp", addr.String()); err != nil {
		return nil, fmt.Errorf("httpserver: %w", err)
	}
	if cert.Certificate != nil {
		// Only "http/1.1": the generator does not speak HTTP/2.
		s.tls = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12,
			NextProtos: []string{"http/1.1"}}
	}
	return s, nil
}

// Addr returns the address on which s listens. CA returns the certificate that s has made, in PEM
// form; nil: none.
func (s *Server) Addr() netip.AddrPort { return s.l.Addr().(*net.TCPAddr).AddrPort() }
func (s *Server) CA() []byte           { return s.ca }

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context) (Result, error) {
	h := &http.Server{
		Handler: s, TLSConfig: s.tls, BaseContext: func(net.Listener) context.Context { return ctx },
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				s.connections.Add(1)
			}
		},
	}
	defer context.AfterFunc(ctx, func() { h.Close() })()
	var err error
	if s.tls != nil {
		err = h.ServeTLS(s.l, "", "")
	} else {
		err = h.Serve(s.l)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return s.result(), fmt.Errorf("httpserver: %w", err)
	}
	return s.result(), nil
}

func (s *Server) result() Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Result{s.connections.Load(), s.requests, s.bytes.Load()}
}

// Run calls Listen and Serve.
func Run(ctx context.Context, c Config) (Result, error) {
	s, err := Listen(c)
	if err != nil {
		return Result{}, err
	}
	return s.Serve(ctx)
}

// block is the content of bodies.
var block [64 << 10]byte

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.c.Origin && r.URL.Path == "/stats" {
		s.stats(w)
		return
	}
	n := s.arrive(r.Context())
	if len(s.c.Sleeps) > 0 {
		pause(r.Context(), s.c.Sleeps[(n-1)%int64(len(s.c.Sleeps))])
	}
	every := func(k int64) bool { return k > 0 && n%k == 0 }
	if every(s.c.AbortEvery) {
		panic(http.ErrAbortHandler)
	}
	if every(s.c.CloseEvery) {
		w.Header().Set("Connection", "close")
	}
	if every(s.c.FailEvery) {
		http.Error(w, "as told", http.StatusInternalServerError)
		return
	}
	path, chunked := strings.CutPrefix(r.URL.Path, "/chunked")
	if status, ok := strings.CutPrefix(path, "/status/"); ok {
		if code, err := strconv.Atoi(status); err == nil && code >= 200 && code <= 599 {
			w.WriteHeader(code)
			return
		}
	}
	if s.c.Origin {
		path = cacheable(w, path)
	}
	size, err := strconv.ParseInt(strings.TrimPrefix(path, "/"), 10, 64)
	if err != nil || size < 0 || size > maxObject {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if !chunked {
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	}
	for size > 0 {
		k, err := w.Write(block[:min(size, int64(len(block)))])
		s.bytes.Add(int64(k))
		if err != nil {
			return
		}
		if size -= int64(k); chunked {
			_ = http.NewResponseController(w).Flush() // a chunk of its own; the next Write returns the error too
		}
	}
}

// cacheable sets the caching headers of an origin's object, and returns the part of its path
// that is its length.
func cacheable(w http.ResponseWriter, path string) string {
	length, name, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if strings.HasPrefix(name, "miss") {
		w.Header().Set("Cache-Control", "no-store")
		return length
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000")
	w.Header().Set("ETag", strconv.Quote(length))
	return length
}

func (s *Server) stats(w http.ResponseWriter) {
	r := s.result()
	x := Stats{Requests: r.Requests, Bytes: r.Bytes, Processors: runtime.NumCPU()}
	var use unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &use); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	x.CPU = use.Utime.Nano() + use.Stime.Nano()
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(x) // an error means that the client is gone
}

// arrive returns the number of a request. If the request begins a stall, arrive delays this request
// and all later ones.
func (s *Server) arrive(ctx context.Context) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	for _, stall := range s.c.Stalls {
		if s.requests == stall.Request {
			pause(ctx, stall.Length)
		}
	}
	return s.requests
}

// pause sleeps for ns, or until ctx ends.
func pause(ctx context.Context, ns int64) {
	if ns <= 0 {
		return
	}
	t := time.NewTimer(time.Duration(ns))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
