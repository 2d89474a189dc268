// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/niclane/niclane/config"
	"github.com/niclane/niclane/intent"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// A File is a lanes file made of a policy.
type File struct {
	Text []byte
	// Intent is what the text asks for. It is not to be changed.
	Intent *intent.Intent
	// paths gives, by path in the lanes file, that in the policy.
	paths map[string]string
}

// Make writes the lanes file of a policy on a node and reads it as niclane does.
// The error is of lanes.yaml's reader, or of Errors.
func Make(name string, spec *v1alpha1.LanePolicySpec, n Node) (*File, error) {
	return new(Maker).Make(name, spec, n)
}

// A Maker makes a node's lanes file again and again, as pods come and go. Reading
// the whole text each time took two fifths of what a pod costs beside 109 others;
// a Maker reads what was not in the file before. It is for one goroutine.
type Maker struct {
	name, text string                   // of the file without members
	file       *config.File             // nil: not read
	members    map[string]intent.Member // by their text
}

// Make is the function Make.
func (k *Maker) Make(name string, spec *v1alpha1.LanePolicySpec, n Node) (*File, error) {
	f, members, err := write(spec, n)
	if err != nil {
		return nil, err
	}
	empty := n
	empty.Members = nil
	if base, _, err := write(spec, empty); err == nil {
		f.Intent = k.read(name, string(base.Text), members)
	}
	if f.Intent != nil {
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
func (k *Maker) read(name, text string, members map[string][]string) *intent.Intent {
	if k.file == nil || k.name != name || k.text != text {
		file, err := config.ParseFile(name, []byte(text))
		if err != nil {
			return nil
		}
		k.name, k.text, k.file = name, text, file
	}
	read, lists := make(map[string]intent.Member, len(k.members)+1), make(map[string][]intent.Member, len(members))
	for lane, texts := range members {
		list := make([]intent.Member, len(texts))
		for i, text := range texts {
			m, known := k.members[text]
			if !known {
				ms, err := config.ParseMembers(name, []byte(text))
				if err != nil || len(ms) != 1 {
					return nil
				}
				m = ms[0]
			}
			read[text], list[i] = m, m
		}
		lists[lane] = list
	}
	in, err := k.file.WithMembers(lists)
	if err != nil {
		return nil
	}
	k.members = read
	return in
}

// write writes the text of a lanes file, and that of each member by lane.
func write(spec *v1alpha1.LanePolicySpec, n Node) (*File, map[string][]string, error) {
	w := &writer{f: &File{paths: map[string]string{}}, members: map[string][]string{}}
	w.b.Grow(1<<10 + len(n.Members)<<8) // which most take
	w.file(spec, n)
	w.f.Text = []byte(w.b.String())
	if len(w.errs) > 0 {
		return nil, nil, w.errs
	}
	return w.f, w.members, nil
}
