// SPDX-License-Identifier: Apache-2.0

package resp

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
	if want := "*2\r\n$3\r\nGET\r\n$2\r\nk1\r\n*3\r\n$3\r\nSET\r\n$2\r\nk7\r\n$3\r\nk7c\r\n"; got != want {
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
		{name: "hit", in: "$3\r\nk1c\r\n$", outcome: proto.Good, used: 9},
		{name: "miss", in: "$-1\r\n", outcome: proto.Miss, used: 5},
		{name: "wrong value", in: "$3\r\nk2c\r\n", outcome: proto.Failed, used: 9,
			problem: "k1: got 3 bytes that are not its value of 3 bytes"},
		{name: "wrong size", in: "$0\r\n\r\n", outcome: proto.Failed, used: 6,
			problem: "k1: got 0 bytes that are not its value of 3 bytes"},
		{name: "error", in: "-LOADING in memory\r\n", outcome: proto.Failed, used: 20, problem: "LOADING in memory"},
		{name: "stored", in: "+OK\r\n", ask: set, outcome: proto.Good, used: 5},
		{name: "set refused", in: "-OOM\r\n", ask: set, outcome: proto.Failed, used: 6, problem: "OOM"},
		{name: "half a header", in: "$3\r"},
		{name: "half a value", in: "$3\r\nk1"},
		{name: "no end yet", in: "$3\r\nk1c\r"},
		{name: "status to a get", in: "+OK\r\n", err: errReply},
		{name: "bulk to a set", in: "$-1\r\n", ask: set, err: errReply},
		{name: "another status", in: "+QUEUED\r\n", ask: set, err: errReply},
		{name: "RESP3 null", in: "_\r\n", err: errReply},
		{name: "empty line", in: "\r\n", err: errReply},
		{name: "not redis", in: "HTTP/1.1 400 Bad Request\r\n", err: errReply},
		{name: "length not a number", in: "$x\r\n", err: errSize},
		{name: "negative length", in: "$-2\r\n", err: errSize},
		{name: "huge", in: "$1048577\r\n", err: errSize},
		{name: "longer than it says", in: "$3\r\nk1cx\r\n", err: errEnd},
		{name: "endless line", in: "-" + strings.Repeat("x", maxLine), err: errLine},
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
	f.Add([]byte("$3\r\nk1c\r\n+OK\r\n$-1\r\n-ERR x\r\n$0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		prototest.Same(t, codec(t), b, func(i int) proto.Ticket { return proto.Ticket{Index: 1, Op: proto.Op(i % 2)} })
	})
}
