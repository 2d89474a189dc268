// SPDX-License-Identifier: Apache-2.0

package result

// A tally has a V for each key, in the order in which the keys were added.
type tally[K comparable, V any] struct {
	keys []K
	of   map[K]*V
}

// at returns the value of a key, the zero value if the key is new.
func (t *tally[K, V]) at(key K) *V {
	v, ok := t.of[key]
	if !ok {
		if t.of == nil {
			t.of = map[K]*V{}
		}
		v = new(V)
		t.of[key], t.keys = v, append(t.keys, key)
	}
	return v
}
