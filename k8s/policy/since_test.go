// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"testing"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// TestSince: a file differs from an earlier one by members, or by something else as well.
func TestSince(t *testing.T) {
	spec := &v1alpha1.LanePolicySpec{
		Uplink: v1alpha1.Uplink{Dev: "eth0"},
		Classes: []v1alpha1.Class{
			{Name: "web", Mode: v1alpha1.Shared, Queues: 1, Members: 9},
			{Name: "db", Mode: v1alpha1.Shared, Queues: 1, Members: 9},
		},
	}
	member := func(name, lane, port string) *Member {
		return &Member{Name: name, Lane: lane, Protocol: "tcp", Ports: []string{port}}
	}
	a, b, c, d := member("a", "web", "1"), member("b", "web", "2"), member("c", "db", "3"), member("d", "db", "4")
	var maker Maker
	file := func(members ...*Member) *File {
		t.Helper()
		f, err := maker.Make("lanes.yaml", spec, Node{Members: members})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	is := func(f, was *File, gone []*Member, came map[string]*Member) {
		t.Helper()
		diff, ok := f.Since(was)
		if !ok {
			t.Fatal("may differ by something else")
		}
		if !slices.Equal(diff.Gone, gone) {
			t.Errorf("gone: %v, want %v", diff.Gone, gone)
		}
		if len(diff.Members) != len(came) {
			t.Errorf("came: %v, want %v", diff.Members, came)
		}
		n := 0
		for i, l := range diff.Came.Lanes {
			n += len(l.Members)
			for _, m := range l.Members {
				if came[m.Path] == nil || diff.Members[m.Path] != came[m.Path] || m.Name != came[m.Path].Name {
					t.Errorf("%s is %+v, want %v", m.Path, m, came[m.Path])
				}
			}
			if l.Name != f.Intent.Lanes[i].Name || l.Queues != 1 {
				t.Errorf("lane %+v", l)
			}
		}
		if n != len(came) {
			t.Errorf("%d members, want %d", n, len(came))
		}
	}
	first := file(a, c)
	is(first, nil, nil, map[string]*Member{"lanes.web.members[0]": a, "lanes.db.members[0]": c})
	second := file(b, c, d)
	is(second, first, []*Member{a}, map[string]*Member{"lanes.web.members[0]": b, "lanes.db.members[1]": d})
	if n := len(second.Intent.Lanes[1].Members); n != 2 {
		t.Errorf("what the file asks for has %d members in the second lane", n)
	}
	is(second, second, nil, nil)
	is(file(), second, []*Member{b, c, d}, nil)

	// One stays between such as go and come.
	e, g := member("e", "web", "5"), member("g", "web", "6")
	is(file(e, b, g), file(a, b), []*Member{a}, map[string]*Member{"lanes.web.members[0]": e, "lanes.web.members[2]": g})

	second = file(b, c, d)
	spec.Classes[0].Aligned = true
	if _, ok := file(b, c, d).Since(second); ok {
		t.Error("a member is written otherwise, and is taken for the same")
	}
	second = file(b, c, d)
	spec.Classes[1].Queues = 2
	if _, ok := file(b, c, d).Since(second); ok {
		t.Error("another policy is taken for the same")
	}
	if _, ok := (&File{Text: second.Text, Intent: second.Intent}).Since(nil); ok {
		t.Error("a file of somebody else's is taken for known")
	}
}
