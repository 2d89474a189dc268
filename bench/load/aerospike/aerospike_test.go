// SPDX-License-Identifier: Apache-2.0

package aerospike

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/counters"
	"github.com/niclane/niclane/bench/part/errtest"
)

// Only TestServer uses a real Aerospike. The other tests use the fake server of server_test.go.

// TestServer runs against a real Aerospike with a namespace "test", if NICLANE_ASD=HOST:PORT is
// set.
func TestServer(t *testing.T) {
	server := os.Getenv("NICLANE_ASD")
	if server == "" {
		t.Skip("no NICLANE_ASD=HOST:PORT: the tests beside this one have a fake of the protocol")
	}
	against(t, server)
}

// TestServerOnTheFake runs TestServer's code on the fake server.
func TestServerOnTheFake(t *testing.T) {
	_, port, err := net.SplitHostPort(serve(t).address)
	if err != nil {
		t.Fatal(err)
	}
	against(t, net.JoinHostPort("localhost", port))
}

// against runs load on a server, HOST:PORT, and compares the server's counters with the generator's.
func against(t *testing.T, server string) {
	t.Helper()
	at, err := net.ResolveTCPAddr("tcp4", server)
	if err != nil {
		t.Fatalf("NICLANE_ASD=%s: %v, want HOST:PORT", server, err)
	}
	c := load.Config{Protocol: load.Aerospike, Mode: load.Closed, Address: at.String(), Connections: 4, Keys: 200,
		SetShare: 0.3, Prefill: true, Warmup: 20e6, Duration: 500e6, Timeout: 20e9}
	before, r, after := counted(t, c)
	if r.Intended == 0 || r.Hits != r.Intended {
		t.Errorf("intended %d, hits %d: %s", r.Intended, r.Hits, r.FirstError)
	}
	if err := counters.Compare(before, after, r.Work); err != nil {
		t.Error(err)
	}
}

// counted runs load. It returns the result, and the server's counters before and after the run.
func counted(t *testing.T, c load.Config) (before counters.Counters, r load.Result, after counters.Counters) {
	t.Helper()
	var errs [3]error
	before, errs[0] = Counters(c)
	r, errs[1] = Run(t.Context(), c)
	after, errs[2] = Counters(c)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return before, r, after
}

func TestRun(t *testing.T) {
	for _, mode := range []string{load.Open, load.Closed} {
		s := serve(t)
		c := load.Config{Protocol: load.Aerospike, Mode: mode, Address: s.address, Connections: 4, Keys: 200,
			SetShare: 0.3, Prefill: true, Warmup: 20e6, Duration: 100e6, Timeout: 20e9}
		if mode == load.Open {
			c.Rate = 1000
		}
		before, r, after := counted(t, c)
		if r.Intended == 0 || r.Hits != r.Intended || r.Latency.Count() != r.Intended || r.Payload == 0 ||
			len(s.records) != 200 {
			t.Errorf("%s: intended %d, hits %d, %d records: %s", mode, r.Intended, r.Hits, len(s.records), r.FirstError)
		}
		if w := r.Work; w.Prefilled != 200 || w.GetHits != w.Gets || w.Stored != w.Sets {
			t.Errorf("%s: work %+v", mode, w)
		}
		if err := counters.Compare(before, after, r.Work); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		r.Work.Sets++
		if err := counters.Compare(before, after, r.Work); err == nil {
			t.Errorf("%s: a set that the server has not seen: no error", mode)
		}
	}
}

func TestFaults(t *testing.T) {
	s := serve(t)
	c := load.Config{Protocol: load.Aerospike, Address: s.address, Rate: 1000, Connections: 2, Duration: 100e6,
		Timeout: 5e9}
	r, err := Run(t.Context(), c)
	if err != nil || r.Misses != 100 {
		t.Errorf("not filled: misses %d, %v", r.Misses, err)
	}
	s.answer = func(n int64) int {
		switch n - 100 {
		case 10:
			return 8 // the server's memory is full
		case 20:
			return -1
		}
		return 0
	}
	if r, err = Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if r.Errors != 1 || r.Unanswered != 1 || r.Misses != 98 || r.Latency.Count() != 100 ||
		r.Latency.Max() < c.Timeout*99/100 {
		t.Errorf("errors %d, unanswered %d, misses %d, in latency %d up to %d: %s", r.Errors, r.Unanswered, r.Misses,
			r.Latency.Count(), r.Latency.Max(), r.FirstError)
	}
	// If the server has values of another size, its answers are wrong.
	s.answer = nil
	c.Prefill = true
	if r, err = Run(t.Context(), c); err != nil || r.Hits != 100 {
		t.Errorf("filled: hits %d, %v", r.Hits, err)
	}
	c.Prefill, c.ValueBytes = false, 65
	if r, err = Run(t.Context(), c); err != nil || r.Errors != 100 ||
		!strings.Contains(r.FirstError, "got 64 bytes that are not its value of 65") {
		t.Errorf("other values: errors %d: %s, %v", r.Errors, r.FirstError, err)
	}
	s.answer = func(int64) int { return 8 }
	c.Prefill = true
	_, err = Run(t.Context(), c)
	errtest.Says(t, "prefill refused", err, "prefill: key")
	if _, err = Run(t.Context(), load.Config{Address: s.address, Rate: 1, Duration: 1}); err == nil {
		t.Error("memcached: no error")
	}
	c.Address, c.ConnectTimeout = "127.0.0.1:1", 1e9
	_, err = Run(t.Context(), c)
	errtest.Says(t, "nobody listens", err, "127.0.0.1:1")
}

func TestCounterErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "no client_read_success",
		"client_read_success=x":     "client_read_success",
		"ERROR::unknown-namespace":  "unknown-namespace",
		"client_write_success=1;a=": "no client_read_success",
	} {
		var sum counters.Counters
		errtest.Says(t, text, add(&sum, text), want)
	}
}
