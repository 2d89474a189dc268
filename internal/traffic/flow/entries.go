// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Entries returns what a hash map with keys of type Key holds, in no order. It
// takes a few system calls however much that is (BPF_MAP_LOOKUP_BATCH, Linux
// 5.6). What others add or remove meanwhile may be missing or there.
func Entries[V any](m *ebpf.Map) ([]Key, []V, error) {
	// A batch is whole buckets: it has to hold the fullest one.
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
		case errors.Is(err, ebpf.ErrKeyNotExist): // the end
			return keys, values, nil
		case errors.Is(err, unix.ENOSPC) && batch < int(m.MaxEntries()):
			batch *= 2
		case err != nil:
			return nil, nil, err
		}
	}
}
