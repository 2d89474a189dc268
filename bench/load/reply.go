// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"errors"
)

// kind of a reply to a get of one key.
type kind uint8

const (
	incomplete kind = iota // more bytes are needed
	hit
	miss
	failure // ERROR, CLIENT_ERROR or SERVER_ERROR: the stream is still in step
)

// maxLine is the longest status line accepted: memcached's longest value
// header is below 300 bytes, its error messages too.
const maxLine = 1024

var (
	errLine  = errors.New("reply line too long")
	errReply = errors.New("not a reply to get")
	errSize  = errors.New("value too large or its size not a number")
	errEnd   = errors.New("value not followed by END")
)

// A reply points into the buffer it was parsed from.
type reply struct {
	kind  kind
	size  int    // bytes of the whole reply
	key   []byte // of a hit
	value []byte // of a hit
	line  []byte // of a failure
}

var (
	lineEnd  = []byte("\r\n")
	endLine  = []byte("END\r\n")
	valueEnd = []byte("\r\nEND\r\n")
	prefix   = []byte("VALUE ")
)

// parseReply parses the reply at the start of b to a get of one key. It
// returns kind incomplete while bytes are missing and an error when the stream
// cannot be one of such replies; the connection is then out of step.
func parseReply(b []byte, maxValue int) (reply, error) {
	if bytes.HasPrefix(b, endLine) {
		return reply{kind: miss, size: len(endLine)}, nil
	}
	n := bytes.Index(b[:min(len(b), maxLine)], lineEnd)
	if n < 0 {
		if len(b) >= maxLine {
			return reply{}, errLine
		}
		return reply{}, nil
	}
	line := b[:n]
	if !bytes.HasPrefix(line, prefix) {
		if bytes.Equal(line, []byte("ERROR")) || bytes.HasPrefix(line, []byte("CLIENT_ERROR")) ||
			bytes.HasPrefix(line, []byte("SERVER_ERROR")) {
			return reply{kind: failure, size: n + 2, line: line}, nil
		}
		return reply{}, errReply
	}
	key, rest, ok := bytes.Cut(line[len(prefix):], []byte(" "))
	if !ok || len(key) == 0 {
		return reply{}, errReply
	}
	flags, rest, ok := bytes.Cut(rest, []byte(" "))
	if _, good := number(flags, 1<<32-1); !ok || !good {
		return reply{}, errReply
	}
	length, _, _ := bytes.Cut(rest, []byte(" ")) // a cas value may follow
	v, ok := number(length, maxValue)
	if !ok {
		return reply{}, errSize
	}
	start := n + 2
	size := start + v + len(valueEnd)
	if len(b) < size {
		return reply{}, nil
	}
	if !bytes.Equal(b[start+v:size], valueEnd) {
		return reply{}, errEnd
	}
	return reply{kind: hit, size: size, key: key, value: b[start : start+v]}, nil
}

// number parses decimal digits, at most limit.
func number(b []byte, limit int) (int, bool) {
	if len(b) == 0 || len(b) > 10 {
		return 0, false
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, n <= limit
}
