// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
)

// A kind is the type of a datagram.
type kind uint8

const (
	hello   kind = iota + 1 // from the sender, repeated until a welcome arrives
	welcome                 // the answer to hello
	data                    // payload, which the receiver counts
	echo                    // payload, which the receiver counts and also sends back if the two clocks differ
	reply                   // the answer to echo
	end                     // from the sender, repeated until an ended arrives; seq is the number of datagrams sent
	ended                   // the answer to end
	kinds
)

const (
	magic       = 0x6e6c6e31 // "nln1"
	headerBytes = 40
	maxDatagram = 65507 // the largest UDP payload of IPv4
	maxFlows    = 1000
	// maxSeq is larger than any run's sequence number: 2^48 datagrams at 100 million a second take a
	// month.
	maxSeq = 1 << 48
)

// A header is the start of each datagram, big endian.
type header struct {
	kind  kind
	flow  uint16
	run   uint64 // random number of the sender's run; tells its datagrams from those of other senders
	clock uint64 // which clock stamp was read from
	seq   uint64 // number of the datagram in its flow, from 0
	stamp int64  // CLOCK_MONOTONIC when it was sent, ns
}

var (
	errShort  = errors.New("shorter than a header")
	errMagic  = errors.New("not of this package")
	errHeader = errors.New("header out of range")
)

// put writes h into b, which has at least headerBytes bytes.
func (h *header) put(b []byte) {
	_ = b[headerBytes-1]
	binary.BigEndian.PutUint32(b, magic)
	b[4], b[5] = byte(h.kind), 0
	binary.BigEndian.PutUint16(b[6:], h.flow)
	binary.BigEndian.PutUint64(b[8:], h.run)
	binary.BigEndian.PutUint64(b[16:], h.clock)
	binary.BigEndian.PutUint64(b[24:], h.seq)
	binary.BigEndian.PutUint64(b[32:], uint64(h.stamp))
}

// parse reads the header at the start of b. It checks all fields, because any program may have sent
// b.
func parse(b []byte) (h header, err error) {
	if len(b) < headerBytes {
		return h, errShort
	}
	if binary.BigEndian.Uint32(b) != magic {
		return h, errMagic
	}
	h = header{
		kind: kind(b[4]), flow: binary.BigEndian.Uint16(b[6:]), run: binary.BigEndian.Uint64(b[8:]),
		clock: binary.BigEndian.Uint64(b[16:]), seq: binary.BigEndian.Uint64(b[24:]),
		stamp: int64(binary.BigEndian.Uint64(b[32:])),
	}
	if h.kind == 0 || h.kind >= kinds || b[5] != 0 || h.flow >= maxFlows || h.seq > maxSeq || h.stamp < 0 {
		return header{}, errHeader
	}
	return h, nil
}

// clockIdentity returns a number that identifies this CLOCK_MONOTONIC. Each boot of a kernel has
// its own clock (proc_sys_kernel(5)), and each time namespace has its own offset to the clock
// (time_namespaces(7)).
func clockIdentity() (uint64, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0, fmt.Errorf("identify the clock: %w", err)
	}
	space, err := os.Readlink("/proc/self/ns/time")
	if err != nil && !errors.Is(err, os.ErrNotExist) { // no file before Linux 5.6, or without time namespaces
		return 0, fmt.Errorf("identify the clock: %w", err)
	}
	h := fnv.New64a()
	_, _ = h.Write(boot) // never fails
	_, _ = h.Write([]byte(space))
	return h.Sum64(), nil
}
