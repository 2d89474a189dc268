// SPDX-License-Identifier: Apache-2.0

package memserver

import (
	"sync"
	"sync/atomic"
)

// itemOverhead is how many bytes an item counts in addition to key and value, for map and headers.
const itemOverhead = 128

type item struct {
	flags   uint32
	cas     uint64
	expires int64 // s since the epoch, 0 never
	value   []byte
}

// store is a sharded map with a size limit.
type store struct {
	max    int64
	used   atomic.Int64
	items  atomic.Int64
	cas    atomic.Uint64
	shards [64]struct {
		sync.RWMutex
		m map[string]item
	}
}

func newStore(limit int64) *store {
	s := &store{max: limit}
	for i := range s.shards {
		s.shards[i].m = make(map[string]item)
	}
	return s
}

// shard returns the shard of a key by FNV-1a.
func (s *store) shard(key []byte) int {
	h := uint32(2166136261)
	for _, c := range key {
		h = (h ^ uint32(c)) * 16777619
	}
	return int(h % uint32(len(s.shards)))
}

func cost(key, value int) int64 { return int64(key+value) + itemOverhead }

// get returns the item of a key. The item's value is not copied: set never changes a value in place.
func (s *store) get(key []byte, now int64) (item, bool) {
	sh := &s.shards[s.shard(key)]
	sh.RLock()
	it, ok := sh.m[string(key)]
	sh.RUnlock()
	if ok && it.expires != 0 && it.expires <= now {
		s.remove(key)
		return item{}, false
	}
	return it, ok
}

// set stores a copy of value and reports whether there was room.
func (s *store) set(key, value []byte, flags uint32, expires int64) bool {
	sh := &s.shards[s.shard(key)]
	sh.Lock()
	defer sh.Unlock()
	old, had := sh.m[string(key)]
	grow := cost(len(key), len(value))
	if had {
		grow -= cost(len(key), len(old.value))
	}
	if s.used.Add(grow) > s.max && grow > 0 {
		s.used.Add(-grow)
		return false
	}
	if !had {
		s.items.Add(1)
	}
	v := append(make([]byte, 0, len(value)), value...)
	sh.m[string(key)] = item{flags: flags, cas: s.cas.Add(1), expires: expires, value: v}
	return true
}

func (s *store) remove(key []byte) bool {
	sh := &s.shards[s.shard(key)]
	sh.Lock()
	defer sh.Unlock()
	it, ok := sh.m[string(key)]
	if ok {
		delete(sh.m, string(key))
		s.items.Add(-1)
		s.used.Add(-cost(len(key), len(it.value)))
	}
	return ok
}
