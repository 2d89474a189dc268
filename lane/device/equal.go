// SPDX-License-Identifier: Apache-2.0

package device

import "reflect"

// Equal reports whether a and b mean the same to the kernel. Two absent
// objects are equal; an object differs from absence.
func Equal(a, b Object) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	if a, ok := a.(comparer); ok {
		return a.equal(b)
	}
	return reflect.DeepEqual(a, b)
}

// A comparer has values that mean the same and look different, or is one of the
// thousands that a lane of a thousand members has.
type comparer interface{ equal(o Object) bool }
