// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
)

// This file reads and writes HdrHistogram's V2 compressed form, which all its libraries read. It is
// the base64 text of
//
//	0x1c849314, number of bytes that follow, and these deflated (zlib):
//	0x1c849313, number of bytes of counts, 0, significant digits (32 bits each),
//	lowest and highest value (64 bits each), 1.0 (a double), counts
//
// in big endian. There is a count for each bucket, from the first to the last that is not empty.
// Each count is a zigzag LEB128 number of at most 9 bytes. A run of n empty buckets is the number
// -n.
//
// Package hdr can read and write this form, too. But for each histogram it needs 28,000 buckets and
// a new deflater of 800 KB: more than a second for a series of 300 windows. This file handles only
// the occupied buckets.
const (
	cookie           = 0x1c849313
	compressedCookie = 0x1c849314
	headBytes        = 40
	// maxCounts limits how many bytes are inflated: as many as a histogram without empty buckets has.
	maxCounts = buckets * 9
)

var (
	errNotHDR   = errors.New("not an HdrHistogram in V2 compressed form")
	errGeometry = errors.New("histogram of another range or precision")
	errCounts   = errors.New("damaged counts")
)

// The pools keep deflaters and inflaters, because a deflater takes 800 KB and an inflater 40 KB.
var (
	writers = sync.Pool{New: func() any { return new(hdrWriter) }}
	readers = sync.Pool{New: func() any { return new(hdrReader) }}
)

// An hdrWriter writes one histogram after the other.
type hdrWriter struct {
	counts, out []byte
	deflated    bytes.Buffer
	z           *zlib.Writer
}

// encode appends the base64 text of a histogram to b. next iterates over the buckets in rising
// order.
func (w *hdrWriter) encode(b []byte, next func(yield func(bucket int, count int64) bool)) ([]byte, error) {
	w.counts = append(w.counts[:0], make([]byte, headBytes)...)
	at := 0
	for bucket, count := range next {
		if bucket > at {
			w.counts = appendZigzag(w.counts, int64(at-bucket))
		}
		if bucket < at || count <= 0 {
			return nil, errCounts
		}
		w.counts = appendZigzag(w.counts, count)
		at = bucket + 1
	}
	head := w.counts[:headBytes]
	binary.BigEndian.PutUint32(head, cookie)
	binary.BigEndian.PutUint32(head[4:], uint32(len(w.counts)-headBytes))
	binary.BigEndian.PutUint32(head[12:], digits)
	binary.BigEndian.PutUint64(head[16:], lowest)
	binary.BigEndian.PutUint64(head[24:], highest)
	binary.BigEndian.PutUint64(head[32:], math.Float64bits(1))

	w.deflated.Reset()
	if w.z == nil {
		// The fastest level makes texts at most 10 % larger than the best level: counts are small numbers
		// that do not repeat.
		w.z, _ = zlib.NewWriterLevel(&w.deflated, zlib.BestSpeed) // no error: the level is valid
	} else {
		w.z.Reset(&w.deflated)
	}
	if _, err := w.z.Write(w.counts); err != nil {
		return nil, err
	}
	if err := w.z.Close(); err != nil {
		return nil, err
	}
	w.out = binary.BigEndian.AppendUint32(w.out[:0], compressedCookie)
	w.out = binary.BigEndian.AppendUint32(w.out, uint32(w.deflated.Len()))
	w.out = append(w.out, w.deflated.Bytes()...)
	return base64.StdEncoding.AppendEncode(b, w.out), nil
}

// An hdrReader reads one histogram after the other.
type hdrReader struct {
	in, counts []byte
	cells      []uint16
	numbers    []int64
	z          io.ReadCloser
}

// decoded returns the occupied buckets of a histogram. They are valid until the next call.
func (r *hdrReader) decoded(text []byte) (cells []uint16, counts []int64, err error) {
	r.cells, r.numbers = r.cells[:0], r.numbers[:0]
	err = r.decode(text, func(bucket int, count int64) {
		r.cells, r.numbers = append(r.cells, uint16(bucket)), append(r.numbers, count)
	})
	return r.cells, r.numbers, err
}

// decode calls add for every occupied bucket of a histogram in rising order. If the histogram has
// other buckets than ours, it returns errGeometry and does not call add.
func (r *hdrReader) decode(text []byte, add func(bucket int, count int64)) (err error) {
	if r.in, err = base64.StdEncoding.AppendDecode(r.in[:0], text); err != nil {
		return err
	}
	// The comparison ignores some low bits of the cookies: they are the size of a count, which does
	// not matter.
	if len(r.in) < 8 || binary.BigEndian.Uint32(r.in)&^0xf0 != compressedCookie&^0xf0 ||
		int(binary.BigEndian.Uint32(r.in[4:])) > len(r.in)-8 {
		return errNotHDR
	}
	deflated := bytes.NewReader(r.in[8 : 8+binary.BigEndian.Uint32(r.in[4:])])
	if r.z == nil {
		r.z, err = zlib.NewReader(deflated)
	} else {
		err = r.z.(zlib.Resetter).Reset(deflated, nil)
	}
	if err != nil {
		r.z = nil
		return fmt.Errorf("%w: %w", errNotHDR, err)
	}
	var head [headBytes]byte
	if _, err := io.ReadFull(r.z, head[:]); err != nil || binary.BigEndian.Uint32(head[:])&^0xf0 != cookie&^0xf0 {
		return errNotHDR
	}
	if binary.BigEndian.Uint32(head[12:]) != digits || binary.BigEndian.Uint64(head[16:]) != lowest ||
		binary.BigEndian.Uint64(head[24:]) != highest {
		return errGeometry
	}
	size := binary.BigEndian.Uint32(head[4:])
	if size > maxCounts {
		return errCounts
	}
	if cap(r.counts) < int(size) {
		r.counts = make([]byte, size, 2*size+1024)
	}
	if _, err := io.ReadFull(r.z, r.counts[:size]); err != nil {
		return errCounts
	}
	// Read to the end, because zlib checks the checksum only there.
	if _, err := io.ReadFull(r.z, head[:1]); err != io.EOF {
		return errCounts
	}
	return readCounts(r.counts[:size], add)
}

func readCounts(b []byte, add func(bucket int, count int64)) error {
	at, total := int64(0), int64(0)
	for len(b) > 0 {
		v, n := zigzag(b)
		if n == 0 {
			return errCounts
		}
		b = b[n:]
		switch {
		case v < 0:
			if v < -buckets {
				return errCounts
			}
			at -= v
		case at >= buckets || total > math.MaxInt64-v:
			return errCounts
		default:
			if v > 0 {
				add(int(at), v)
			}
			total += v
			at++
		}
		if at > buckets {
			return errCounts
		}
	}
	return nil
}

// appendZigzag appends v as zigzag LEB128 of at most nine bytes. The ninth byte has eight bits of v
// (ZigZagEncoding of HdrHistogram).
func appendZigzag(b []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for range 8 {
		if u < 0x80 {
			return append(b, byte(u))
		}
		b = append(b, byte(u)|0x80)
		u >>= 7
	}
	return append(b, byte(u))
}

// zigzag reads a number that appendZigzag wrote, and returns its length. The length is 0 if b is
// truncated.
func zigzag(b []byte) (v int64, n int) {
	u := uint64(0)
	for i, c := range b {
		if i == 8 {
			return unzigzag(u | uint64(c)<<56), 9
		}
		u |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return unzigzag(u), i + 1
		}
	}
	return 0, 0
}

func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }
