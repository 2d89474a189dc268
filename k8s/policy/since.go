// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/niclane/niclane/intent"
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
	stay := map[*Member]*written{}
	if was != nil {
		for _, all := range was.written {
			for _, w := range all {
				stay[w.of] = w
			}
		}
	}
	in := *f.Intent
	in.Lanes = slices.Clone(in.Lanes)
	d = &Difference{Came: &in, Members: map[string]*Member{}}
	for i := range in.Lanes {
		l := &in.Lanes[i]
		var came []intent.Member
		for j, w := range f.written[l.Name] {
			before, known := stay[w.of]
			if known && before != w {
				return nil, false // the same member, written otherwise
			}
			if delete(stay, w.of); !known {
				came = append(came, l.Members[j])
				d.Members[l.Members[j].Path] = w.of
			}
		}
		l.Members = came
	}
	for i := range in.Lanes {
		if was == nil || len(stay) == 0 {
			break
		}
		for _, w := range was.written[in.Lanes[i].Name] {
			if stay[w.of] != nil {
				d.Gone = append(d.Gone, w.of)
			}
		}
	}
	return d, true
}
