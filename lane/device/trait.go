// SPDX-License-Identifier: Apache-2.0

package device

// What holds for some kinds only, they say beside their type.

// Made reports whether o can be made by writing it, and removed. What cannot, and is
// absent, is gone together with what it is a setting of.
func Made(o Object) bool {
	t, table := o.(RSSTable)
	return kinds[o.Kind()].made && !(table && t.Context == 0)
}

// QueueOf returns the queue of its device with which o comes and goes when the number of
// channels changes, -1 for none.
func QueueOf(o Object) int {
	if o, ok := o.(interface{ queue() int }); ok {
		return o.queue()
	}
	return -1
}

// StandsOn returns the keys of what o is gone without, nearest first.
func StandsOn(o Object) []string {
	if o, ok := o.(interface{ standsOn() []string }); ok {
		return o.standsOn()
	}
	return nil
}

// Matches reports whether o is for the packets of one match: of such kinds there are as
// many objects as members, and the kernel makes and removes each in one.
func Matches(o Object) bool {
	_, ok := o.(interface{ match() Match })
	return ok
}

// GroupOf returns the control group of whose sockets o is, "" for none.
func GroupOf(o Object) string {
	if o, ok := o.(interface{ group() string }); ok {
		return o.group()
	}
	return ""
}
