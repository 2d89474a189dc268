// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Entries returns the contents of a hash map with keys of type Key, in no particular order. It
// takes a few system calls for any number of entries (BPF_MAP_LOOKUP_BATCH, Linux 5.6). An entry
// that another program adds or removes meanwhile may be in the result or not.
func Entries[V any](m *ebpf.Map) ([]Key, []V, error) {
	// The kernel copies whole buckets of the hash map, so a batch needs room for the fullest one.
	batch := 1024
	var keys []Key
	var values []V
	var cursor ebpf.MapBatchCursor
	for {
		keys, values = slices.Grow(keys, batch), slices.Grow(values, batch)
		n := len(keys)
		got, err := m.BatchLookup(&cursor, keys[n:n+batch], values[n:n+batch], nil)
		keys, values = keys[:n+got], values[:n+got]
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist): // the end of the map
			return keys, values, nil
		case errors.Is(err, unix.ENOSPC) && batch < int(m.MaxEntries()):
			batch *= 2
		case err != nil:
			return nil, nil, err
		}
	}
}
