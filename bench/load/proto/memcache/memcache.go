// SPDX-License-Identifier: Apache-2.0

// Package memcache writes gets and sets of memcached's text protocol and reads
// their replies (doc/protocol.txt of memcached).
package memcache

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/niclane/niclane/bench/load/proto"
)

// maxLine is the longest status line that is accepted, bytes. memcached's value headers and error
// messages are shorter than 300 bytes.
const maxLine = 1024

// Errors after which the parser does not know where the next reply begins.
var (
	errLine  = errors.New("reply line too long")
	errReply = errors.New("not a reply to the request")
	errSize  = errors.New("value too large or its size not a number")
	errEnd   = errors.New("value not followed by END")
)

// A Codec writes gets and sets of the keys of one proto.Keys.
type Codec struct {
	keys *proto.Keys
	size []byte // " 0 0 BYTES\r\n" of a set
}

// New returns a codec for k.
func New(k *proto.Keys) *Codec {
	return &Codec{keys: k, size: fmt.Appendf(nil, " 0 0 %d\r\n", k.ValueBytes())}
}

// Pick implements proto.Codec.
func (c *Codec) Pick(random uint64) proto.Ticket { return c.keys.Pick(random) }

// Append implements proto.Codec.
func (c *Codec) Append(b []byte, t proto.Ticket) []byte {
	if t.Op == proto.Get {
		b = append(b, "get "...)
		b = append(b, c.keys.Key(t.Index)...)
		return append(b, '\r', '\n')
	}
	b = append(b, "set "...)
	b = append(b, c.keys.Key(t.Index)...)
	b = append(b, c.size...)
	b = c.keys.AppendValue(b, t.Index)
	return append(b, '\r', '\n')
}

// Parser implements proto.Codec.
func (c *Codec) Parser() proto.Parser { return &parser{keys: c.keys} }

type problem uint8

const (
	none problem = iota
	serverError
	wrongKey
	wrongValue
)

// parser is between two replies while inValue is false. Otherwise it is inside a reply: in its value,
// which has size bytes, or in the trailer after it. at is how many bytes of both it has consumed.
type parser struct {
	keys     *proto.Keys
	inValue  bool
	size, at int64
	problem  problem
	index    uint32
	text     []byte // text of a server error, or the wrong key
}

var (
	lineEnd  = []byte("\r\n")
	trailer  = []byte("\r\nEND\r\n")
	prefix   = []byte("VALUE ")
	endLine  = []byte("END\r\n")
	stored   = []byte("STORED\r\n")
	failures = [][]byte{[]byte("ERROR"), []byte("CLIENT_ERROR"), []byte("SERVER_ERROR")}
)

func (p *parser) Parse(b []byte, t proto.Ticket) (proto.Reply, error) {
	if p.inValue {
		return p.value(b, 0, t)
	}
	p.problem = none
	if t.Op == proto.Get && bytes.HasPrefix(b, endLine) {
		return proto.Reply{Used: len(endLine), Outcome: proto.Miss}, nil
	}
	if t.Op == proto.Set && bytes.HasPrefix(b, stored) {
		return proto.Reply{Used: len(stored), Outcome: proto.Good}, nil
	}
	n := bytes.Index(b[:min(len(b), maxLine)], lineEnd)
	if n < 0 {
		if len(b) >= maxLine {
			return proto.Reply{}, errLine
		}
		return proto.Reply{}, nil
	}
	line := b[:n]
	if t.Op == proto.Set || !bytes.HasPrefix(line, prefix) {
		for _, f := range failures {
			if bytes.HasPrefix(line, f) && (len(line) == len(f) || line[len(f)] == ' ') {
				p.fail(serverError, line)
				return proto.Reply{Used: n + 2, Outcome: proto.Failed}, nil
			}
		}
		return proto.Reply{}, errReply
	}
	key, rest, ok := bytes.Cut(line[len(prefix):], []byte(" "))
	if !ok || len(key) == 0 {
		return proto.Reply{}, errReply
	}
	flags, rest, ok := bytes.Cut(rest, []byte(" "))
	if _, good := proto.Number(flags, 1<<32-1); !ok || !good {
		return proto.Reply{}, errReply
	}
	length, _, _ := bytes.Cut(rest, []byte(" ")) // a cas value may follow
	size, ok := proto.Number(length, proto.MaxValueBytes)
	if !ok {
		return proto.Reply{}, errSize
	}
	p.inValue, p.size, p.at, p.index = true, size, 0, t.Index
	switch {
	case !bytes.Equal(key, p.keys.Key(t.Index)):
		p.fail(wrongKey, key)
	case size != int64(p.keys.ValueBytes()):
		p.fail(wrongValue, nil)
	}
	return p.value(b, n+2, t)
}

// value consumes the bytes of b from used on: those of the value, then those of the trailer.
func (p *parser) value(b []byte, used int, t proto.Ticket) (proto.Reply, error) {
	if n := min(p.size-p.at, int64(len(b)-used)); n > 0 {
		if p.problem == none && !p.keys.Matches(b[used:used+int(n)], t.Index, int(p.at)) {
			p.fail(wrongValue, nil)
		}
		p.at += n
		used += int(n)
	}
	if p.at < p.size {
		return proto.Reply{Used: used}, nil
	}
	done := p.at - p.size
	n := min(len(trailer)-int(done), len(b)-used)
	if !bytes.Equal(b[used:used+n], trailer[done:int(done)+n]) {
		return proto.Reply{}, errEnd
	}
	p.at += int64(n)
	r := proto.Reply{Used: used + n}
	if p.at == p.size+int64(len(trailer)) {
		p.inValue = false
		r.Outcome, r.Payload = proto.Good, p.size
		if p.problem != none {
			r.Outcome = proto.Failed
		}
	}
	return r, nil
}

func (p *parser) fail(what problem, text []byte) {
	p.problem = what
	p.text = append(p.text[:0], text...)
}

// Skip and Skipped skip nothing: all bytes of a value are compared. No reply ends with the
// connection, so End returns Incomplete.
func (p *parser) Skip() int64      { return 0 }
func (p *parser) Skipped(int64)    {}
func (p *parser) End() proto.Reply { return proto.Reply{} }

func (p *parser) Problem() string {
	key := string(p.keys.Key(p.index))
	switch p.problem {
	case serverError:
		return string(p.text)
	case wrongKey:
		return fmt.Sprintf("asked for %s, got %q", key, p.text)
	case wrongValue:
		return key + ": got " + strconv.FormatInt(p.size, 10) + " bytes that are not its value of " +
			strconv.Itoa(p.keys.ValueBytes()) + " bytes"
	}
	return ""
}
