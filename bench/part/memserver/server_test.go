// SPDX-License-Identifier: Apache-2.0

package memserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/part/servetest"
)

func start(t *testing.T, c Config) (addr string, stop func() Result) {
	t.Helper()
	c.Address = "127.0.0.1:0"
	s, err := Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	return s.Addr().String(), servetest.Start(t, s.Serve)
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// talk sends in, ends its direction of the connection and returns all answers.
func talk(t *testing.T, addr, in string) string {
	t.Helper()
	c := dial(t, addr)
	go func() {
		io.WriteString(c, in)
		c.(*net.TCPConn).CloseWrite()
	}()
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestConversation(t *testing.T) {
	addr, _ := start(t, Config{Threads: 2, MaxValue: 100})
	big := strings.Repeat("v", 101)
	for _, tt := range []struct{ name, in, want string }{
		{"miss", "get none\r\n", "END\r\n"},
		{"set and get", "set a 7 0 3\r\nabc\r\nget a none a\r\n",
			"STORED\r\nVALUE a 7 3\r\nabc\r\nVALUE a 7 3\r\nabc\r\nEND\r\n"},
		{"noreply", "set b 0 0 1 noreply\r\nx\r\nget b\r\n", "VALUE b 0 1\r\nx\r\nEND\r\n"},
		{"overwrite", "set c 0 0 1\r\nx\r\nset c 0 0 2\r\nyz\r\nget c\r\n",
			"STORED\r\nSTORED\r\nVALUE c 0 2\r\nyz\r\nEND\r\n"},
		{"delete", "set d 0 0 1\r\nx\r\ndelete d\r\ndelete d\r\nget d\r\n",
			"STORED\r\nDELETED\r\nNOT_FOUND\r\nEND\r\n"},
		{"expired", "set e 0 -1 1\r\nx\r\nget e\r\n", "STORED\r\nEND\r\n"},
		{"expired long ago", "set e 0 1000000000 1\r\nx\r\nget e\r\n", "STORED\r\nEND\r\n"},
		{"not expired", "set e 0 100 1\r\nx\r\nget e\r\n", "STORED\r\nVALUE e 0 1\r\nx\r\nEND\r\n"},
		{"too large, data skipped", "set f 0 0 101\r\n" + big + "\r\nget f\r\n",
			"SERVER_ERROR object too large for cache\r\nEND\r\n"},
		{"bad chunk closes", "set g 0 0 1\r\nxyz\r\nget g\r\n", "CLIENT_ERROR bad data chunk\r\n"},
		{"errors go on", "nonsense\r\nget\r\nget a\x02\r\nversion\r\n",
			"ERROR\r\nERROR\r\nCLIENT_ERROR bad command line format\r\nVERSION niclane-memserver\r\n"},
		{"quit", "quit\r\nversion\r\n", ""},
		{"nothing", "", ""},
		{"half a command", "get a", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := talk(t, addr, tt.in); got != tt.want {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
		})
	}
	gets := talk(t, addr, "set h 0 0 1\r\nx\r\ngets h\r\nset h 0 0 1\r\nx\r\ngets h\r\n")
	var cas1, cas2 int
	if n, err := fmt.Sscanf(gets, "STORED\r\nVALUE h 0 1 %d\r\nx\r\nEND\r\nSTORED\r\nVALUE h 0 1 %d\r\nx\r\nEND\r\n",
		&cas1, &cas2); n != 2 || cas1 == cas2 {
		t.Errorf("gets: %q (%v): want two different cas values", gets, err)
	}
	if s := talk(t, addr, "stats\r\n"); !strings.Contains(s, "STAT get_hits ") || !strings.HasSuffix(s, "END\r\n") {
		t.Errorf("stats: %q", s)
	}
}

// TestByteByByte: the server must parse requests that arrive byte by byte.
func TestByteByByte(t *testing.T) {
	addr, _ := start(t, Config{})
	c := dial(t, addr)
	go func() {
		for _, b := range []byte("set a 0 0 3\r\nabc\r\nget a\r\nquit\r\n") {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
		}
	}()
	got, err := io.ReadAll(c)
	if want := "STORED\r\nVALUE a 0 3\r\nabc\r\nEND\r\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestMemoryLimit(t *testing.T) {
	addr, stop := start(t, Config{MaxMemory: 10_000, MaxValue: 4000})
	v := strings.Repeat("v", 4000)
	set := func(key string) string { return "set " + key + " 0 0 4000\r\n" + v + "\r\n" }
	got := talk(t, addr, set("a")+set("b")+set("c")+"get c\r\ndelete a\r\n"+set("c")+set("c"))
	want := "STORED\r\nSTORED\r\nSERVER_ERROR out of memory storing object\r\nEND\r\nDELETED\r\nSTORED\r\nSTORED\r\n"
	if got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if r := stop(); r.Items != 2 || r.Memory != 2*(4001+itemOverhead) {
		t.Errorf("%d items of %d bytes, want 2 of %d", r.Items, r.Memory, 2*(4001+itemOverhead))
	}
}

// TestRefusedSetRemoves: after a refused set, the server must not serve the older value.
func TestRefusedSetRemoves(t *testing.T) {
	addr, _ := start(t, Config{MaxMemory: 200, MaxValue: 4000})
	got := talk(t, addr, "set a 0 0 1\r\nx\r\nset a 0 0 100\r\n"+strings.Repeat("v", 100)+"\r\nget a\r\n")
	if want := "STORED\r\nSERVER_ERROR out of memory storing object\r\nEND\r\n"; got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestConnectionLimit(t *testing.T) {
	addr, stop := start(t, Config{MaxConnections: 2})
	version := func(c net.Conn) error {
		if _, err := io.WriteString(c, "version\r\n"); err != nil {
			return err
		}
		_, err := bufio.NewReader(c).ReadString('\n')
		return err
	}
	a, b := dial(t, addr), dial(t, addr)
	for _, c := range []net.Conn{a, b} {
		if err := version(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := version(dial(t, addr)); err == nil {
		t.Error("a third connection was served")
	}
	a.Close()
	deadline := time.Now().Add(10 * time.Second)
	for version(dial(t, addr)) != nil { // the server may not have noticed the end of a yet
		if time.Now().After(deadline) {
			t.Fatal("no connection is accepted after one was closed")
		}
	}
	if r := stop(); r.Refused == 0 || r.Connections != 3 {
		t.Errorf("accepted %d, refused %d; want 3 and some", r.Connections, r.Refused)
	}
}

// TestSlowReader: if a client requests much and reads nothing, the server must not store the
// answers.
func TestSlowReader(t *testing.T) {
	const value = 256 << 10
	s := &Server{cfg: Config{MaxValue: 1 << 20}, store: newStore(1 << 30)}
	w := &worker{Server: s}
	if !s.store.set([]byte("a"), make([]byte, value), 0, 0) {
		t.Fatal("no room")
	}
	c := &conn{in: []byte("get" + strings.Repeat(" a", 500) + "\r\nget a\r\n")}
	total := 0
	for range 501 * 2 {
		for w.answer(c) {
		}
		if len(c.out) > outLimit+value+100 {
			t.Fatalf("%d bytes of output held", len(c.out))
		}
		total += len(c.out)
		c.out = c.out[:0] // the client has read
		if len(c.in) == 0 {
			break
		}
	}
	if want := 501*(len("VALUE a 0 262144\r\n")+value+2) + 2*len("END\r\n"); total != want {
		t.Errorf("%d bytes answered, want %d", total, want)
	}
}

func TestLargeValues(t *testing.T) {
	addr, _ := start(t, Config{})
	v := bytes.Repeat([]byte("0123456789abcdef"), 65536) // 1 MiB
	in := fmt.Sprintf("set a 0 0 %d\r\n%s\r\nget a a a a\r\n", len(v), v)
	one := fmt.Sprintf("VALUE a 0 %d\r\n%s\r\n", len(v), v)
	if got := talk(t, addr, in); got != "STORED\r\n"+strings.Repeat(one, 4)+"END\r\n" {
		t.Errorf("got %d bytes, %.40q...", len(got), got)
	}
}

// TestPipelinedLargeValues: requests that wait for room in the output must be answered as soon as
// there is room, even if no further request arrives.
func TestPipelinedLargeValues(t *testing.T) {
	addr, _ := start(t, Config{})
	v := strings.Repeat("v", 100_000)
	one := "VALUE a 0 100000\r\n" + v + "\r\nEND\r\n"
	got := talk(t, addr, "set a 0 0 100000\r\n"+v+"\r\n"+strings.Repeat("get a\r\n", 50))
	if want := "STORED\r\n" + strings.Repeat(one, 50); got != want {
		t.Errorf("%d bytes answered, want %d", len(got), len(want))
	}
}

func TestRunErrors(t *testing.T) {
	_, err := Run(t.Context(), Config{Address: "nowhere", Threads: -1, MaxConnections: -1, MaxMemory: -1, MaxValue: -1})
	errtest.Says(t, "all", err, "address", "threads", "maxConnections", "maxMemoryBytes", "maxValueBytes")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Run(t.Context(), Config{Address: l.Addr().String()}); err == nil {
		t.Error("address in use: no error")
	}
	bad := Config{Address: "127.0.0.1:0"}
	bad.CPUs = []int{-1}
	if _, err := Run(t.Context(), bad); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("impossible cpu: %v", err)
	}
}
