// SPDX-License-Identifier: Apache-2.0

package memcache

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
	if want := "get k1\r\nset k7 0 0 3\r\nk7c\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParse(t *testing.T) {
	prototest.Run(t, codec, []prototest.Case{
		{Name: "hit", In: "VALUE k1 0 3\r\nk1c\r\nEND\r\n", Outcome: proto.Good, Used: 24},
		{Name: "hit and more", In: "VALUE k1 0 3\r\nk1c\r\nEND\r\nEN", Outcome: proto.Good, Used: 24},
		{Name: "hit with cas", In: "VALUE k1 5 3 77\r\nk1c\r\nEND\r\n", Outcome: proto.Good, Used: 27},
		{Name: "another key", In: "VALUE k2 0 3\r\nk2c\r\nEND\r\n", Outcome: proto.Failed, Used: 24,
			Problem: `asked for k1, got "k2"`},
		{Name: "another value", In: "VALUE k1 0 3\r\nk2c\r\nEND\r\n", Outcome: proto.Failed, Used: 24,
			Problem: "k1: got 3 bytes that are not its value of 3 bytes"},
		{Name: "value looks like an end", In: "VALUE k1 0 5\r\nEND\r\n\r\nEND\r\n", Outcome: proto.Failed, Used: 26,
			Problem: "k1: got 5 bytes that are not its value of 3 bytes"},
		{Name: "empty value", In: "VALUE k1 0 0\r\n\r\nEND\r\n", Outcome: proto.Failed, Used: 21,
			Problem: "k1: got 0 bytes that are not its value of 3 bytes"},
		{Name: "miss", In: "END\r\n", Outcome: proto.Miss, Used: 5},
		{Name: "server error", In: "SERVER_ERROR out of memory\r\n", Outcome: proto.Failed, Used: 28,
			Problem: "SERVER_ERROR out of memory"},
		{Name: "error", In: "ERROR\r\n", Outcome: proto.Failed, Used: 7, Problem: "ERROR"},
		{Name: "stored", In: "STORED\r\n", Ask: prototest.Set, Outcome: proto.Good, Used: 8},
		{Name: "set refused", In: "SERVER_ERROR object too large for cache\r\n", Ask: prototest.Set,
			Outcome: proto.Failed, Used: 41, Problem: "SERVER_ERROR object too large for cache"},
		{Name: "nothing", In: ""},
		{Name: "half an end", In: "EN"},
		{Name: "end without line end", In: "END\r"},
		{Name: "half a header", In: "VALUE k1 0 3\r"},
		{Name: "half a value", In: "VALUE k1 0 3\r\nk1"},
		{Name: "no end yet", In: "VALUE k1 0 3\r\nk1c\r\nEND"},
		{Name: "not memcached", In: "HTTP/1.1 400 Bad Request\r\n", Err: errReply},
		{Name: "stored to a get", In: "STORED\r\n", Err: errReply},
		{Name: "end to a set", In: "END\r\n", Ask: prototest.Set, Err: errReply},
		{Name: "value to a set", In: "VALUE k1 0 3\r\nk1c\r\nEND\r\n", Ask: prototest.Set, Err: errReply},
		{Name: "almost an error", In: "ERRORS\r\n", Err: errReply},
		{Name: "no key", In: "VALUE  0 3\r\n", Err: errReply},
		{Name: "no flags", In: "VALUE k\r\n", Err: errReply},
		{Name: "flags not a number", In: "VALUE k x 3\r\n", Err: errReply},
		{Name: "size not a number", In: "VALUE k 0 -3\r\n", Err: errSize},
		{Name: "no size", In: "VALUE k 0 \r\n", Err: errSize},
		{Name: "huge", In: "VALUE k 0 99999999999999999999\r\n", Err: errSize},
		{Name: "larger than any", In: "VALUE k 0 1048577\r\n", Err: errSize},
		{Name: "longer than it says", In: "VALUE k1 0 3\r\nk1cd\r\nEND\r\n", Err: errEnd},
		{Name: "two values", In: "VALUE k1 0 3\r\nk1c\r\nVALUE k2 0 1\r\nb\r\nEND\r\n", Err: errEnd},
		{Name: "endless line", In: strings.Repeat("x", maxLine), Err: errLine},
	})
}

// FuzzParse: the replies must not depend on the pieces in which the bytes arrive.
func FuzzParse(f *testing.F) {
	f.Add([]byte("VALUE k1 0 3\r\nk1c\r\nEND\r\nSTORED\r\nERROR\r\nSTORED\r\nEND\r\n"))
	f.Add([]byte("VALUE k1 4294967295 0\r\n\r\nEND\r\n"))
	f.Add([]byte("SERVER_ERROR x\r\nSERVER_ERROR y\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		prototest.Same(t, codec(t), b, func(i int) proto.Ticket { return proto.Ticket{Index: 1, Op: proto.Op(i % 2)} })
	})
}
