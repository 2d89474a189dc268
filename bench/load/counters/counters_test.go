// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/part/memserver"
	"github.com/niclane/niclane/bench/part/servetest"
)

// TestServers: the generator's counts must equal the server's, for every server.
func TestServers(t *testing.T) {
	for _, tt := range []struct{ name, protocol, command string }{
		{"memserver", load.Memcached, ""},
		{"memcached", load.Memcached, "memcached"},
		{"redis", load.Redis, "redis-server"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := load.Config{Protocol: tt.protocol, Address: serve(t, tt.command), Keys: 500, Prefill: true,
				SetShare: 0.3, Rate: 2000, Connections: 2, Warmup: 30e6, Duration: 100e6, Timeout: 20e9}
			before, err := Read(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			r, err := load.Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			after, err := Read(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if err := Compare(before, after, r.Work); err != nil {
				t.Errorf("%v\n%+v", err, r.Work)
			}
			if after.Gets.Value-before.Gets.Value < 50 || after.Sets.Value-before.Sets.Value < 500 ||
				after.Hits.Value == before.Hits.Value {
				t.Errorf("before %+v, after %+v: nothing was counted", before, after)
			}
			// Another client's get must be noticed.
			after.Gets.Value++
			after.Misses.Value++
			err = Compare(before, after, r.Work)
			if err == nil || !strings.Contains(err.Error(), after.Gets.Name) ||
				!strings.Contains(err.Error(), after.Misses.Name) || strings.Contains(err.Error(), after.Hits.Name) {
				t.Errorf("one get too many: %v", err)
			}
			if err := CheckKeys(after, 500); err != nil || after.Keys.Value != 500 {
				t.Errorf("%d keys, want 500: %v", after.Keys.Value, err)
			}
			errtest.Says(t, "a key that is not there", CheckKeys(after, 501), "holds 500 "+after.Keys.Name)
			if tt.command == "" {
				return
			}
			// The server counts bytes. Compare notices the bytes of another client.
			if after.Received.Value-before.Received.Value < r.Work.SentBytes ||
				after.Sent.Value-before.Sent.Value < r.Work.GotBytes {
				t.Errorf("before %+v, after %+v, generator %+v: bytes were not counted", before, after, r.Work)
			}
			after.Received.Value += 2 * slackBytes
			after.Sent.Value += 2 * slackBytes
			err = Compare(before, after, r.Work)
			if err == nil || !strings.Contains(err.Error(), after.Received.Name) ||
				!strings.Contains(err.Error(), after.Sent.Name) {
				t.Errorf("bytes too many: %v", err)
			}
		})
	}
}

// serve starts a server ("": a memserver) and returns its address.
func serve(t *testing.T, command string) string {
	t.Helper()
	if command == "" {
		s, err := memserver.Listen(memserver.Config{Address: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		servetest.Start(t, s.Serve)
		return s.Addr().String()
	}
	path, err := exec.LookPath(command)
	if err != nil {
		t.Skip(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	l.Close()
	args := []string{"-u", "nobody", "-l", "127.0.0.1", "-p", port}
	if command == "redis-server" {
		args = []string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"}
	}
	cmd := exec.Command(path, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for deadline := time.Now().Add(10 * time.Second); ; {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			return address
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestCompare(t *testing.T) {
	at := func(gets, sets, hits, misses int64) Counters {
		return Counters{Gets: Counter{"g", gets}, Sets: Counter{"s", sets}, Hits: Counter{"h", hits},
			Misses: Counter{"m", misses}}
	}
	w := load.Work{Gets: 10, Sets: 4, GetHits: 7, GetMisses: 1, Unanswered: 2}
	for _, tt := range []struct {
		name          string
		before, after Counters
		want          []string
	}{
		{"all seen", at(5, 5, 5, 5), at(15, 9, 14, 6), nil},
		{"unanswered not seen", at(0, 0, 0, 0), at(8, 4, 7, 1), nil},
		{"not told", Counters{}, Counters{}, nil},
		{"all wrong", at(0, 0, 0, 0), at(11, 5, 6, 4),
			[]string{"counted 11 g, generator has 8 to 10 gets sent", "counted 5 s, generator has 2 to 4",
				"counted 6 h, generator has 7 to 9", "counted 4 m, generator has 1 to 3"}},
		{"restarted", at(100, 0, 0, 0), at(10, 4, 7, 1), []string{"g fell from 100 to 10"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Compare(tt.before, tt.after, w)
			if (err != nil) != (tt.want != nil) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			errtest.Says(t, "all", err, tt.want...)
		})
	}
	errtest.Says(t, "all answered", Compare(at(0, 0, 0, 0), at(3, 0, 3, 0), load.Work{Gets: 3, GetHits: 2}),
		"counted 3 h, generator has 2 hits received")
}

func TestReadErrors(t *testing.T) {
	for name, reply := range map[string]string{
		"memcached, not stats": "ERROR\r\n", "memcached, incomplete": "STAT cmd_get 1\r\nEND\r\n",
		"memcached, not a number": "STAT cmd_get x\r\n", "memcached, ended": "STAT",
		"redis, error": "-NOAUTH\r\n", "redis, huge": "$99999999999\r\n",
		"redis, incomplete": "$2\r\nx\r\r\n$0\r\n\r\n", "redis, not a number": "$15\r\nkeyspace_hits:x\r\n",
		"memcached, bytes": "STAT bytes_read x\r\n", "redis, bytes": "$25\r\ntotal_net_input_bytes:x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			read := memcached
			if strings.HasPrefix(name, "redis") {
				read = redis
			}
			if c, err := read(bufio.NewReader(strings.NewReader(reply)), io.Discard); err == nil {
				t.Errorf("no error: %+v", c)
			}
		})
	}
	if _, err := Read(t.Context(), load.Config{Protocol: load.HTTP, Address: "127.0.0.1:1"}); !errors.Is(err, ErrNone) {
		t.Errorf("HTTP: %v", err)
	}
	// A silent server must not block Read forever.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Read(t.Context(), load.Config{Address: l.Addr().String(), ConnectTimeout: 20e6}); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("silent server: %v", err)
	}
}
