// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/niclane/niclane/internal/lists"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/intent"
)

// A File is a lanes file made of a policy.
type File struct {
	Text []byte
	// Intent is what the text asks for. It is not to be changed.
	Intent *intent.Intent
	// paths gives, by path in the lanes file, that in the policy.
	paths map[string]string

	base    *config.File          // without members; nil: Intent was read with them
	written map[string][]*written // members by lane, in the order of Intent's
}

// Make writes the lanes file of a policy on a node and reads it as niclane does.
// The error is of lanes.yaml's reader, or of Errors.
func Make(name string, spec *v1alpha1.LanePolicySpec, n Node) (*File, error) {
	return new(Maker).Make(name, spec, n)
}

// A Maker makes a node's lanes file again and again, as pods come and go. Reading
// the whole text each time took two fifths of what a pod costs beside 109 others;
// a Maker writes and reads what was not in the file before. It is for one goroutine.
type Maker struct {
	name, text string       // of the file without members
	file       *config.File // nil: not read
	lanes      *config.Membership
	members    map[*Member]*written
	lists      map[string][]*written // the same, by lane
}

// A written is a member with its text in the file, for a class that was aligned then or
// not.
type written struct {
	of      *Member
	aligned bool
	text    string
	read    *intent.Member // nil: the text is to be read
}

// Make is the function Make. Members that n has in common with an earlier one, by
// their address, are taken to be as they were.
func (k *Maker) Make(name string, spec *v1alpha1.LanePolicySpec, n Node) (*File, error) {
	f, members, err := write(spec, n, k.members)
	if err != nil {
		return nil, err
	}
	empty := n
	empty.Members = nil
	if base, _, err := write(spec, empty, nil); err == nil {
		f.Intent = k.read(name, string(base.Text), members)
	}
	if f.Intent != nil {
		f.base, f.written = k.file, members
		return f, nil
	}
	// Something is wrong, and is said with its line.
	parsed, err := config.ParseFile(name, f.Text)
	if err != nil {
		return nil, f.inPolicy(err)
	}
	f.Intent = parsed.Intent
	return f, nil
}

// read reads a file without members, and members by lane; nil if it cannot.
func (k *Maker) read(name, text string, members map[string][]*written) *intent.Intent {
	if k.file == nil || k.name != name || k.text != text {
		file, err := config.ParseFile(name, []byte(text))
		if err != nil {
			return nil
		}
		k.name, k.text, k.file, k.lanes = name, text, file, file.Membership()
	}
	all := make(map[string][]*intent.Member, len(members))
	for lane, ws := range members {
		list := make([]*intent.Member, len(ws))
		for i, w := range ws {
			if w.read == nil {
				ms, err := config.ParseMembers(name, []byte(w.text))
				if err != nil || len(ms) != 1 {
					return nil
				}
				w.read = &ms[0]
			}
			list[i] = w.read
		}
		all[lane] = list
	}
	in, err := k.lanes.With(all)
	if err != nil {
		return nil
	}
	k.keep(members)
	return in
}

// keep takes note of members by lane, and of no others.
func (k *Maker) keep(members map[string][]*written) {
	if k.members == nil {
		k.members = map[*Member]*written{}
	}
	for lane := range k.lists {
		_, gone, _ := lists.Middle(k.lists[lane], members[lane])
		for _, w := range gone {
			delete(k.members, w.of)
		}
	}
	for lane := range members {
		_, _, came := lists.Middle(k.lists[lane], members[lane])
		for _, w := range came {
			k.members[w.of] = w
		}
	}
	k.lists = members
}

// write writes the text of a lanes file, and that of each member by lane.
// Those that are known and are to be written as they were are not written again.
func write(spec *v1alpha1.LanePolicySpec, n Node, known map[*Member]*written) (*File, map[string][]*written, error) {
	w := &writer{f: &File{paths: map[string]string{}}, members: map[string][]*written{}, known: known, byLane: map[string][]*Member{}}
	for _, m := range n.Members {
		w.byLane[m.Lane] = append(w.byLane[m.Lane], m)
	}
	w.b.Grow(1<<10 + len(n.Members)<<8) // which most take
	w.file(spec, n)
	w.f.Text = w.b.Bytes()
	if len(w.errs) > 0 {
		return nil, nil, w.errs
	}
	return w.f, w.members, nil
}
