// SPDX-License-Identifier: Apache-2.0

package resp

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/load/proto"
	"github.com/niclane/niclane/bench/load/proto/prototest"
)

func codec(t testing.TB) proto.Codec { return New(prototest.Keys(t)) }

func TestAppend(t *testing.T) {
	c := codec(t)
	got := string(c.Append(c.Append(nil, prototest.Get(0)), proto.Ticket{Index: 7, Op: proto.Set}))
	if want := "*2\r\n$3\r\nGET\r\n$2\r\nk1\r\n*3\r\n$3\r\nSET\r\n$2\r\nk7\r\n$3\r\nk7c\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParse(t *testing.T) {
	prototest.Run(t, codec, []prototest.Case{
		{Name: "hit", In: "$3\r\nk1c\r\n$", Outcome: proto.Good, Used: 9},
		{Name: "miss", In: "$-1\r\n", Outcome: proto.Miss, Used: 5},
		{Name: "wrong value", In: "$3\r\nk2c\r\n", Outcome: proto.Failed, Used: 9,
			Problem: "k1: got 3 bytes that are not its value of 3 bytes"},
		{Name: "wrong size", In: "$0\r\n\r\n", Outcome: proto.Failed, Used: 6,
			Problem: "k1: got 0 bytes that are not its value of 3 bytes"},
		{Name: "error", In: "-LOADING in memory\r\n", Outcome: proto.Failed, Used: 20, Problem: "LOADING in memory"},
		{Name: "stored", In: "+OK\r\n", Ask: prototest.Set, Outcome: proto.Good, Used: 5},
		{Name: "set refused", In: "-OOM\r\n", Ask: prototest.Set, Outcome: proto.Failed, Used: 6, Problem: "OOM"},
		{Name: "half a header", In: "$3\r"},
		{Name: "half a value", In: "$3\r\nk1"},
		{Name: "no end yet", In: "$3\r\nk1c\r"},
		{Name: "status to a get", In: "+OK\r\n", Err: errReply},
		{Name: "bulk to a set", In: "$-1\r\n", Ask: prototest.Set, Err: errReply},
		{Name: "another status", In: "+QUEUED\r\n", Ask: prototest.Set, Err: errReply},
		{Name: "RESP3 null", In: "_\r\n", Err: errReply},
		{Name: "empty line", In: "\r\n", Err: errReply},
		{Name: "not redis", In: "HTTP/1.1 400 Bad Request\r\n", Err: errReply},
		{Name: "length not a number", In: "$x\r\n", Err: errSize},
		{Name: "negative length", In: "$-2\r\n", Err: errSize},
		{Name: "huge", In: "$1048577\r\n", Err: errSize},
		{Name: "longer than it says", In: "$3\r\nk1cx\r\n", Err: errEnd},
		{Name: "endless line", In: "-" + strings.Repeat("x", maxLine), Err: errLine},
	})
}

// FuzzParse: the replies must not depend on the pieces in which the bytes arrive.
func FuzzParse(f *testing.F) {
	f.Add([]byte("$3\r\nk1c\r\n+OK\r\n$-1\r\n-ERR x\r\n$0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		prototest.Same(t, codec(t), b, func(i int) proto.Ticket { return proto.Ticket{Index: 1, Op: proto.Op(i % 2)} })
	})
}
