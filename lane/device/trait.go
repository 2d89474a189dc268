// SPDX-License-Identifier: Apache-2.0

package device

// This file has the properties that only some kinds of objects have. Each of these kinds defines
// them next to its type.

// Made reports whether niclane can create o by a write, and can remove it. An object that cannot
// be created is a setting of another object; it is absent only if that object is absent too.
func Made(o Object) bool {
	t, table := o.(RSSTable)
	return kinds[o.Kind()].made && !(table && t.Context == 0)
}

// QueueOf returns the queue that o belongs to: a change of the number of channels creates or
// removes both. It returns -1 for none.
func QueueOf(o Object) int {
	if o, ok := o.(interface{ queue() int }); ok {
		return o.queue()
	}
	return -1
}

// StandsOn returns the keys of the objects that o needs to exist, nearest first.
func StandsOn(o Object) []string {
	if o, ok := o.(interface{ standsOn() []string }); ok {
		return o.standsOn()
	}
	return nil
}

// Matches reports whether each object of o's kind has a Match, as rules have. There are as many
// such objects as members. The kernel makes and removes each of them in one step.
func Matches(o Object) bool {
	_, ok := o.(interface{ match() Match })
	return ok
}

// GroupOf returns the control group whose sockets get o's priority, "" for none.
func GroupOf(o Object) string {
	if o, ok := o.(interface{ group() string }); ok {
		return o.group()
	}
	return ""
}
