// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"fmt"
)

// keyset holds every get request ready to send. Key i is "k", its number and
// padding; its value starts with the key, so that an answer with another key's
// value is noticed.
type keyset struct {
	flat     []byte // requests, one after the other
	request  int    // bytes of one
	keyBytes int
	filler   []byte // what follows the key in a value
	value    int
}

const getWord = "get "

func newKeyset(c Config) *keyset {
	k := &keyset{
		request:  len(getWord) + c.KeyBytes + 2,
		keyBytes: c.KeyBytes,
		filler:   bytes.Repeat([]byte("niclane."), c.ValueBytes/8+1)[:c.ValueBytes],
		value:    c.ValueBytes,
	}
	k.flat = make([]byte, 0, k.request*c.Keys)
	for i := range c.Keys {
		k.flat = fmt.Appendf(k.flat, "%sk%0*d\r\n", getWord, c.KeyBytes-1, i)
	}
	return k
}

func (k *keyset) get(i int) []byte { return k.flat[i*k.request : (i+1)*k.request] }

func (k *keyset) key(i int) []byte {
	at := i*k.request + len(getWord)
	return k.flat[at : at+k.keyBytes]
}

// appendValue appends the value of key i: the key as far as it fits, its last
// digits first if it does not, then filler.
func (k *keyset) appendValue(b []byte, i int) []byte {
	head := k.head(i)
	b = append(b, head...)
	return append(b, k.filler[len(head):]...)
}

func (k *keyset) head(i int) []byte {
	key := k.key(i)
	return key[max(0, len(key)-k.value):]
}

// matches says whether value is the value of key i. It compares everything:
// a few ns for the sizes in use.
func (k *keyset) matches(value []byte, i int) bool {
	head := k.head(i)
	return len(value) == k.value && bytes.HasPrefix(value, head) && bytes.Equal(value[len(head):], k.filler[len(head):])
}
