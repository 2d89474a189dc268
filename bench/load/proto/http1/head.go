// SPDX-License-Identifier: Apache-2.0

package http1

import (
	"bytes"
	"errors"

	"github.com/niclane/niclane/bench/load/proto"
)

// maxHead is the largest header of a response, bytes. Servers send less than 16 KiB.
const maxHead = 64 << 10

// maxBody is the largest length of a body, larger than any real body. Sums of a few such lengths fit
// a counter.
const maxBody = 1 << 60

var (
	errStatus   = errors.New("not an HTTP/1.x status line")
	errHead     = errors.New("header longer than 64 KiB")
	errField    = errors.New("malformed header line")
	errLengths  = errors.New("Content-Length is not one number")
	errBoth     = errors.New("both Content-Length and Transfer-Encoding")
	errOld      = errors.New("Transfer-Encoding in HTTP/1.0")
	errCoding   = errors.New("transfer coding other than chunked")
	errSwitched = errors.New("101 Switching Protocols, which was not requested")
)

// A head is the parsed header of a response.
type head struct {
	text    []byte // as received, with the empty line
	status  int
	length  int64 // length of the body, -1 if not given
	chunked bool
	close   bool // the server closes the connection after the body
}

var headEnd = []byte("\r\n\r\n")

// parse fills h from b, which holds one header with its empty line.
func (h *head) parse(b []byte) error {
	// The buffer is reused for headers with another Date: only the first one allocates.
	h.text = append(h.text[:0], b...)
	h.length, h.chunked, h.close = -1, false, false
	line, rest := cutLine(b)
	// "HTTP/1.1 200 OK"; the reason, and the blank before it, may be missing.
	if len(line) < 12 || string(line[:7]) != "HTTP/1." || line[7] < '0' || line[7] > '9' || line[8] != ' ' ||
		bytes.IndexByte(line, '\n') >= 0 || len(line) > 12 && line[12] != ' ' {
		return errStatus
	}
	status, ok := proto.Number(line[9:12], 599)
	if !ok || status < 100 {
		return errStatus
	}
	h.status = int(status)
	old := line[7] == '0'
	keepAlive := !old
	coded := false
	for line, rest = cutLine(rest); len(line) > 0; line, rest = cutLine(rest) {
		colon := bytes.IndexByte(line, ':')
		if colon < 1 || bytes.IndexByte(line, '\n') >= 0 || line[0] == ' ' || line[0] == '\t' || line[colon-1] == ' ' {
			return errField
		}
		name, value := line[:colon], bytes.Trim(line[colon+1:], " \t")
		switch {
		case same(name, "content-length"):
			n, ok := proto.Number(value, maxBody)
			if !ok || h.length >= 0 && h.length != n {
				return errLengths
			}
			h.length = n
		case same(name, "transfer-encoding"):
			if coded || !same(value, "chunked") {
				return errCoding
			}
			coded, h.chunked = true, true
		case same(name, "connection"):
			for len(value) > 0 {
				var option []byte
				option, value, _ = bytes.Cut(value, []byte(","))
				switch option = bytes.Trim(option, " \t"); {
				case same(option, "close"):
					h.close = true
				case same(option, "keep-alive"):
					keepAlive = true
				}
			}
		}
	}
	h.close = h.close || !keepAlive
	switch {
	case h.status == 101:
		return errSwitched
	case h.chunked && old:
		return errOld
	case h.chunked && h.length >= 0:
		return errBoth
	case h.status < 200 || h.status == 204 || h.status == 304:
		h.length, h.chunked = 0, false // RFC 9112 6.3: these have no body
	case !h.chunked && h.length < 0:
		h.close = true // the body ends with the connection
	}
	return nil
}

// cutLine returns the first line of b, which ends in CRLF, and the rest. RFC 9112 2.2 allows a parser
// to accept lone line feeds. Here they stay part of the line, so that the parser refuses the line:
// other programs would parse the following bytes differently.
func cutLine(b []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(b, headEnd[:2])
	return line, rest
}

// same compares b with a lower case ASCII word, ignoring the case of b.
func same(b []byte, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != word[i] {
			return false
		}
	}
	return true
}
