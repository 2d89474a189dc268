// SPDX-License-Identifier: Apache-2.0

package device

import "reflect"

// Equal reports whether a and b mean the same to the kernel. Two absent objects
// are equal; an absent and a present object are not.
func Equal(a, b Object) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	if a, ok := a.(comparer); ok {
		return a.equal(b)
	}
	return reflect.DeepEqual(a, b)
}

// A comparer is an object with its own comparison. There are two reasons for one: values can look
// different and mean the same, or there are thousands of such objects and reflect.DeepEqual is
// slow.
type comparer interface{ equal(o Object) bool }
