// SPDX-License-Identifier: Apache-2.0

package http1

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/niclane/niclane/bench/load/proto"
)

var (
	errChunk    = errors.New("malformed chunk")
	errTrailers = errors.New("trailer longer than 64 KiB")
)

type phase uint8

const (
	inHead    phase = iota
	inBody          // left bytes of the body follow; -1: it lasts until the connection is closed
	inSize          // size line of a chunk
	inChunk         // left bytes of the chunk follow
	afterData       // CRLF after a chunk
	inTrailer       // lines up to an empty one
)

type parser struct {
	codec   *Codec
	phase   phase
	left    int64
	body    int64 // number of bytes so far
	trailer int   // number of bytes so far
	status  int
	close   bool
	index   uint32
	wrong   bool // the number of bytes is wrong
}

func (p *parser) Parse(b []byte, t proto.Ticket) (proto.Reply, error) {
	used := 0
	for {
		rest := b[used:]
		switch p.phase {
		case inHead:
			n, err := p.head(rest, t.Index)
			if n == 0 || err != nil {
				return proto.Reply{Used: used}, err
			}
			used += n
			if p.phase == inBody && p.left == 0 {
				return p.done(used), nil
			}
		case inBody, inChunk:
			if len(rest) == 0 {
				return proto.Reply{Used: used}, nil
			}
			n := len(rest)
			if p.left >= 0 {
				n = int(min(int64(n), p.left))
			}
			used += n
			p.Skipped(int64(n))
			if p.phase == inBody && p.left == 0 {
				return p.done(used), nil
			}
		default:
			line := bytes.IndexByte(rest, '\n')
			if line < 0 {
				if len(rest) > maxHead {
					return proto.Reply{}, errChunk
				}
				return proto.Reply{Used: used}, nil
			}
			if line == 0 || rest[line-1] != '\r' {
				return proto.Reply{}, errChunk
			}
			used += line + 1
			end, err := p.line(rest[:line-1])
			if err != nil {
				return proto.Reply{}, err
			}
			if end {
				return p.done(used), nil
			}
		}
	}
}

// head reads the header at the start of b and returns its length, 0 while bytes are missing.
func (p *parser) head(b []byte, index uint32) (int, error) {
	h := &p.codec.heads[index]
	// A server's headers for one object differ only in Date, which changes once a second:
	// comparing is cheaper than searching for the end.
	if len(h.text) == 0 || !bytes.HasPrefix(b, h.text) {
		n := bytes.Index(b[:min(len(b), maxHead)], headEnd)
		if n < 0 {
			if len(b) >= maxHead {
				return 0, errHead
			}
			if len(b) >= 7 && string(b[:7]) != "HTTP/1." {
				return 0, errStatus
			}
			return 0, nil
		}
		if err := h.parse(b[:n+len(headEnd)]); err != nil {
			h.text = h.text[:0]
			return 0, err
		}
	}
	if h.status < 200 {
		return len(h.text), nil // an interim response: the real one follows
	}
	p.phase, p.left, p.body, p.index = inBody, h.length, 0, index
	p.status, p.close = h.status, h.close
	if h.chunked {
		p.phase, p.trailer = inSize, 0
	}
	return len(h.text), nil
}

// line parses a line of a chunked body and reports whether it was the last.
func (p *parser) line(line []byte) (bool, error) {
	switch p.phase {
	case inSize:
		n := int64(0)
		digits := 0
		for _, c := range line {
			d := hex(c)
			if d < 0 {
				break
			}
			if digits++; digits > 15 {
				return false, errChunk
			}
			n = n<<4 | d
		}
		// An extension may follow. No server sends one, but a client must ignore it.
		if digits == 0 || digits < len(line) && line[digits] != ';' && line[digits] != ' ' && line[digits] != '\t' {
			return false, errChunk
		}
		p.phase, p.left = inChunk, n
		if n == 0 {
			p.phase = inTrailer
		}
	case afterData:
		if len(line) > 0 {
			return false, errChunk
		}
		p.phase = inSize
	case inTrailer:
		if p.trailer += len(line); p.trailer > maxHead {
			return false, errTrailers
		}
		return len(line) == 0, nil
	}
	return false, nil
}

func hex(c byte) int64 {
	switch {
	case '0' <= c && c <= '9':
		return int64(c - '0')
	case 'a' <= c && c <= 'f':
		return int64(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int64(c-'A') + 10
	}
	return -1
}

// done returns the reply for a complete response, and prepares p for the next one.
func (p *parser) done(used int) proto.Reply {
	want := &p.codec.paths[p.index]
	good := p.status == want.Status || want.Status == 0 && p.status/100 == 2
	p.wrong = good && want.Bytes > 0 && p.body != want.Bytes
	r := proto.Reply{Used: used, Outcome: proto.Good, Status: p.status, Payload: p.body, Close: p.close}
	if !good || p.wrong {
		r.Outcome = proto.Failed
	}
	p.phase = inHead
	return r
}

// Skip does not include the last byte of a body or chunk, so that Parse notices the end.
func (p *parser) Skip() int64 {
	switch {
	case p.phase != inBody && p.phase != inChunk:
		return 0
	case p.left < 0:
		return maxBody
	}
	return max(0, p.left-1)
}

func (p *parser) Skipped(n int64) {
	p.body += n
	if p.left >= 0 {
		if p.left -= n; p.left == 0 && p.phase == inChunk {
			p.phase = afterData
		}
	}
}

// End completes a body that lasts until the connection is closed.
func (p *parser) End() proto.Reply {
	if p.phase == inBody && p.left < 0 {
		return p.done(0)
	}
	return proto.Reply{}
}

func (p *parser) Problem() string {
	want := &p.codec.paths[p.index]
	if p.wrong {
		return fmt.Sprintf("%s: got %d bytes, want %d", want.Path, p.body, want.Bytes)
	}
	if want.Status != 0 {
		return fmt.Sprintf("%s: status %d, want %d", want.Path, p.status, want.Status)
	}
	return fmt.Sprintf("%s: status %d, want 2xx", want.Path, p.status)
}
