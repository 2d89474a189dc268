// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestParseReply(t *testing.T) {
	for _, tt := range []struct {
		name, in   string
		kind       kind
		size       int
		key, value string
		err        error
	}{
		{name: "hit", in: "VALUE k1 0 3\r\nabc\r\nEND\r\n", kind: hit, size: 24, key: "k1", value: "abc"},
		{name: "hit and more", in: "VALUE k1 0 3\r\nabc\r\nEND\r\nEND\r\n", kind: hit, size: 24, key: "k1", value: "abc"},
		{name: "hit with cas", in: "VALUE k1 5 1 77\r\nx\r\nEND\r\n", kind: hit, size: 25, key: "k1", value: "x"},
		{name: "value looks like an end", in: "VALUE k 0 5\r\nEND\r\n\r\nEND\r\n", kind: hit, size: 25, key: "k", value: "END\r\n"},
		{name: "empty value", in: "VALUE k 0 0\r\n\r\nEND\r\n", kind: hit, size: 20, key: "k"},
		{name: "miss", in: "END\r\n", kind: miss, size: 5},
		{name: "server error", in: "SERVER_ERROR out of memory\r\nEND\r\n", kind: failure, size: 28},
		{name: "error", in: "ERROR\r\n", kind: failure, size: 7},
		{name: "nothing", in: ""},
		{name: "half an end", in: "EN"},
		{name: "end without line end", in: "END\r"},
		{name: "half a header", in: "VALUE k1 0 3\r"},
		{name: "half a value", in: "VALUE k1 0 3\r\nab"},
		{name: "no end yet", in: "VALUE k1 0 3\r\nabc\r\nEND"},
		{name: "not memcached", in: "HTTP/1.1 400 Bad Request\r\n", err: errReply},
		{name: "stored", in: "STORED\r\n", err: errReply},
		{name: "no key", in: "VALUE  0 3\r\n", err: errReply},
		{name: "no flags", in: "VALUE k\r\n", err: errReply},
		{name: "flags not a number", in: "VALUE k x 3\r\n", err: errReply},
		{name: "size not a number", in: "VALUE k 0 -3\r\n", err: errSize},
		{name: "no size", in: "VALUE k 0 \r\n", err: errSize},
		{name: "huge", in: "VALUE k 0 99999999999999999999\r\n", err: errSize},
		{name: "larger than asked for", in: "VALUE k 0 101\r\n", err: errSize},
		{name: "longer than it says", in: "VALUE k1 0 3\r\nabcd\r\nEND\r\n", err: errEnd},
		{name: "two values", in: "VALUE k1 0 1\r\na\r\nVALUE k2 0 1\r\nb\r\nEND\r\n", err: errEnd},
		{name: "endless line", in: strings.Repeat("x", maxLine), err: errLine},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseReply([]byte(tt.in), 100)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if err == nil && (got.kind != tt.kind || got.size != tt.size || string(got.key) != tt.key || string(got.value) != tt.value) {
				t.Errorf("got kind %d size %d key %q value %q", got.kind, got.size, got.key, got.value)
			}
		})
	}
}

// However the bytes arrive, the same replies must come out, and never more
// than was received.
func FuzzParseReply(f *testing.F) {
	f.Add([]byte("VALUE k1 0 3\r\nabc\r\nEND\r\nEND\r\nERROR\r\n"))
	f.Add([]byte("VALUE k 4294967295 0\r\n\r\nEND\r\n"))
	f.Add([]byte("SERVER_ERROR x\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseReply(b, 4096)
		if err != nil {
			return
		}
		if r.kind == incomplete {
			if r.size != 0 {
				t.Fatalf("incomplete of size %d", r.size)
			}
			return
		}
		if r.size <= 0 || r.size > len(b) {
			t.Fatalf("size %d of %d bytes", r.size, len(b))
		}
		if r.kind == hit && (len(r.key) == 0 || !bytes.Contains(b[:r.size], r.value)) {
			t.Fatalf("key %q value %q not from the input", r.key, r.value)
		}
		// A prefix is incomplete or an error, never another reply.
		for i := range r.size {
			p, err := parseReply(b[:i], 4096)
			if err == nil && p.kind != incomplete {
				t.Fatalf("%q gives kind %d already after %d of %d bytes", b[:r.size], p.kind, i, r.size)
			}
		}
		// What follows makes no difference.
		q, err := parseReply(append(bytes.Clone(b[:r.size]), "VALUE"...), 4096)
		if err != nil || q.kind != r.kind || q.size != r.size {
			t.Fatalf("%q: kind %d size %d alone, kind %d size %d (%v) with more", b[:r.size], r.kind, r.size, q.kind, q.size, err)
		}
	})
}
