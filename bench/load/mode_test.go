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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/niclane/niclane/bench/load/proto/http1"
	"github.com/niclane/niclane/bench/part/servetest"
	"github.com/niclane/niclane/bench/stats"
)

// fakeRedis returns the address of a server that keeps keys in a map. It knows the part of RESP2 that
// the tests use.
func fakeRedis(t *testing.T) string {
	var mu sync.Mutex
	values := map[string]string{}
	return servetest.Listen(t, func(c net.Conn, r *bufio.Reader) {
		line := func() string { s, _ := r.ReadString('\n'); return strings.TrimSpace(s) }
		for {
			n, err := strconv.Atoi(strings.TrimPrefix(line(), "*"))
			if err != nil {
				return
			}
			var words []string
			for range n {
				size, _ := strconv.Atoi(strings.TrimPrefix(line(), "$"))
				b := make([]byte, size+2)
				if _, err := io.ReadFull(r, b); err != nil {
					return
				}
				words = append(words, string(b[:size]))
			}
			mu.Lock()
			reply := "-ERR unknown command\r\n"
			switch {
			case len(words) == 3 && words[0] == "SET":
				values[words[1]] = words[2]
				reply = "+OK\r\n"
			case len(words) == 2 && words[0] == "GET":
				reply = "$-1\r\n"
				if v, ok := values[words[1]]; ok {
					reply = fmt.Sprintf("$%d\r\n%s\r\n", len(v), v)
				}
			}
			mu.Unlock()
			if _, err := io.WriteString(c, reply); err != nil {
				return
			}
		}
	})
}

// TestGetsAndSets: with both protocols and in both modes, all requests must be answered
// correctly, and none counted twice.
func TestGetsAndSets(t *testing.T) {
	for _, protocol := range []string{Memcached, Redis} {
		for _, mode := range []string{Open, Closed} {
			t.Run(protocol+" "+mode, func(t *testing.T) {
				c := Config{Protocol: protocol, Mode: mode, Connections: 3, Keys: 100, ValueBytes: 3000, SetShare: 0.25,
					Prefill: true, Duration: 100e6, Timeout: 20e9}
				if protocol == Memcached {
					c.Address = serve(t, "127.0.0.1:0")
				} else {
					c.Address = fakeRedis(t)
				}
				if mode == Open {
					c.Rate = 2000
				} else {
					c.Pipeline = 4
				}
				r := some(t, c)
				w := r.Work
				if r.Hits != r.Intended || r.Intended == 0 || r.FirstError != "" {
					t.Errorf("%d of %d good: %s", r.Hits, r.Intended, r.FirstError)
				}
				if w.Prefilled != 100 || w.Gets+w.Sets != r.Intended+100 || w.GetHits != w.Gets || w.Stored != w.Sets ||
					w.GetMisses != 0 || w.Unanswered != 0 {
					t.Errorf("intended %d, work %+v", r.Intended, w)
				}
				if sets := float64(w.Sets-100) / float64(r.Intended); r.Intended > 150 && (sets < 0.1 || sets > 0.45) {
					t.Errorf("%.2f of the requests were sets, want about 0.25", sets)
				}
				if r.Payload != w.Gets*3000 || w.GotBytes < r.Payload || w.SentBytes < w.Sets*3000 {
					t.Errorf("payload %d, work %+v", r.Payload, w)
				}
				if mode == Closed && (r.Wakeup.Count() != 0 || r.Lateness.Count() != 0) {
					t.Error("a closed loop has no intended times to miss")
				}
			})
		}
	}
}

func TestMissesWithoutPrefill(t *testing.T) {
	r, err := Run(t.Context(), Config{Protocol: Redis, Address: fakeRedis(t), Rate: 1000, Duration: 50e6,
		Timeout: 20e9})
	if err != nil || r.Misses != 50 || r.Work.GetMisses != 50 || r.Hits != 0 {
		t.Errorf("misses %d, hits %d, %v", r.Misses, r.Hits, err)
	}
}

// TestSteps: every step is a result of its own, on the same connections.
func TestSteps(t *testing.T) {
	addr := serve(t, "127.0.0.1:0")
	r := result(t, Config{Address: addr, Prefill: true, Timeout: 20e9, Connections: 2, Threads: 2,
		Duration: 50e6,
		Steps:    []Step{{Rate: 1000}, {Rate: 2000, Connections: 5}, {Rate: 500, Duration: 100e6}}})
	if len(r.Steps) != 3 || r.Intended != 200 || r.Hits != 200 || r.Duration != 200e6 || r.Latency.Count() != 200 ||
		r.Work.Gets != 200 || r.Work.Prefilled != 1000 {
		t.Errorf("%d steps, intended %d, hits %d, %d ns, %+v", len(r.Steps), r.Intended, r.Hits, r.Duration, r.Work)
	}
	last := int64(0)
	for i, want := range []int64{50, 100, 50} {
		s := r.Steps[i]
		if s.Intended != want || s.Hits != want || s.Latency.Count() != want || s.Series.Count() != want ||
			s.StartMono <= last {
			t.Errorf("step %d: intended %d, hits %d, want %d; start %d after %d", i, s.Intended, s.Hits, want,
				s.StartMono, last)
		}
		last = s.StartMono + s.Duration
	}
	// In a closed loop with n connections, n requests are outstanding at once, never more. The
	// server answers only after it has received n requests.
	for _, n := range []int64{1, 4} {
		var now, most atomic.Int64
		all := make(chan bool)
		var once sync.Once
		reply := right(t, Config{})
		busy := fake(t, func(_ int, key string) string {
			k := now.Add(1)
			defer now.Add(-1)
			if k > most.Load() {
				most.Store(k)
			}
			if k == n {
				once.Do(func() { close(all) })
			}
			<-all
			return reply(key)
		})
		c := Config{Address: busy, Mode: Closed, Timeout: 60e9, Duration: 50e6, Steps: []Step{{Connections: int(n)}}}
		some(t, c)
		if most.Load() != n {
			t.Errorf("%d were asked at once, want %d", most.Load(), n)
		}
	}
}

// TestStepAfterSilence: an overloaded step must not affect the next.
func TestStepAfterSilence(t *testing.T) {
	c := Config{Connections: 2, Timeout: 30e6,
		Steps: []Step{{Rate: 1000, Duration: 20e6}, {Rate: 100, Duration: 200e6}}}
	reply := right(t, c)
	var asked atomic.Int64
	held := make(chan bool)
	defer close(held)
	c.Address = fake(t, func(_ int, key string) string {
		if asked.Add(1) <= 2 { // the first of each connection
			<-held
		}
		return reply(key)
	})
	r := result(t, c)
	a, b := r.Steps[0], r.Steps[1]
	if a.Unanswered != 20 || a.Latency.Count() != 20 || a.Latency.Min() < c.Timeout*99/100 {
		t.Errorf("first step: %d unanswered, %d in the distribution from %d on", a.Unanswered, a.Latency.Count(),
			a.Latency.Min())
	}
	if b.Intended != 20 || b.Completed+b.Unanswered != 20 || b.Completed == 0 || b.Errors != 0 {
		t.Errorf("second step: intended %d, completed %d, unanswered %d: %s", b.Intended, b.Completed, b.Unanswered,
			b.FirstError)
	}
}

// TestReconnect: the generator must reconnect to a server that comes back.
func TestReconnect(t *testing.T) {
	c := Config{Rate: 1000, Duration: 200e6, Timeout: 5e9, Reconnect: true, Backoff: 1e6}
	reply := right(t, c)
	var n atomic.Int64
	c.Address = fake(t, func(_ int, key string) string {
		if n.Add(1)%50 == 0 {
			return "" // closes
		}
		return reply(key)
	})
	r := result(t, c)
	if r.Reconnects < 2 || r.ConnectionsLost < r.Reconnects || r.Completed+r.Unanswered != 200 ||
		r.Latency.Count() != 200 || r.Errors != 0 {
		t.Errorf("reconnects %d, lost %d, completed %d, unanswered %d: %s", r.Reconnects, r.ConnectionsLost,
			r.Completed, r.Unanswered, r.FirstError)
	}
	if r.Completed < 100 {
		t.Errorf("completed %d of 200", r.Completed)
	}
}

// TestSilentConnection: a connection without an answer is given up after the timeout.
func TestSilentConnection(t *testing.T) {
	c := Config{Mode: Closed, Duration: 200e6, Timeout: 20e6, Reconnect: true, Backoff: 1}
	reply := right(t, c)
	var n atomic.Int64
	held := make(chan bool)
	defer close(held)
	c.Address = fake(t, func(_ int, key string) string {
		if n.Add(1) == 3 {
			<-held
		}
		return reply(key)
	})
	r := result(t, c)
	if r.ConnectionsLost < 1 || r.Unanswered < 1 || r.Completed < 2 ||
		!strings.Contains(r.FirstError, "no answer within 20ms") {
		t.Errorf("lost %d, unanswered %d, completed %d: %s", r.ConnectionsLost, r.Unanswered, r.Completed, r.FirstError)
	}
}

// TestPartial: a run whose context ends, as by Ctrl-C, returns the measurement so far.
func TestPartial(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	reply := right(t, Config{})
	var n atomic.Int64
	addr := fake(t, func(_ int, key string) string {
		if n.Add(1) == 100 {
			cancel(why)
		}
		return reply(key)
	})
	r, err := Run(ctx, Config{Address: addr, Rate: 1000, Duration: 3600e9})
	if !errors.Is(err, why) || !r.Partial || r.Completed < 1 || r.Duration <= 0 || r.Duration > 600e9 ||
		len(r.Warnings) == 0 {
		t.Errorf("%v; partial %v, completed %d in %d ns", err, r.Partial, r.Completed, r.Duration)
	}
}

func TestMerge(t *testing.T) {
	addr := serve(t, "127.0.0.1:0")
	c := Config{Address: addr, Prefill: true, Rate: 1000, Duration: 50e6, Timeout: 20e9}
	a, b := result(t, c), result(t, c)
	// Results go from process to process as JSON.
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	b = Result{}
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	m, err := Merge(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if m.Intended != 100 || m.Latency.Count() != 100 || m.Series.Count() != 100 || m.Duration != a.Duration ||
		m.OfferedRate != 2000 || m.Work.Prefilled != 2000 {
		t.Errorf("%+v", m)
	}
	if want := stats.Merge(a.Latency, b.Latency); m.Latency.ValueAt(99) != want.ValueAt(99) ||
		m.Latency.Max() != max(a.Latency.Max(), b.Latency.Max()) {
		t.Error("latency is not the sum of the histograms")
	}
	for name, change := range map[string]func(r *Result){
		"mode": func(r *Result) { r.Mode = Closed }, "steps": func(r *Result) { r.Steps = []Result{{}} },
		"ns": func(r *Result) { r.Duration++ },
	} {
		x := b
		change(&x)
		if _, err := Merge(a, x); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s differs: %v", name, err)
		}
	}
	if _, err := Merge(); err == nil {
		t.Error("nothing to merge: no error")
	}
}

func TestMoreConfigErrors(t *testing.T) {
	ok := Config{Address: "127.0.0.1:1", Rate: 1, Duration: 1}
	for want, change := range map[string]func(c *Config){
		`protocol "gopher"`:       func(c *Config) { c.Protocol = "gopher" },
		`mode "ajar"`:             func(c *Config) { c.Mode = "ajar" },
		"closed loop has no rate": func(c *Config) { c.Mode = Closed },
		"closed loop has none":    func(c *Config) { c.Mode, c.Arrivals = Closed, Poisson },
		"cpus: 1 for 2 threads":   func(c *Config) { c.Threads, c.Connections, c.CPUs = 2, 2, []int{0} },
		"one for each of 2":       func(c *Config) { c.Threads = 2 },
		"threads 257":             func(c *Config) { c.Threads, c.Connections = 257, 257 },
		"steps[1].ratePerSecond":  func(c *Config) { c.Steps = []Step{{}, {Rate: -1}} },
		"steps[0].connections":    func(c *Config) { c.Steps = []Step{{Connections: -1}} },
		"windowNs 1:":             func(c *Config) { c.Window = 1 },
		"want paths":              func(c *Config) { c.Protocol = HTTP },
		"want none with protocol": func(c *Config) { c.Objects = objects(http1.Path{Path: "/"}) },
		"prefill: want none": func(c *Config) {
			c.Protocol, c.Objects, c.Prefill = HTTP,
				objects(http1.Path{Path: "/"}), true
		},
		"setShare 2":         func(c *Config) { c.SetShare = 2 },
		"records: want none": func(c *Config) { c.Records = &Records{} },
		"records: want bin": func(c *Config) {
			c.Protocol, c.Records = Aerospike,
				&Records{Bin: "longer than fifteen"}
		},
		"pipeline 2: want 1": func(c *Config) { c.Protocol, c.Pipeline = Aerospike, 2 },
	} {
		c := ok
		change(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
	if err := ok.Check(); err != nil {
		t.Error(err)
	}
}

// TestHiccups: a spinning generator records hiccups of the host; a sleeping one cannot.
func TestHiccups(t *testing.T) {
	c := Config{Address: serve(t, "127.0.0.1:0"), Prefill: true, Rate: 100, Duration: 30e6, Timeout: 20e9}
	r, err := Run(t.Context(), c)
	if err != nil || r.Hiccups != nil || r.Away != 0 {
		t.Errorf("sleeping: %v, away %d ns, %v", r.Hiccups, r.Away, err)
	}
	c.Spin = 1
	if r, err = Run(t.Context(), c); err != nil || r.Away < r.Duration/2 {
		t.Errorf("hardly spinning: away %d ns, %v", r.Away, err)
	}
	c.Spin = 1e9
	if r, err = Run(t.Context(), c); err != nil || r.Hiccups == nil || r.Hits != 3 {
		t.Errorf("spinning: %v, %d hits, %v", r.Hiccups, r.Hits, err)
	}
	if r.Away+r.CPUTime < r.Duration*99/100 {
		t.Errorf("%d ns of processor time and %d ns without are less than %d", r.CPUTime, r.Away, r.Duration)
	}
	if r.Hiccups.Count() > 0 && r.Hiccups.Min() <= leastHiccup*999/1000 {
		t.Errorf("a hiccup of %d ns", r.Hiccups.Min())
	}
}
