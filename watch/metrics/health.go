// SPDX-License-Identifier: Apache-2.0

// Package metrics serves the state of watched lanes: Prometheus metrics at /metrics and the health
// at /healthz. It reads counters only when a client asks. It listens only on a Unix socket or a
// loopback address, which other hosts cannot reach.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/few"
	"github.com/niclane/niclane/watch"
)

// An Address is where a Server listens: a Unix socket's path or a loopback address with a port.
type Address struct{ Network, Address string }

// String returns the address in the form that ParseAddress reads.
func (a Address) String() string {
	if a.Network == "unix" {
		return "unix:" + a.Address
	}
	return a.Address
}

// ParseAddress reads "unix:PATH", or "IP:PORT" or "[IP]:PORT" with a loopback address.
func ParseAddress(s string) (Address, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if !strings.HasPrefix(path, "/") {
			return Address{}, fmt.Errorf("%q: want unix: and an absolute path", s)
		}
		return Address{"unix", path}, nil
	}
	at, err := netip.ParseAddrPort(s)
	if err != nil {
		return Address{}, fmt.Errorf("%q: want unix:PATH, 127.0.0.1:PORT or [::1]:PORT", s)
	}
	if !at.Addr().IsLoopback() {
		return Address{}, fmt.Errorf("%q: other hosts reach it, and it answers every caller: want a loopback address "+
			"(127.0.0.1, ::1) or unix:PATH", s)
	}
	return Address{"tcp", at.String()}, nil
}

// listen opens the listener. If a killed process has left its socket there, listen replaces it.
func (a Address) listen() (net.Listener, error) {
	l, err := net.Listen(a.Network, a.Address)
	if a.Network != "unix" || !errors.Is(err, unix.EADDRINUSE) {
		return l, err
	}
	if c, derr := net.Dial(a.Network, a.Address); derr == nil {
		c.Close()
		return nil, fmt.Errorf("%s: another process listens there", a.Address)
	} else if st, serr := os.Lstat(a.Address); !errors.Is(derr, unix.ECONNREFUSED) || serr != nil ||
		st.Mode().Type() != fs.ModeSocket {
		return nil, err // another kind of file (connect also fails with ECONNREFUSED, unix(7)), or no permission
	}
	if err := os.Remove(a.Address); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return net.Listen(a.Network, a.Address)
}

// A Keeper reports the state of the lanes. *watch.Keeper is one.
type Keeper interface {
	State() (conditions []watch.Condition, count watch.Count, failing string)
}

// A Server serves the metrics.
type Server struct {
	http *http.Server
	done chan error
	h    http.Handler
}

// Handler answers /metrics and /healthz, for another server of the same process.
func (s *Server) Handler() http.Handler { return s.h }

// scrapers is the largest number of requests for metrics that are answered at the same time. The
// counters are read for one request after the other.
const scrapers = 8

// clients is the largest number of connections on which no request is being answered. It is also
// the largest number of those on which one is.
const clients = 64

// requestTimeout is how long a client that sends nothing can keep its connection.
const requestTimeout = 10 * time.Second

// Serve answers requests until Close is called. Function read reads the counters; it is called for
// one request at a time. more are further collectors.
func Serve(at Address, k Keeper, read func(context.Context) (Reading, error), more ...prometheus.Collector) (*Server,
	error) {
	l, err := at.listen()
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	h := handler(k, read, more...)
	s := &Server{h: h, done: make(chan error, 1), http: &http.Server{
		Handler: heard(h), ConnContext: withConn, ReadTimeout: requestTimeout,
		WriteTimeout: requestTimeout, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
	}}
	go func() { s.done <- s.http.Serve(few.Listen(l, clients, clients)) }()
	return s, nil
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// heard marks a connection as busy while a request is answered, and as silent before and after.
func heard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(connKey{}).(net.Conn)
		few.Heard(c)
		defer few.Silent(c)
		h.ServeHTTP(w, r)
	})
}

// Close stops the server.
func (s *Server) Close() error {
	err := s.http.Close()
	if serr := <-s.done; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}

func handler(k Keeper, read func(context.Context) (Reading, error), more ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(append(more, &collector{series: newSeries(), keeper: k, read: read})...)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry,
		promhttp.HandlerOpts{MaxRequestsInFlight: scrapers, ErrorHandling: promhttp.ContinueOnError}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		wrong := wrongs(k)
		if len(wrong) == 0 {
			fmt.Fprintln(w, "ok")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, strings.Join(wrong, "\n"))
	})
	return mux
}

// wrongs returns what is wrong with the lanes, sorted. If it returns nothing, the lanes are
// healthy.
func wrongs(k Keeper) []string {
	conditions, _, failing := k.State()
	var out []string
	if failing != "" {
		out = append(out, "the lanes cannot be looked at: "+failing)
	}
	for _, c := range conditions {
		for dev, why := range c.Waits {
			out = append(out, fmt.Sprintf("%s: %s: %s", c.Config, dev, why))
		}
		for _, key := range c.Drifts {
			out = append(out, fmt.Sprintf("%s: %s: not as niclane left it", c.Config, key))
		}
		for _, key := range c.Left {
			out = append(out, fmt.Sprintf("%s: %s: not as niclane left it, and not repaired any more", c.Config, key))
		}
	}
	sort.Strings(out)
	return out
}
