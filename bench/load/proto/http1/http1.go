// SPDX-License-Identifier: Apache-2.0

// Package http1 writes GET requests of HTTP/1.1 and reads their responses (RFC 9112):
// Content-Length, chunked and until-close bodies, interim responses, keep-alive and Connection:
// close.
//
// Bodies are counted, not kept. It refuses headers that make the end of a body ambiguous: two
// lengths, a length with chunks, other transfer codings.
package http1

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/niclane/niclane/bench/load/proto"
)

// A Path is one object to request.
type Path struct {
	// Path includes the query: "/video/4m?x=1".
	Path string `json:"path"`
	// Weight is the relative frequency of the object, 1 to 1,000,000 (default 1).
	Weight int `json:"weight,omitempty"`
	// Bytes is the required length of the body; 0: not checked.
	Bytes int64 `json:"bytes,omitempty"`
	// Status is the required status (default: any from 200 to 299).
	Status int `json:"status,omitempty"`
}

// A Codec writes GET requests of some paths.
type Codec struct {
	requests [][]byte
	until    []uint64 // by path: the end of its share of 2^32
	paths    []Path
	heads    []head // by path: the last header seen
}

// New returns a codec that requests paths (1 to 65536) from host, with additional header lines
// ("Name: value"). It reports everything that cannot be sent.
func New(host string, paths []Path, headers []string) (*Codec, error) {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '/' }) {
		bad("host %q: want the value of a Host header, NAME or NAME:PORT", host)
	}
	if len(paths) < 1 || len(paths) > 1<<16 {
		bad("paths: %d, want 1 to %d", len(paths), 1<<16)
	}
	var extra strings.Builder
	for i, h := range headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || !token(name) || strings.ContainsFunc(value,
			func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			bad("headers[%d] %q: want NAME: VALUE", i, h)
			continue
		}
		switch http.CanonicalHeaderKey(name) {
		case "Host", "Content-Length", "Transfer-Encoding", "Expect", "Upgrade":
			bad("headers[%d] %q: the generator itself sets %s", i, h, name)
		}
		fmt.Fprintf(&extra, "%s: %s\r\n", name, strings.TrimSpace(value))
	}
	c := &Codec{paths: slices.Clone(paths), heads: make([]head, len(paths))}
	total := uint64(0)
	for i := range c.paths {
		p := &c.paths[i]
		p.Weight = cmp.Or(p.Weight, 1)
		if p.Weight < 1 || p.Weight > 1_000_000 {
			bad("paths[%d].weight %d: want 1 to 1000000", i, p.Weight)
		}
		if !strings.HasPrefix(p.Path, "/") ||
			strings.ContainsFunc(p.Path, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }) {
			bad("paths[%d].path %q: want / and printable ASCII without blanks and #", i, p.Path)
		}
		if p.Bytes < 0 {
			bad("paths[%d].bytes %d: want 0 or more", i, p.Bytes)
		}
		if p.Status != 0 && (p.Status < 200 || p.Status > 599) {
			bad("paths[%d].status %d: want 200 to 599", i, p.Status)
		}
		total += uint64(max(p.Weight, 1))
		c.requests = append(c.requests, fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", p.Path, host,
			extra.String()))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	sum := uint64(0)
	for _, p := range c.paths {
		sum += uint64(p.Weight)
		c.until = append(c.until, sum<<32/total)
	}
	return c, nil
}

// token reports whether s is a header's name, RFC 9110 5.6.2.
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// Pick implements proto.Codec.
func (c *Codec) Pick(random uint64) proto.Ticket {
	if len(c.until) == 1 {
		return proto.Ticket{}
	}
	i, found := slices.BinarySearch(c.until, random>>32)
	if found {
		i++ // until is exclusive
	}
	return proto.Ticket{Index: uint32(i)}
}

// Append implements proto.Codec.
func (c *Codec) Append(b []byte, t proto.Ticket) []byte { return append(b, c.requests[t.Index]...) }

// Parser implements proto.Codec.
func (c *Codec) Parser() proto.Parser { return &parser{codec: c} }
