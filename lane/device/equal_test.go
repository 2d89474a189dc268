// SPDX-License-Identifier: Apache-2.0

package device

import (
	"reflect"
	"testing"
)

// TestEqualSeesEveryField changes each field of the kinds that compare field by field. Equal must
// see every change, also of a field that is added to the kind later.
func TestEqualSeesEveryField(t *testing.T) {
	for _, o := range []Object{
		FilterEntry{Filter: "f", Match: Match{Family: 4}, Priority: "1:10", Queues: []int{1}, Lane: 1, DSCP: "ef",
			PCP: "5"},
		FilterLink{Filter: "f", Rate: 1, Horizon: 1, Mark: 1, Ranks: []int{1}},
		XDPEntry{Dev: "eth0", Match: Match{Family: 4}, Lane: 1},
		Rule{Dev: "eth0", Match: Match{Family: 4}, Context: 1, Queue: 2},
	} {
		if !Equal(o, clone(o)) {
			t.Errorf("%+v differs from itself", o)
		}
		typ := reflect.TypeOf(o)
		for i := range typ.NumField() {
			other := reflect.New(typ).Elem()
			other.Set(reflect.ValueOf(clone(o)))
			other.Field(i).SetZero()
			if Equal(o, other.Interface().(Object)) {
				t.Errorf("%s: another %s is not seen", typ, typ.Field(i).Name)
			}
		}
	}
}

// clone returns a deep copy of o.
func clone(o Object) Object {
	if e, ok := o.(FilterEntry); ok {
		e.Queues = append([]int(nil), e.Queues...)
		return e
	}
	return o
}

// TestEqualTables checks that an RSS table is equal to a longer one that repeats it: both lead
// packets to the same queues.
func TestEqualTables(t *testing.T) {
	table := func(context int, queues ...int) RSSTable {
		return RSSTable{Dev: "d0", Context: context, Queues: queues, Configured: context == 0}
	}
	for _, c := range []struct {
		a, b RSSTable
		want bool
	}{
		{table(1, 2, 3), table(1, 2, 3), true},
		{table(1, 2, 3), table(1, 2, 3, 2, 3), true},
		{table(0, 0, 1, 0, 1), table(0, 0, 1), true},
		{table(1, 2, 3), table(1, 2, 3, 2, 4), false},
		{table(1, 2, 3), table(1, 2, 3, 2), false},
		{table(1, 2, 3), table(2, 2, 3), false},
		{table(1), table(1, 2), false},
	} {
		if got := Equal(c.a, c.b); got != c.want || Equal(c.b, c.a) != c.want {
			t.Errorf("%v and %v: equal %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
