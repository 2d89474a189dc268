// SPDX-License-Identifier: Apache-2.0

package proto

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// Limits of Keys.
const (
	MaxKeys       = 1_000_000_000
	MaxKeyBytes   = 250 // memcached's own limit
	MaxValueBytes = 1 << 20
)

// Keys are the keys and values of a workload. Each key is made when it is needed, by up to ten
// divisions. In a table of 20 million keys, each access would be a cache miss, which takes longer.
// Key i is "k" and its number with leading zeros, or only the number if the numbers need all bytes.
// Its value starts with the key, so that an answer with another key's value is noticed. Keys is for
// use by one thread.
type Keys struct {
	n      int
	value  int    // size of a value, bytes
	filler []byte // a value without its head
	gets   uint64 // number of gets in 2^32 requests
	key    []byte // the key of index last
	last   uint32
	from   int // where the number of last begins, after its leading zeros
}

// NewKeys returns n keys (1 to MaxKeys) of keyBytes bytes, which must hold the digits of n-1 (up to
// MaxKeyBytes). Values have valueBytes bytes (1 to MaxValueBytes). A request is a set with
// probability sets (0 to 1). NewKeys reports every parameter that is out of range.
func NewKeys(n, keyBytes, valueBytes int, sets float64) (*Keys, error) {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if n < 1 || n > MaxKeys {
		bad("keys %d: want 1 to %d", n, MaxKeys)
	}
	least := len(strconv.Itoa(max(n, 1) - 1))
	if keyBytes < least || keyBytes > MaxKeyBytes {
		bad("keyBytes %d: want %d to %d for %d keys", keyBytes, least, MaxKeyBytes, n)
	}
	if valueBytes < 1 || valueBytes > MaxValueBytes {
		bad("valueBytes %d: want 1 to %d", valueBytes, MaxValueBytes)
	}
	if !(sets >= 0 && sets <= 1) {
		bad("setShare %v: want 0 to 1", sets)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	k := &Keys{
		n: n, value: valueBytes, filler: bytes.Repeat([]byte("niclane."), valueBytes/8+1)[:valueBytes],
		gets: uint64((1 - sets) * (1 << 32)),
		key:  bytes.Repeat([]byte("0"), keyBytes), from: keyBytes,
	}
	if keyBytes > least {
		k.key[0] = 'k'
	}
	return k, nil
}

// Len returns the number of keys, ValueBytes the size of each value.
func (k *Keys) Len() int        { return k.n }
func (k *Keys) ValueBytes() int { return k.value }

// Pick turns 64 random bits into a key and an operation. The upper half chooses the key (multiplied
// and shifted; the bias is at most n in 2^32). The lower half chooses the operation.
func (k *Keys) Pick(random uint64) Ticket {
	t := Ticket{Index: uint32(random >> 32 * uint64(k.n) >> 32)}
	if random&(1<<32-1) >= k.gets {
		t.Op = Set
	}
	return t
}

// Key returns key i. The next call overwrites it.
func (k *Keys) Key(i uint32) []byte {
	if i == k.last {
		return k.key
	}
	k.last = i
	at := len(k.key)
	for ; i > 0; i /= 10 {
		at--
		k.key[at] = byte('0' + i%10)
	}
	from := at
	for at > k.from { // further digits of the last number
		at--
		k.key[at] = '0'
	}
	k.from = from
	return k.key
}

// head returns the start of the value of key i: the key, or its last digits if the value is
// shorter.
func (k *Keys) head(i uint32) []byte {
	key := k.Key(i)
	return key[max(0, len(key)-k.value):]
}

// AppendValue appends the value of key i to b.
func (k *Keys) AppendValue(b []byte, i uint32) []byte {
	head := k.head(i)
	b = append(b, head...)
	return append(b, k.filler[len(head):]...)
}

// Matches reports whether b is equal to a part of the value of key i: the part that begins at offset
// and is as long as b. It compares all bytes, which takes a few ns for the usual sizes.
func (k *Keys) Matches(b []byte, i uint32, offset int) bool {
	if offset+len(b) > k.value {
		return false
	}
	if head := k.head(i); offset < len(head) {
		n := min(len(b), len(head)-offset)
		if !bytes.Equal(b[:n], head[offset:offset+n]) {
			return false
		}
		b, offset = b[n:], offset+n
	}
	return bytes.Equal(b, k.filler[offset:offset+len(b)])
}
