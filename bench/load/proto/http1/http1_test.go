// SPDX-License-Identifier: Apache-2.0

package http1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/load/proto"
	"github.com/niclane/niclane/bench/load/proto/prototest"
	"github.com/niclane/niclane/bench/part/errtest"
)

func codec(t testing.TB, paths ...Path) *Codec {
	if len(paths) == 0 {
		paths = []Path{{Path: "/a"}}
	}
	c, err := New("host:80", paths, []string{"Accept: */*"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func first(int) proto.Ticket { return proto.Ticket{} }

// TestAppend: the standard library must parse the requests.
func TestAppend(t *testing.T) {
	c := codec(t, Path{Path: "/a"}, Path{Path: "/b?c=d"})
	b := c.Append(c.Append(nil, proto.Ticket{}), proto.Ticket{Index: 1})
	r := bufio.NewReader(bytes.NewReader(b))
	for _, want := range []string{"/a", "/b?c=d"} {
		q, err := http.ReadRequest(r)
		if err != nil {
			t.Fatal(err)
		}
		if q.URL.String() != want || q.Host != "host:80" || q.Header.Get("Accept") != "*/*" || q.Method != "GET" {
			t.Errorf("got %s %s of %s with %v", q.Method, q.URL, q.Host, q.Header)
		}
	}
	if r.Buffered() > 0 {
		t.Errorf("%d bytes too many", r.Buffered())
	}
}

func TestPick(t *testing.T) {
	c := codec(t, Path{Path: "/a", Weight: 1}, Path{Path: "/b", Weight: 2}, Path{Path: "/c", Weight: 1})
	for random, want := range map[uint64]uint32{0: 0, 1<<30 - 1: 0, 1 << 30: 1, 3<<30 - 1: 1, 3 << 30: 2,
		1<<32 - 1: 2} {
		if got := c.Pick(random<<32 | 12345).Index; got != want {
			t.Errorf("%d/2^32: path %d, want %d", random, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, tt := range []struct {
		name, in string
		want     []proto.Reply
		problem  string
		err      error
	}{
		{name: "length", in: ok + "Content-Length: 3\r\n\r\nabc",
			want: []proto.Reply{{Used: 41, Status: 200, Payload: 3}}},
		{name: "twice, headers alike", in: strings.Repeat(ok+"content-length:3\r\n\r\nabc", 2),
			want: []proto.Reply{{Used: 40, Status: 200, Payload: 3}, {Used: 40, Status: 200, Payload: 3}}},
		{name: "twice, headers differ", in: ok + "Content-Length: 3\r\n\r\nabc" + ok + "Content-Length: 1\r\n\r\na",
			want: []proto.Reply{{Used: 41, Status: 200, Payload: 3}, {Used: 39, Status: 200, Payload: 1}}},
		{name: "length twice, equal", in: ok + "Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
			want: []proto.Reply{{Used: 57, Status: 200}}},
		{name: "chunked", in: ok + "Transfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
			want: []proto.Reply{{Used: 79, Status: 200, Payload: 13}}},
		{name: "chunked with trailer", in: ok + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n",
			want: []proto.Reply{{Used: 58, Status: 200}}},
		{name: "no content", in: "HTTP/1.1 204 No Content\r\n\r\n", want: []proto.Reply{{Used: 27, Status: 204}}},
		{name: "reason missing", in: "HTTP/1.1 204\r\n\r\n", want: []proto.Reply{{Used: 16, Status: 204}}},
		{name: "interim", in: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok + "Content-Length: 1\r\n\r\na",
			want: []proto.Reply{{Used: 76, Status: 200, Payload: 1}}},
		{name: "close", in: ok + "Connection: foo, Close\r\nContent-Length: 0\r\n\r\n",
			want: []proto.Reply{{Used: 62, Status: 200, Close: true}}},
		{name: "HTTP/1.0", in: "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
			want: []proto.Reply{{Used: 38, Status: 200, Close: true}}},
		{name: "HTTP/1.0 keep-alive", in: "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n",
			want: []proto.Reply{{Used: 62, Status: 200}}},
		{name: "not found", in: "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
			want: []proto.Reply{{Used: 45, Status: 404, Outcome: proto.Failed}}, problem: "/a: status 404, want 2xx"},
		{name: "not modified", in: "HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n",
			want: []proto.Reply{{Used: 49, Status: 304, Outcome: proto.Failed}}, problem: "/a: status 304, want 2xx"},
		{name: "until close", in: ok + "\r\nabc"},
		{name: "half a header", in: ok + "Content-Le"},
		{name: "half a body", in: ok + "Content-Length: 3\r\n\r\nab"},
		{name: "half a chunk", in: ok + "Transfer-Encoding: chunked\r\n\r\n3\r\nab"},
		{name: "no last chunk", in: ok + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n"},
		{name: "not HTTP", in: "VALUE k 0 1\r\n", err: errStatus},
		{name: "HTTP/2", in: "HTTP/2.0 200 OK\r\n\r\n", err: errStatus},
		{name: "no status", in: "HTTP/1.1 OK\r\n\r\n", err: errStatus},
		{name: "switching", in: "HTTP/1.1 101 Switching Protocols\r\n\r\n", err: errSwitched},
		{name: "no colon", in: ok + "Content-Length 3\r\n\r\n", err: errField},
		{name: "folded", in: ok + "A: b\r\n c: d\r\n\r\n", err: errField},
		{name: "blank before colon", in: ok + "Content-Length : 3\r\n\r\n", err: errField},
		{name: "two lengths", in: ok + "Content-Length: 3\r\nContent-Length: 4\r\n\r\n", err: errLengths},
		{name: "length list", in: ok + "Content-Length: 3, 3\r\n\r\n", err: errLengths},
		{name: "negative length", in: ok + "Content-Length: -3\r\n\r\n", err: errLengths},
		{name: "length and chunks", in: ok + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", err: errBoth},
		{name: "gzip", in: ok + "Transfer-Encoding: gzip, chunked\r\n\r\n", err: errCoding},
		{name: "chunked in HTTP/1.0", in: "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			err: errOld},
		{name: "lone line feed", in: ok + "A: b\nC: d\r\n\r\n", err: errField},
		{name: "lone line feed after the status", in: "HTTP/1.1 200 OK\nA: b\r\n\r\n", err: errStatus},
		{name: "chunk size", in: ok + "Transfer-Encoding: chunked\r\n\r\nx\r\n", err: errChunk},
		{name: "chunk size too large", in: ok + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
			err: errChunk},
		{name: "chunk longer than it says", in: ok + "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", err: errChunk},
		{name: "bare newline in chunk", in: ok + "Transfer-Encoding: chunked\r\n\r\n1\na", err: errChunk},
		{name: "endless header", in: ok + strings.Repeat("A: b\r\n", 12000), err: errHead},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := prototest.Same(t, codec(t), []byte(tt.in), first)
			if !errors.Is(got.Err, tt.err) {
				t.Fatalf("error %v, want %v", got.Err, tt.err)
			}
			for i := range tt.want {
				if tt.want[i].Outcome == proto.Incomplete {
					tt.want[i].Outcome = proto.Good
				}
			}
			if a, b := fmt.Sprint(got.Replies), fmt.Sprint(tt.want); a != b {
				t.Errorf("got %s, want %s", a, b)
			}
			if problem := strings.Join(got.Problems, ""); problem != tt.problem {
				t.Errorf("problem %q, want %q", problem, tt.problem)
			}
		})
	}
}

// TestEnd: a body without a length ends with the connection; no other body does.
func TestEnd(t *testing.T) {
	for in, want := range map[string]proto.Reply{
		"HTTP/1.1 200 OK\r\n\r\nabc":                      {Outcome: proto.Good, Status: 200, Payload: 3, Close: true},
		"HTTP/1.1 200 OK\r\n\r\n":                         {Outcome: proto.Good, Status: 200, Close: true},
		"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc": {},
		"HTTP/1.1 200 OK\r\n":                             {},
		"":                                                {},
	} {
		p := codec(t).Parser()
		if _, err := p.Parse([]byte(in), proto.Ticket{}); err != nil {
			t.Fatal(err)
		}
		if got := p.End(); got != want {
			t.Errorf("%q: got %+v, want %+v", in, got, want)
		}
	}
}

func TestWanted(t *testing.T) {
	c := codec(t, Path{Path: "/a", Bytes: 3}, Path{Path: "/b", Status: 404})
	in := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab" + "HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n" +
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc" + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	got := prototest.Same(t, c, []byte(in), func(i int) proto.Ticket { return proto.Ticket{Index: uint32(i % 2)} })
	if got.Err != nil || len(got.Replies) != 4 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []proto.Outcome{proto.Failed, proto.Good, proto.Good, proto.Failed} {
		if got.Replies[i].Outcome != want {
			t.Errorf("reply %d: outcome %d, want %d", i, got.Replies[i].Outcome, want)
		}
	}
	if p := strings.Join(got.Problems, "; "); p != "/a: got 2 bytes, want 3; /b: status 200, want 404" {
		t.Error(p)
	}
}

func TestRefusals(t *testing.T) {
	_, err := New("a b", []Path{{Path: "x"}, {Path: "/", Weight: -1, Bytes: -1, Status: 7}, {Path: "/\r\nX: y"}},
		[]string{"Host: x", "no colon", "A: b\r\nC: d"})
	errtest.Says(t, "all", err, "host", "paths[0].path", "paths[1].weight", "paths[1].bytes",
		"paths[1].status", "paths[2].path", "headers[0]", "headers[1]", "headers[2]")
	if _, err := New("h", nil, nil); err == nil {
		t.Error("no paths: no error")
	}
}

// FuzzParse: the replies must not depend on the pieces in which the bytes arrive. If the standard
// library accepts a response too, it must find the same body.
func FuzzParse(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 204 X\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nA: " +
		"b\r\n\r\n"))
	f.Add([]byte("HTTP/1.0 404 Not Found\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := prototest.Same(t, codec(t), b, first)
		if len(got.Replies) == 0 {
			return
		}
		r := bufio.NewReader(bytes.NewReader(b[:got.Replies[0].Used]))
		q := &http.Request{Method: "GET"}
		resp, err := http.ReadResponse(r, q)
		for err == nil && resp.StatusCode < 200 {
			resp, err = http.ReadResponse(r, q)
		}
		if err != nil {
			return // the standard library refuses fields that parse ignores
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if err == nil && (n != got.Replies[0].Payload || resp.StatusCode != got.Replies[0].Status) {
			t.Fatalf("%q: status %d, %d bytes; net/http: %d, %d", b, got.Replies[0].Status, got.Replies[0].Payload,
				resp.StatusCode, n)
		}
	})
}
