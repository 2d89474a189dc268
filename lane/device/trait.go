// SPDX-License-Identifier: Apache-2.0

package device

// Properties of some kinds only, which these kinds define next to their type.

// Made reports whether o can be made by writing it, and removed. An object that cannot be
// made is a setting of another object; if it is absent, that object is gone too.
func Made(o Object) bool {
	t, table := o.(RSSTable)
	return kinds[o.Kind()].made && !(table && t.Context == 0)
}

// QueueOf returns the device's queue that o comes and goes with when the number of channels
// changes, -1 for none.
func QueueOf(o Object) int {
	if o, ok := o.(interface{ queue() int }); ok {
		return o.queue()
	}
	return -1
}

// StandsOn returns the keys of the objects that o cannot exist without, nearest first.
func StandsOn(o Object) []string {
	if o, ok := o.(interface{ standsOn() []string }); ok {
		return o.standsOn()
	}
	return nil
}

// Matches reports whether o is of a kind with one object per match. There are as many as
// members, and the kernel makes and removes each in one step.
func Matches(o Object) bool {
	_, ok := o.(interface{ match() Match })
	return ok
}

// GroupOf returns the control group whose sockets o is for, "" for none.
func GroupOf(o Object) string {
	if o, ok := o.(interface{ group() string }); ok {
		return o.group()
	}
	return ""
}
