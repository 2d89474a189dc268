// SPDX-License-Identifier: Apache-2.0

package result

// A tally is a map that keeps the order in which its keys were added.
type tally[K comparable, V any] struct {
	keys []K
	of   map[K]*V
}

// at returns a pointer to the value of a key. A new key gets the zero value.
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
