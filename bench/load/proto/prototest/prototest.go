// SPDX-License-Identifier: Apache-2.0

// Package prototest tests parsers of package proto: it passes them a stream in pieces.
package prototest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/load/proto"
)

// A Transcript is the result of parsing a stream.
type Transcript struct {
	Replies  []proto.Reply // complete replies; Used is the size of the whole reply
	Problems []string      // problems of the replies that failed
	Left     int           // bytes after the last complete reply
	Err      error
}

// Feed passes stream to p as the generator does: in pieces of at most size bytes. It puts what p
// did not consume of a piece before the next piece. If skip is set, Feed skips the bytes that p
// allows to skip. Request i is ask(i).
func Feed(t testing.TB, p proto.Parser, stream []byte, size int, skip bool, ask func(i int) proto.Ticket) Transcript {
	t.Helper()
	var got Transcript
	var stash []byte
	used := 0 // bytes of the reply that is being read
	for len(stream) > 0 && got.Err == nil {
		if n := min(int(min(p.Skip(), 1<<30)), len(stream)); skip && n > 0 && len(stash) == 0 {
			p.Skipped(int64(n))
			used += n
			stream = stream[n:]
			continue
		}
		n := min(size, len(stream))
		b := append(stash, stream[:n]...)
		stream = stream[n:]
		for len(b) > 0 {
			r, err := p.Parse(b, ask(len(got.Replies)))
			if err != nil {
				got.Err = err
				break
			}
			if r.Used < 0 || r.Used > len(b) || r.Outcome != proto.Incomplete && r.Used+used == 0 {
				t.Fatalf("%d of %d bytes used, outcome %d", r.Used, len(b), r.Outcome)
			}
			b = b[r.Used:]
			used += r.Used
			if r.Outcome == proto.Incomplete {
				break
			}
			if r.Outcome == proto.Failed {
				got.Problems = append(got.Problems, p.Problem())
			}
			r.Used, used = used, 0
			got.Replies = append(got.Replies, r)
		}
		stash = append([]byte(nil), b...)
	}
	got.Left = used + len(stash)
	return got
}

// Same passes stream as a whole, in pieces of several sizes and with skipping, to parsers of
// codec. It fails unless all results are equal, and returns the result.
func Same(t testing.TB, codec proto.Codec, stream []byte, ask func(i int) proto.Ticket) Transcript {
	t.Helper()
	whole := Feed(t, codec.Parser(), stream, max(len(stream), 1), false, ask)
	for _, size := range []int{1, 2, 7, 1000} {
		if len(stream) > 1000*size { // takes quadratic time and tests nothing new
			continue
		}
		for _, skip := range []bool{false, true} {
			got := Feed(t, codec.Parser(), stream, size, skip, ask)
			if a, b := fmt.Sprint(whole.Replies, whole.Problems, whole.Err),
				fmt.Sprint(got.Replies, got.Problems, got.Err); a != b {
				t.Fatalf("%.200q\nwhole: %s\nby %d (skip %v): %s", stream, a, size, skip, b)
			}
			if got.Left != whole.Left && whole.Err == nil {
				t.Fatalf("%.200q: %d bytes left, by %d (skip %v): %d", stream, whole.Left, size, skip, got.Left)
			}
		}
	}
	return whole
}

// Keys returns ten keys, "k0" to "k9", with the values "k0c" to "k9c".
func Keys(t testing.TB) *proto.Keys {
	t.Helper()
	k, err := proto.NewKeys(10, 2, 3, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Get and Set are requests for key 1.
func Get(int) proto.Ticket { return proto.Ticket{Index: 1} }
func Set(int) proto.Ticket { return proto.Ticket{Index: 1, Op: proto.Set} }

// A Case is a stream and the one reply that a parser finds in it.
type Case struct {
	Name, In string
	Ask      func(int) proto.Ticket // nil: Get
	Outcome  proto.Outcome          // Incomplete: there is no reply
	Used     int
	Problem  string
	Err      error
}

// Run runs each case with parsers of new codecs.
func Run(t *testing.T, codec func(testing.TB) proto.Codec, cases []Case) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			ask := c.Ask
			if ask == nil {
				ask = Get
			}
			got := Same(t, codec(t), []byte(c.In), ask)
			if !errors.Is(got.Err, c.Err) {
				t.Fatalf("error %v, want %v", got.Err, c.Err)
			}
			if c.Outcome == proto.Incomplete {
				if len(got.Replies) > 0 {
					t.Errorf("complete: %+v", got.Replies)
				}
				return
			}
			if len(got.Replies) != 1 || got.Replies[0].Outcome != c.Outcome || got.Replies[0].Used != c.Used {
				t.Errorf("got %+v, want outcome %d of %d bytes", got.Replies, c.Outcome, c.Used)
			}
			if problem := strings.Join(got.Problems, ""); problem != c.Problem {
				t.Errorf("problem %q, want %q", problem, c.Problem)
			}
		})
	}
}
