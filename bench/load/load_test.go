// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/bench/load/proto"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/part/memserver"
	"github.com/niclane/niclane/bench/part/servetest"
	"github.com/niclane/niclane/bench/stats"
)

// serve starts a memserver on address and returns its address.
func serve(t *testing.T, address string) string {
	t.Helper()
	s, err := memserver.Listen(memserver.Config{Address: address, Threads: 2})
	if err != nil {
		if strings.HasPrefix(address, "[::1]") {
			t.Skipf("no IPv6 loopback: %v", err)
		}
		t.Fatal(err)
	}
	servetest.Start(t, s.Serve)
	return s.Addr().String()
}

// fake returns the address of a server that answers each line with the raw reply of respond. If the
// reply is "", it closes the connection. n is the number of the line on its connection, from 0. key is
// the key of a get.
func fake(t *testing.T, respond func(n int, key string) string) string {
	t.Helper()
	return servetest.Listen(t, func(c net.Conn, r *bufio.Reader) {
		for n := 0; ; n++ {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			reply := respond(n, strings.TrimSpace(strings.TrimPrefix(line, "get ")))
			if reply == "" {
				// Closing with unread requests would reset the connection and discard answers
				// that the other side has not read yet.
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, r)
				return
			}
			if _, err := c.Write([]byte(reply)); err != nil {
				return
			}
		}
	})
}

// right returns a function that returns a correct server's reply to a get of key.
func right(t testing.TB, c Config) func(key string) string {
	t.Helper()
	c, _, _ = c.withDefaults()
	k, err := c.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // k is for one thread
	return func(key string) string {
		mu.Lock()
		defer mu.Unlock()
		var i uint32
		fmt.Sscanf(key, "k%d", &i)
		return fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\nEND\r\n", key, c.ValueBytes, k.AppendValue(nil, i))
	}
}

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name, listen string
		c            Config
	}{
		{"constant", "127.0.0.1:0", Config{Connections: 4}},
		{"poisson", "127.0.0.1:0", Config{Connections: 3, Arrivals: Poisson, Seed: 7}},
		{"IPv6", "[::1]:0", Config{Connections: 2}},
		{"one at a time", "127.0.0.1:0", Config{Pipeline: 1}},
		{"tiny values", "127.0.0.1:0", Config{ValueBytes: 1, Keys: 7}},
		{"large values", "127.0.0.1:0", Config{ValueBytes: 100_000, Keys: 10, KeyBytes: 250}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.c
			c.Address, c.Rate, c.Prefill = serve(t, tt.listen), 2000, true
			c.Warmup, c.Duration, c.Timeout = 20e6, 100e6, 20e9
			r := result(t, c)
			if c.Arrivals != Poisson && r.Intended != 200 {
				t.Errorf("%d requests intended, want 2000/s × 0.1 s = 200", r.Intended)
			}
			if r.Intended == 0 || r.Sent != r.Intended || r.Completed != r.Intended || r.Hits != r.Intended {
				t.Errorf("intended %d, sent %d, completed %d, hits %d: want all equal", r.Intended, r.Sent, r.Completed,
					r.Hits)
			}
			for name, h := range map[string]*stats.Histogram{"latency": r.Latency, "uncorrected": r.Uncorrected,
				"lateness": r.Lateness, "wakeup": r.Wakeup} {
				if h.Count() != r.Intended || h.Clamped() != 0 {
					t.Errorf("%s holds %d values, %d clamped; want %d and 0", name, h.Count(), h.Clamped(), r.Intended)
				}
			}
			if r.Latency.Min() < r.Uncorrected.Min() || r.Latency.Mean() < r.Uncorrected.Mean() {
				t.Errorf("latency %d is below uncorrected %d", r.Latency.Min(), r.Uncorrected.Min())
			}
			if r.Errors+r.Misses+r.Unanswered != 0 || r.FirstError != "" {
				t.Errorf("errors %d, misses %d, unanswered %d: %s", r.Errors, r.Misses, r.Unanswered, r.FirstError)
			}
			if r.CPUTime <= 0 || r.RTT <= 0 || r.StartMono <= 0 {
				t.Errorf("cpu %d, rtt %d, start %d: want all positive", r.CPUTime, r.RTT, r.StartMono)
			}
		})
	}
}

// result returns the result of a run without an error.
func result(t *testing.T, c Config) Result {
	t.Helper()
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// some runs again if no request was counted: on a busy host, a closed loop may send none in time.
func some(t *testing.T, c Config) Result {
	t.Helper()
	r := result(t, c)
	for try := 0; r.Intended == 0 && try < 10; try++ {
		c.Prefill = false // the first run has set the keys
		filled := r.Work
		r = result(t, c)
		r.Work.add(filled)
	}
	return r
}

// TestPoissonIsSeeded: with the same seed, a run must request the same keys in the same order.
func TestPoissonIsSeeded(t *testing.T) {
	ask := func(seed uint64) (keys []string) {
		var mu sync.Mutex
		c := Config{Rate: 2000, Arrivals: Poisson, Seed: seed, Duration: 100e6, Timeout: 20e9}
		reply := right(t, c)
		c.Address = fake(t, func(_ int, key string) string {
			mu.Lock()
			defer mu.Unlock()
			keys = append(keys, key)
			return reply(key)
		})
		r := result(t, c)
		mu.Lock()
		defer mu.Unlock()
		if int64(len(keys)) != r.Intended {
			t.Fatalf("server saw %d requests, generator intended %d", len(keys), r.Intended)
		}
		return keys
	}
	a, b, other := ask(1), ask(1), ask(2)
	if d := cmp.Diff(a, b); d != "" {
		t.Errorf("same seed, -first +second\n%s", d)
	}
	if cmp.Equal(a, other) {
		t.Error("another seed asks for the same")
	}
}

func TestRunFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := l.Addr().String()
	l.Close()
	_, err = Run(t.Context(), Config{Address: refused, Rate: 1, Duration: 1})
	errtest.Says(t, "nobody listens", err, "refused")
	full := fake(t, func(int, string) string { return "SERVER_ERROR out of memory storing object\r\n" })
	_, err = Run(t.Context(), Config{Address: full, Rate: 1, Duration: 1, Prefill: true})
	errtest.Says(t, "prefill refused", err, "out of memory")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	addr := fake(t, func(int, string) string { cancel(why); return "END\r\n" })
	if _, err := Run(ctx, Config{Address: addr, Rate: 1000, Duration: 3600e9}); !errors.Is(err, why) {
		t.Errorf("context ended: %v, want %v", err, why)
	}
}

func TestConfigErrors(t *testing.T) {
	_, _, err := Config{Address: "localhost:x", Rate: 0, Arrivals: "bursty", Connections: -1, Keys: -1, KeyBytes: 251,
		ValueBytes: 2 << 20}.withDefaults()
	errtest.Says(t, "all", err, "address", "ratePerSecond", "arrivals", "connections", "keys", "keyBytes",
		"valueBytes", "durationNs")
	if _, _, err := (Config{Address: "127.0.0.1:1", Rate: 1e7, Duration: 3600e9}).withDefaults(); err == nil {
		t.Error("36 thousand million requests: no error")
	}
}

func TestJSON(t *testing.T) {
	c := Config{Address: "[::1]:1", Rate: 5, Duration: 7}
	c.CPUs, c.FIFO = []int{1}, 3
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var got Config
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(c, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// TestHotPathDoesNotAllocate: a request and its answer must not allocate memory, because the garbage
// collector is off.
func TestHotPathDoesNotAllocate(t *testing.T) {
	c, _, err := Config{Address: "127.0.0.1:1", Rate: 1, Duration: 1, SetShare: 0.5}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	codec, err := c.codec()
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{cfg: &c, codec: codec, account: newAccount(&c, 0, c.Duration), end: 1e9, in: make([]byte, inBytes),
		free: make([]int32, 1), active: 1}
	cn := &conn{state: live, parser: codec.Parser(), sent: newQueue(16)}
	get := []byte(right(t, c)("k000000000000003"))
	stored := []byte("STORED\r\n")
	ticket := proto.Ticket{Index: 3}
	now := int64(1000)
	if n := testing.AllocsPerRun(1000, func() {
		for _, op := range []proto.Op{proto.Get, proto.Set} {
			now += 1000
			ticket.Op = op
			p := pending{intended: now - 500, noticed: now - 400, ticket: ticket, counted: true}
			w.account.due(&p)
			w.issue(cn, p, now, false)
			cn.out = cn.out[:0]
			reply := get
			if op == proto.Set {
				reply = stored
			}
			w.take(cn, reply[:5], now)
			m := copy(w.in, cn.stash)
			w.take(cn, w.in[:m+copy(w.in[m:], reply[5:])], now)
		}
	}); n != 0 {
		t.Errorf("%v allocations per request", n)
	}
	if r := w.account.res; r.Hits != 2002 || r.Completed != 2002 {
		t.Errorf("%d hits of %d, want 2002: %s", r.Hits, r.Completed, r.FirstError)
	}
}

// TestQueueGrows: during a stall, more requests wait than the first ring can hold. None of them may be
// lost or reordered.
func TestQueueGrows(t *testing.T) {
	q := newQueue(3)
	next := int64(0)
	for i := range int64(1000) {
		q.push(pending{intended: i})
		if i%3 == 0 {
			if got := q.front().intended; got != next {
				t.Fatalf("got %d, want %d", got, next)
			}
			q.pop()
			next++
		}
	}
	for ; q.len() > 0; q.pop() {
		if got := q.front().intended; got != next {
			t.Fatalf("got %d, want %d", got, next)
		}
		next++
	}
	if next != 1000 {
		t.Errorf("%d came out, want 1000", next)
	}
}
