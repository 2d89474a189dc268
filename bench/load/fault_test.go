// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/bench/load/proto/http1"
	"github.com/niclane/niclane/bench/part/httpserver"
	"github.com/niclane/niclane/bench/part/servetest"
	"github.com/niclane/niclane/bench/stats"
)

// TestStallShows: in an open loop, a stall of the server must show in the latency of every request
// that was due during the stall. In a closed loop, and in the uncorrected latency of an open loop, it
// shows only in the request that met it. On a slow host, more requests may be slow, but not fewer.
func TestStallShows(t *testing.T) {
	const (
		stall = 400e6
		rate  = 1000
		// Requests due in the first half of the stall wait at least for the second half.
		least = rate * stall / 2 / 1e9
	)
	over := func(h *stats.Histogram) (n int64) { // requests slower than half the stall
		h.Buckets(func(_, high, count int64) bool {
			if high >= stall/2 {
				n += count
			}
			return true
		})
		return n
	}
	c := Config{Protocol: HTTP, Objects: objects(http1.Path{Path: "/1"}), Timeout: 20e9}
	stalls := httpserver.Config{Stalls: []httpserver.Stall{{Request: 100, Length: stall}}}

	open := c
	open.Address, _, _ = serveHTTP(t, stalls)
	open.Rate, open.Duration = rate, 600e6
	r := result(t, open)
	if r.Intended != 600 || r.Completed != 600 {
		t.Errorf("intended %d, completed %d, want 600", r.Intended, r.Completed)
	}
	if n := over(r.Latency); n < least {
		t.Errorf("corrected: %d requests slower than half the stall, want at least %.0f", n, float64(least))
	}
	if n := r.Waiting.Count(); n < least-1 {
		t.Errorf("%d requests waited for the server, want at least %.0f", n, float64(least)-1)
	}
	closed := c
	closed.Address, _, _ = serveHTTP(t, stalls)
	closed.Mode, closed.Duration = Closed, 600e6
	q := result(t, closed)
	// One request met the stall. A host that stalls the generator adds a few.
	for name, h := range map[string]*stats.Histogram{"uncorrected": r.Uncorrected, "closed loop": q.Latency} {
		if n := over(h); n < 1 || n > least/4 {
			t.Errorf("%s: %d requests slower than half the stall, want about 1", name, n)
		}
	}
}

func TestFaults(t *testing.T) {
	// The run never waits for the long timeout: all requests are answered, or their connection is lost.
	base := Config{Rate: 1000, Duration: 100e6, Timeout: 3600e9}
	reply := right(t, base)
	for _, tt := range []struct {
		name    string
		respond func(n int, key string) string
		check   func(r Result) string
	}{
		{"misses", func(int, string) string { return "END\r\n" },
			func(r Result) string {
				return expect("misses", r.Misses, 100) + expect("completed", r.Completed, 100) + expect("hits", r.Hits,
					0)
			}},
		{"server errors", func(n int, key string) string {
			if n%2 == 0 {
				return "SERVER_ERROR busy\r\n"
			}
			return reply(key)
		}, func(r Result) string { return expect("errors", r.Errors, 50) + expect("hits", r.Hits, 50) }},
		{"another key's value", func(_ int, key string) string { return reply("k000000000000001") },
			func(r Result) string {
				if r.Errors < 90 { // 1 of 1000 keys is right by chance
					return fmt.Sprintf("errors %d, want almost 100", r.Errors)
				}
				return ""
			}},
		{"right key, another key's value", func(_ int, key string) string {
			return strings.Replace(reply("k000000000000001"), "VALUE k000000000000001", "VALUE "+key, 1)
		}, func(r Result) string {
			if r.Errors < 90 {
				return fmt.Sprintf("errors %d, want almost 100", r.Errors)
			}
			return ""
		}},
		{"another key, right value", func(_ int, key string) string {
			return strings.Replace(reply(key), "VALUE k", "VALUE K", 1)
		}, func(r Result) string { return expect("errors", r.Errors, 100) }},
		{"right key, wrong value", func(_ int, key string) string {
			return strings.Replace(reply(key), "niclane.", "niclaNe.", 1)
		}, func(r Result) string { return expect("errors", r.Errors, 100) }},
		{"right key, short value", func(_ int, key string) string {
			return fmt.Sprintf("VALUE %s 0 3\r\nk00\r\nEND\r\n", key)
		}, func(r Result) string { return expect("errors", r.Errors, 100) }},
		{"garbage", func(int, string) string { return "HTTP/1.1 400\r\n" },
			func(r Result) string {
				return expect("lost", int64(r.ConnectionsLost), 1) + expect("unanswered", r.Unanswered, 100) +
					expect("in latency", r.Latency.Count(), 100)
			}},
		{"closed half way", func(n int, key string) string {
			if n == 50 {
				return ""
			}
			return reply(key)
		}, func(r Result) string {
			return expect("lost", int64(r.ConnectionsLost), 1) + expect("completed", r.Completed, 50) +
				expect("unanswered", r.Unanswered, 50) + expect("in latency", r.Latency.Count(), 100)
		}},
		{"reply nobody asked for", func(n int, key string) string { return reply(key) + "END\r\n" },
			func(r Result) string {
				return expect("in latency", r.Latency.Count(), 100) + expect("lost", int64(r.ConnectionsLost), 1)
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := base
			c.Address = fake(t, tt.respond)
			r := result(t, c)
			if r.Intended != 100 {
				t.Errorf("intended %d, want 100", r.Intended)
			}
			if bad := tt.check(r); bad != "" {
				t.Error(bad)
			}
			if len(r.Warnings) == 0 {
				t.Error("no warning")
			}
		})
	}
}

func expect(what string, got, want int64) string {
	if got != want {
		return fmt.Sprintf("%s %d, want %d; ", what, got, want)
	}
	return ""
}

// TestPipeline: with a pipeline of n, a server never has more than n requests waiting.
func TestPipeline(t *testing.T) {
	most := make(chan int, 1)
	address := servetest.Listen(t, func(c net.Conn, _ *bufio.Reader) {
		n := 0
		defer func() { most <- n }()
		b := make([]byte, 1<<20)
		for {
			time.Sleep(10 * time.Millisecond) // let requests queue, as a slow server does
			got, err := c.Read(b)
			if err != nil {
				return
			}
			gets := strings.Count(string(b[:got]), "get ")
			n = max(n, gets)
			if _, err := c.Write([]byte(strings.Repeat("END\r\n", gets))); err != nil {
				return
			}
		}
	})
	result(t, Config{Address: address, Rate: 2000, Duration: 60e6, Timeout: 60e9, Pipeline: 3})
	if n := <-most; n != 3 {
		t.Errorf("at most %d requests were outstanding, want 3", n)
	}
}

// TestUnanswered: requests that are never answered stay in the distribution with the time they
// have waited.
func TestUnanswered(t *testing.T) {
	release := make(chan struct{})
	c := Config{Rate: 1000, Duration: 100e6, Timeout: 200e6}
	reply := right(t, c)
	c.Address = fake(t, func(n int, key string) string {
		if n == 20 {
			<-release
			return ""
		}
		return reply(key)
	})
	r, err := Run(t.Context(), c)
	close(release)
	if err != nil {
		t.Fatal(err)
	}
	if r.Unanswered != 80 || r.Latency.Count() != 100 {
		t.Errorf("unanswered %d of %d in the distribution, want 80 of 100", r.Unanswered, r.Latency.Count())
	}
	if r.Latency.ValueAt(25) < 200e6 {
		t.Errorf("P25 %d ns: want at least the timeout, as most waited for it", r.Latency.ValueAt(25))
	}
	if r.Uncorrected.Count() != 20 {
		t.Errorf("uncorrected holds %d values, want the 20 answered", r.Uncorrected.Count())
	}
}
