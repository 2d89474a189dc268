// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/niclane/niclane/internal/lists"
	"github.com/niclane/niclane/lane/intent"
)

// A Difference is by which members a file differs from an earlier one.
type Difference struct {
	// Came is what the file asks for without the members that the earlier one has
	// too. Those that are left have their paths in the file.
	Came *intent.Intent
	// Members are those of Came, by path.
	Members map[string]*Member
	// Gone are those of the earlier file that the file has not.
	Gone []*Member
}

// Since says by which members f differs from an earlier file of the same Maker, nil
// for f without any member; ok is false if they may differ by something else.
func (f *File) Since(was *File) (d *Difference, ok bool) {
	if f.base == nil || was != nil && was.base != f.base {
		return nil, false
	}
	in := *f.Intent
	in.Lanes = slices.Clone(in.Lanes)
	d = &Difference{Came: &in, Members: map[string]*Member{}}
	for i := range in.Lanes {
		l := &in.Lanes[i]
		var before []*written
		if was != nil {
			before = was.written[l.Name]
		}
		from, gone, new := lists.Middle(before, f.written[l.Name])
		left := make(map[*Member]*written, len(gone))
		for _, w := range gone {
			left[w.of] = w
		}
		var came []intent.Member
		for j, w := range new {
			switch left[w.of] {
			case nil:
				came = append(came, l.Members[from+j])
				d.Members[l.Members[from+j].Path] = w.of
			case w:
				delete(left, w.of)
			default:
				return nil, false // the same member, written otherwise
			}
		}
		for _, w := range gone {
			if left[w.of] != nil {
				d.Gone = append(d.Gone, w.of)
			}
		}
		l.Members = came
	}
	return d, true
}
