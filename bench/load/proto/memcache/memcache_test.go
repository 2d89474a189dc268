// SPDX-License-Identifier: Apache-2.0

package memcache

import (
	"errors"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/load/proto"
	"github.com/niclane/niclane/bench/load/proto/prototest"
)

// codec of ten keys "k0" to "k9" with the values "k0c" to "k9c".
func codec(t testing.TB) *Codec {
	k, err := proto.NewKeys(10, 2, 3, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	return New(k)
}

func get(int) proto.Ticket { return proto.Ticket{Index: 1} }
func set(int) proto.Ticket { return proto.Ticket{Index: 1, Op: proto.Set} }

func TestAppend(t *testing.T) {
	c := codec(t)
	got := string(c.Append(c.Append(nil, get(0)), proto.Ticket{Index: 7, Op: proto.Set}))
	if want := "get k1\r\nset k7 0 0 3\r\nk7c\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		ask      func(int) proto.Ticket
		outcome  proto.Outcome
		used     int
		problem  string
		err      error
	}{
		{name: "hit", in: "VALUE k1 0 3\r\nk1c\r\nEND\r\n", outcome: proto.Good, used: 24},
		{name: "hit and more", in: "VALUE k1 0 3\r\nk1c\r\nEND\r\nEN", outcome: proto.Good, used: 24},
		{name: "hit with cas", in: "VALUE k1 5 3 77\r\nk1c\r\nEND\r\n", outcome: proto.Good, used: 27},
		{name: "another key", in: "VALUE k2 0 3\r\nk2c\r\nEND\r\n", outcome: proto.Failed, used: 24,
			problem: `asked for k1, got "k2"`},
		{name: "another value", in: "VALUE k1 0 3\r\nk2c\r\nEND\r\n", outcome: proto.Failed, used: 24,
			problem: "k1: got 3 bytes that are not its value of 3 bytes"},
		{name: "value looks like an end", in: "VALUE k1 0 5\r\nEND\r\n\r\nEND\r\n", outcome: proto.Failed, used: 26,
			problem: "k1: got 5 bytes that are not its value of 3 bytes"},
		{name: "empty value", in: "VALUE k1 0 0\r\n\r\nEND\r\n", outcome: proto.Failed, used: 21,
			problem: "k1: got 0 bytes that are not its value of 3 bytes"},
		{name: "miss", in: "END\r\n", outcome: proto.Miss, used: 5},
		{name: "server error", in: "SERVER_ERROR out of memory\r\n", outcome: proto.Failed, used: 28,
			problem: "SERVER_ERROR out of memory"},
		{name: "error", in: "ERROR\r\n", outcome: proto.Failed, used: 7, problem: "ERROR"},
		{name: "stored", in: "STORED\r\n", ask: set, outcome: proto.Good, used: 8},
		{name: "set refused", in: "SERVER_ERROR object too large for cache\r\n", ask: set, outcome: proto.Failed,
			used: 41, problem: "SERVER_ERROR object too large for cache"},
		{name: "nothing", in: ""},
		{name: "half an end", in: "EN"},
		{name: "end without line end", in: "END\r"},
		{name: "half a header", in: "VALUE k1 0 3\r"},
		{name: "half a value", in: "VALUE k1 0 3\r\nk1"},
		{name: "no end yet", in: "VALUE k1 0 3\r\nk1c\r\nEND"},
		{name: "not memcached", in: "HTTP/1.1 400 Bad Request\r\n", err: errReply},
		{name: "stored to a get", in: "STORED\r\n", err: errReply},
		{name: "end to a set", in: "END\r\n", ask: set, err: errReply},
		{name: "value to a set", in: "VALUE k1 0 3\r\nk1c\r\nEND\r\n", ask: set, err: errReply},
		{name: "almost an error", in: "ERRORS\r\n", err: errReply},
		{name: "no key", in: "VALUE  0 3\r\n", err: errReply},
		{name: "no flags", in: "VALUE k\r\n", err: errReply},
		{name: "flags not a number", in: "VALUE k x 3\r\n", err: errReply},
		{name: "size not a number", in: "VALUE k 0 -3\r\n", err: errSize},
		{name: "no size", in: "VALUE k 0 \r\n", err: errSize},
		{name: "huge", in: "VALUE k 0 99999999999999999999\r\n", err: errSize},
		{name: "larger than any", in: "VALUE k 0 1048577\r\n", err: errSize},
		{name: "longer than it says", in: "VALUE k1 0 3\r\nk1cd\r\nEND\r\n", err: errEnd},
		{name: "two values", in: "VALUE k1 0 3\r\nk1c\r\nVALUE k2 0 1\r\nb\r\nEND\r\n", err: errEnd},
		{name: "endless line", in: strings.Repeat("x", maxLine), err: errLine},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ask := tt.ask
			if ask == nil {
				ask = get
			}
			got := prototest.Same(t, codec(t), []byte(tt.in), ask)
			if !errors.Is(got.Err, tt.err) {
				t.Fatalf("error %v, want %v", got.Err, tt.err)
			}
			if tt.outcome == proto.Incomplete {
				if len(got.Replies) > 0 {
					t.Errorf("complete: %+v", got.Replies)
				}
				return
			}
			if len(got.Replies) != 1 || got.Replies[0].Outcome != tt.outcome || got.Replies[0].Used != tt.used {
				t.Errorf("got %+v, want outcome %d of %d bytes", got.Replies, tt.outcome, tt.used)
			}
			if problem := strings.Join(got.Problems, ""); problem != tt.problem {
				t.Errorf("problem %q, want %q", problem, tt.problem)
			}
		})
	}
}

// However the bytes arrive, the same replies must come out.
func FuzzParse(f *testing.F) {
	f.Add([]byte("VALUE k1 0 3\r\nk1c\r\nEND\r\nSTORED\r\nERROR\r\nSTORED\r\nEND\r\n"))
	f.Add([]byte("VALUE k1 4294967295 0\r\n\r\nEND\r\n"))
	f.Add([]byte("SERVER_ERROR x\r\nSERVER_ERROR y\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		prototest.Same(t, codec(t), b, func(i int) proto.Ticket { return proto.Ticket{Index: 1, Op: proto.Op(i % 2)} })
	})
}
