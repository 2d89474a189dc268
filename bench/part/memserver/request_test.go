// SPDX-License-Identifier: Apache-2.0

package memserver

import (
	"bytes"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	long := strings.Repeat("k", 250)
	for _, tt := range []struct {
		name, in string
		verb     verb
		size     int
		reply    string
		check    func(r request) bool
	}{
		{name: "get", in: "get a\r\nget b\r\n", verb: verbGet, size: 7,
			check: func(r request) bool { return len(r.keys) == 1 && string(r.keys[0]) == "a" }},
		{name: "bare newline", in: "get a\n", verb: verbGet, size: 6},
		{name: "several keys, spaces", in: "gets  a   bb c \r\n", verb: verbGets, size: 17,
			check: func(r request) bool { return len(r.keys) == 3 && string(r.keys[1]) == "bb" }},
		{name: "longest key", in: "get " + long + "\r\n", verb: verbGet, size: 256},
		{name: "key too long", in: "get " + long + "k\r\n", verb: verbBad, size: 257, reply: replyFormat},
		{name: "control character", in: "get a\x01\r\n", verb: verbBad, size: 8, reply: replyFormat},
		{name: "get without key", in: "get\r\n", verb: verbBad, size: 5, reply: replyError},
		{name: "set", in: "set a 5 0 3\r\nx\r\n\r\n", verb: verbSet, size: 18,
			check: func(r request) bool { return string(r.value) == "x\r\n" && r.flags == 5 }},
		{name: "set noreply", in: "set a 0 0 0 noreply\r\n\r\n", verb: verbSet, size: 23,
			check: func(r request) bool { return r.noreply && len(r.value) == 0 }},
		{name: "set, data missing", in: "set a 0 0 3\r\nab"},
		{name: "set, data too long", in: "set a 0 0 1\r\nabc\r\n", verb: verbBad, size: 16, reply: replyChunk,
			check: func(r request) bool { return r.fatal }},
		{name: "set too large", in: "set a 0 0 101\r\n", verb: verbBad, size: 15, reply: replyTooBig,
			check: func(r request) bool { return r.skip == 103 }},
		{name: "set with bad key", in: "set " + long + "k 0 0 3\r\nabc\r\n", verb: verbBad, size: 263,
			reply: replyFormat, check: func(r request) bool { return r.skip == 5 }},
		{name: "set, flags negative", in: "set a -1 0 1\r\n", verb: verbBad, size: 14, reply: replyFormat},
		{name: "set, length negative", in: "set a 0 0 -1\r\n", verb: verbBad, size: 14, reply: replyFormat},
		{name: "set, length overflows", in: "set a 0 0 99999999999999999999\r\n", verb: verbBad, size: 32,
			reply: replyFormat},
		{name: "set, unknown option", in: "set a 0 0 1 maybe\r\n", verb: verbBad, size: 19, reply: replyFormat},
		{name: "delete", in: "delete a\r\n", verb: verbDelete, size: 10},
		{name: "delete 0 noreply", in: "delete a 0 noreply\r\n", verb: verbDelete, size: 20,
			check: func(r request) bool { return r.noreply }},
		{name: "delete with time", in: "delete a 5\r\n", verb: verbBad, size: 12, reply: replyFormat},
		{name: "stats", in: "stats\r\n", verb: verbStats, size: 7},
		{name: "version", in: "version\r\n", verb: verbVersion, size: 9},
		{name: "quit", in: "quit\r\n", verb: verbQuit, size: 6},
		{name: "empty line", in: "\r\n", verb: verbBad, size: 2, reply: replyError},
		{name: "unknown", in: "flush_all\r\n", verb: verbBad, size: 11, reply: replyError},
		{name: "nothing", in: ""},
		{name: "half a line", in: "get a"},
		{name: "endless line", in: strings.Repeat("g", maxLine), verb: verbBad, size: maxLine, reply: replyTooLong,
			check: func(r request) bool { return r.fatal }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := parse([]byte(tt.in), 100, nil)
			if r.verb != tt.verb || r.size != tt.size || r.reply != tt.reply {
				t.Errorf("got verb %d size %d reply %q, want %d %d %q", r.verb, r.size, r.reply, tt.verb, tt.size,
					tt.reply)
			}
			if tt.check != nil && !tt.check(r) {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"get a b c\r\n", "set a 1 2 3\r\nabc\r\n", "set a 0 0 2147483647 noreply\r\n",
		"delete a 0 noreply\r\n", "gets \xff\r\n", "stats\r\nquit\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole := bytes.Clone(b)
		r := parse(b, 1000, nil)
		if !bytes.Equal(b, whole) {
			t.Fatal("parse changed its input")
		}
		if r.verb == verbNone {
			if len(b) > maxLine+1000+2 {
				t.Fatalf("wants more than the %d bytes it has", len(b))
			}
			return
		}
		if r.size <= 0 || r.size > len(b) || r.skip < 0 {
			t.Fatalf("size %d, skip %d of %d bytes", r.size, r.skip, len(b))
		}
		if len(r.value) > 1000 || len(r.key) > maxKey {
			t.Fatalf("value of %d, key of %d bytes", len(r.value), len(r.key))
		}
		for _, k := range r.keys {
			if !goodKey(k) {
				t.Fatalf("key %q", k)
			}
		}
		if (r.verb == verbBad) != (r.reply != "") {
			t.Fatalf("verb %d with reply %q", r.verb, r.reply)
		}
	})
}

// FuzzConversation: however TCP splits a conversation, the answers must be the same, and the
// memory must stay limited.
func FuzzConversation(f *testing.F) {
	f.Add([]byte("set a 1 0 3\r\nabc\r\nget a b\r\ndelete a\r\nquit\r\nget a\r\n"), uint8(3))
	f.Add([]byte("set a 0 0 2000\r\nxx\r\nget a\r\n"), uint8(1))
	f.Add([]byte("set a 0 0 2\r\nabcd\r\nversion\r\nstats\r\n"), uint8(7))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		const maxValue = 1000
		talk := func(step int) (string, bool) {
			s := &Server{cfg: Config{MaxValue: maxValue, MaxMemory: 4000}, store: newStore(4000)}
			w, c := &worker{Server: s}, &conn{}
			var out strings.Builder
			for rest := b; ; {
				n := min(step, len(rest))
				c.in = append(c.in, rest[:n]...)
				rest = rest[n:]
				for w.answer(c) || len(c.out) >= outLimit {
					if len(c.out) > outLimit+maxLine+maxValue {
						t.Fatalf("%d bytes of output held", len(c.out))
					}
					out.Write(c.out)
					c.out = c.out[:0]
				}
				out.Write(c.out)
				c.out = c.out[:0]
				if len(c.in) > maxLine+maxValue+2+step {
					t.Fatalf("%d bytes of input held", len(c.in))
				}
				if s.store.used.Load() > 4000 || s.store.used.Load() < 0 {
					t.Fatalf("%d bytes stored", s.store.used.Load())
				}
				if n == 0 || c.quit {
					return out.String(), c.quit
				}
			}
		}
		whole, quit := talk(max(1, len(b)))
		parts, quitParts := talk(1 + int(piece))
		if len(b) < maxLine && (whole != parts || quit != quitParts) {
			t.Errorf("in one piece %q (%v)\nin pieces of %d %q (%v)", whole, quit, 1+int(piece), parts, quitParts)
		}
	})
}
