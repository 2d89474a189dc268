// SPDX-License-Identifier: Apache-2.0

package aerospike

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/niclane/niclane/bench/part/servetest"
)

// server implements the part of Aerospike's wire protocol that the client needs to accept it as
// a node with all partitions, and to read and write one bin.
type server struct {
	address string
	mu      sync.Mutex
	records map[string]op // by digest
	n       map[string]int64
	// answer, if set, returns the result code for request n. 0 is success. A negative code breaks
	// the connection.
	answer func(n int64) int
	asked  int64
}

// Constants of the protocol: kinds of messages, a field, bits of a request, a result code.
const (
	kindInfo, kindMessage = 1, 3
	fieldDigest           = 4
	infoRead, infoWrite   = 1, 1
	notFound              = 2
)

// op is an operation of a message: the name and the value of a bin.
type op struct {
	particle byte
	name     string
	value    []byte
}

func serve(t *testing.T) *server {
	t.Helper()
	s := &server{records: map[string]op{}, n: map[string]int64{}}
	s.address = servetest.Listen(t, func(c net.Conn, r *bufio.Reader) {
		for s.one(r, c) == nil {
		}
	})
	return s
}

// one answers one message. A message begins with version 2, its kind, and its length in 6 bytes.
func (s *server) one(r io.Reader, c net.Conn) error {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	kind := head[1]
	head[0], head[1] = 0, 0
	body := make([]byte, binary.BigEndian.Uint64(head[:]))
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	var reply []byte
	var err error
	switch kind {
	case kindInfo:
		reply = []byte(s.info(c.LocalAddr(), string(body)))
	case kindMessage:
		reply, err = s.message(body)
	default:
		err = fmt.Errorf("message of kind %d", kind)
	}
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint64(head[:], uint64(len(reply)))
	head[0], head[1] = 2, kind
	_, err = c.Write(append(head[:], reply...))
	return err
}

func (s *server) info(at net.Addr, ask string) string {
	all := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\xff", 512))) // 4096 partitions
	var b strings.Builder
	for name := range strings.SplitSeq(strings.TrimSpace(ask), "\n") {
		value := ""
		switch name {
		case "node":
			value = "BB9000000000001"
		case "build":
			value = "7.0.0.0"
		case "partition-generation", "peers-generation":
			value = "1"
		case "peers-clear-std":
			value = "1,3000,[]"
		case "service-clear-std":
			value = at.String()
		case "replicas":
			value = "test:0,1," + all + ";"
		case "namespace/test":
			s.mu.Lock()
			value = fmt.Sprintf("objects=%d;client_read_success=%d;client_read_not_found=%d;client_read_error=0;client_read_timeout=0;client_write_success=%d;client_write_error=%d;client_write_timeout=0",
				len(s.records), s.n["hit"], s.n["miss"], s.n["set"], s.n["set error"])
			s.mu.Unlock()
		}
		fmt.Fprintf(&b, "%s\t%s\n", name, value)
	}
	return b.String()
}

// message answers a read or a write of one record.
func (s *server) message(b []byte) ([]byte, error) {
	if len(b) < 22 || b[0] != 22 {
		return nil, fmt.Errorf("header of %d bytes", len(b))
	}
	read, write := b[1]&infoRead != 0, b[2]&infoWrite != 0
	fields, ops := binary.BigEndian.Uint16(b[18:]), binary.BigEndian.Uint16(b[20:])
	at := 22
	part := func() []byte { // returns the next part, which follows its length
		n := int(binary.BigEndian.Uint32(b[at:]))
		p := b[at+4 : at+4+n]
		at += 4 + n
		return p
	}
	digest := ""
	for range fields {
		if f := part(); f[0] == fieldDigest {
			digest = string(f[1:])
		}
	}
	var bin op
	for range ops {
		f := part()
		n := int(f[3])
		bin = op{f[1], string(f[4 : 4+n]), f[4+n:]}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	code := 0
	if s.answer != nil {
		if code = s.answer(s.asked); code < 0 {
			return nil, io.EOF
		}
	}
	reply := make([]byte, 22)
	reply[0] = 22
	switch {
	case write && code == 0:
		s.n["set"]++
		s.records[digest] = bin
	case write:
		s.n["set error"]++
	case read && code == 0:
		got, ok := s.records[digest]
		if !ok {
			s.n["miss"]++
			code = notFound
			break
		}
		s.n["hit"]++
		binary.BigEndian.PutUint16(reply[20:], 1)
		reply = binary.BigEndian.AppendUint32(reply, uint32(4+len(got.name)+len(got.value)))
		reply = append(reply, 1, got.particle, 0, byte(len(got.name)))
		reply = append(append(reply, got.name...), got.value...)
	}
	reply[5] = byte(code)
	return reply, nil
}
