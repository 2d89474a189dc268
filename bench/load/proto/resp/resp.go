// SPDX-License-Identifier: Apache-2.0

// Package resp writes GET and SET in RESP, the protocol of Redis, version 2, and reads their
// replies (redis.io, "Redis serialization protocol specification"). It never sends HELLO, so a
// server does not answer in version 3.
package resp

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/niclane/niclane/bench/load/proto"
)

// maxLine is the longest line that is accepted, bytes. The longest lines are texts of errors.
const maxLine = 4096

var (
	errLine  = errors.New("reply line too long")
	errReply = errors.New("not a reply to the request")
	errSize  = errors.New("bulk string too large or its length not a number")
	errEnd   = errors.New("bulk string not followed by CRLF")
)

// A Codec writes GET and SET for the keys of one proto.Keys.
type Codec struct {
	keys     *proto.Keys
	get, set []byte // up to the key
	value    []byte // between key and value of a SET
}

// New returns a codec for k.
func New(k *proto.Keys) *Codec {
	n := len(k.Key(0))
	return &Codec{
		keys:  k,
		get:   fmt.Appendf(nil, "*2\r\n$3\r\nGET\r\n$%d\r\n", n),
		set:   fmt.Appendf(nil, "*3\r\n$3\r\nSET\r\n$%d\r\n", n),
		value: fmt.Appendf(nil, "\r\n$%d\r\n", k.ValueBytes()),
	}
}

// Pick implements proto.Codec.
func (c *Codec) Pick(random uint64) proto.Ticket { return c.keys.Pick(random) }

// Append implements proto.Codec.
func (c *Codec) Append(b []byte, t proto.Ticket) []byte {
	if t.Op == proto.Get {
		b = append(b, c.get...)
		b = append(b, c.keys.Key(t.Index)...)
		return append(b, '\r', '\n')
	}
	b = append(b, c.set...)
	b = append(b, c.keys.Key(t.Index)...)
	b = append(b, c.value...)
	b = c.keys.AppendValue(b, t.Index)
	return append(b, '\r', '\n')
}

// Parser implements proto.Codec.
func (c *Codec) Parser() proto.Parser { return &parser{keys: c.keys} }

// parser is between two replies while inValue is false. Otherwise it is inside a reply: in its value,
// which has size bytes, or in the CRLF after it. at is how many bytes of both it has consumed.
type parser struct {
	keys     *proto.Keys
	inValue  bool
	size, at int64
	wrong    bool
	index    uint32
	text     []byte // text of an error reply
}

var (
	lineEnd = []byte("\r\n")
	okLine  = []byte("+OK\r\n")
)

func (p *parser) Parse(b []byte, t proto.Ticket) (proto.Reply, error) {
	if p.inValue {
		return p.value(b, 0, t)
	}
	if t.Op == proto.Set && bytes.HasPrefix(b, okLine) {
		return proto.Reply{Used: len(okLine), Outcome: proto.Good}, nil
	}
	n := bytes.Index(b[:min(len(b), maxLine)], lineEnd)
	if n < 0 {
		if len(b) >= maxLine {
			return proto.Reply{}, errLine
		}
		return proto.Reply{}, nil
	}
	switch {
	case n > 0 && b[0] == '-':
		p.wrong, p.text = false, append(p.text[:0], b[1:n]...)
		return proto.Reply{Used: n + 2, Outcome: proto.Failed}, nil
	case t.Op == proto.Set || n == 0 || b[0] != '$':
		return proto.Reply{}, errReply
	case string(b[1:n]) == "-1":
		return proto.Reply{Used: n + 2, Outcome: proto.Miss}, nil
	}
	size, ok := proto.Number(b[1:n], proto.MaxValueBytes)
	if !ok {
		return proto.Reply{}, errSize
	}
	p.inValue, p.size, p.at, p.index = true, size, 0, t.Index
	p.wrong = size != int64(p.keys.ValueBytes())
	return p.value(b, n+2, t)
}

func (p *parser) value(b []byte, used int, t proto.Ticket) (proto.Reply, error) {
	if n := min(p.size-p.at, int64(len(b)-used)); n > 0 {
		if !p.wrong && !p.keys.Matches(b[used:used+int(n)], t.Index, int(p.at)) {
			p.wrong = true
		}
		p.at += n
		used += int(n)
	}
	for ; p.at >= p.size && used < len(b); used++ {
		if b[used] != lineEnd[p.at-p.size] {
			return proto.Reply{}, errEnd
		}
		if p.at++; p.at == p.size+2 {
			p.inValue = false
			r := proto.Reply{Used: used + 1, Outcome: proto.Good, Payload: p.size}
			if p.wrong {
				r.Outcome = proto.Failed
			}
			return r, nil
		}
	}
	return proto.Reply{Used: used}, nil
}

// Skip and Skipped skip nothing: all bytes of a value are compared. No reply ends with the
// connection, so End returns Incomplete.
func (p *parser) Skip() int64      { return 0 }
func (p *parser) Skipped(int64)    {}
func (p *parser) End() proto.Reply { return proto.Reply{} }

func (p *parser) Problem() string {
	if !p.wrong {
		return string(p.text)
	}
	return string(p.keys.Key(p.index)) + ": got " + strconv.FormatInt(p.size, 10) +
		" bytes that are not its value of " + strconv.Itoa(p.keys.ValueBytes()) + " bytes"
}
