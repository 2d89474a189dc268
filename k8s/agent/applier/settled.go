// SPDX-License-Identifier: Apache-2.0

package card

import (
	"reflect"
	"slices"
	"strings"

	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// A settled is a card that is as a file says, seen as lanes without members and what
// each member has beside that. What a pod that comes or goes needs is then planned
// on lanes without any other pod, so that it takes no longer beside a hundred than
// alone: the plan of all members was a third of what each pod more cost every other
// one. It decides nothing: the plan is package plan's, and whatever it says beside
// the steps of those members that differ has all members planned instead.
type settled struct {
	file *policy.File
	// base is the card without members, owned what niclane has there, and bare the
	// plan of that.
	base  *device.State
	owned plan.Owned
	bare  *plan.Plan
	made  map[*policy.Member][]plan.OwnedRecord
	// What members are too many of.
	patterns map[plan.Pattern]bool
	rules    map[string]int // by device
}

// settle looks at the card as st and the records have it after file was applied; nil if
// members cannot be planned by themselves there. That a card's lanes and choices are the
// same with all members and with none says that what one has does not depend on which
// others there are.
func settle(file *policy.File, st *device.State, records []journal.Record) *settled {
	d, ok := file.Since(nil)
	if !ok {
		return nil
	}
	s := &settled{
		file: file, base: without(st, records), made: make(map[*policy.Member][]plan.OwnedRecord, len(d.Members)),
		patterns: map[plan.Pattern]bool{}, rules: map[string]int{},
	}
	ours := make(map[string]plan.OwnedRecord, len(records))
	for _, r := range records {
		o := plan.OwnedRecord{Original: r.Original, Last: r.Last, Part: r.Part, Cause: r.Cause}
		switch {
		case !member(r.Object()):
			s.owned.Records = append(s.owned.Records, o)
		case r.Original != nil || r.Uncertain:
			return nil
		default:
			ours[r.Key()] = o
		}
	}
	bare := *d.Came
	bare.Lanes = slices.Clone(bare.Lanes)
	for i := range bare.Lanes {
		bare.Lanes[i].Members = nil
	}
	var err error
	if s.bare, err = plan.Make(&bare, s.base, s.owned); err != nil || len(s.bare.Forget) > 0 {
		return nil
	}
	all, err := plan.Make(d.Came, s.base, s.owned)
	if err != nil || !s.beside(all) {
		return nil
	}
	for _, step := range all.Steps {
		m, key := d.Members[step.Cause], step.Key()
		is, there := ours[key]
		if m == nil || step.Old != nil || !there || !device.Equal(is.Last, step.New) || !s.add(m, is) {
			return nil
		}
		delete(ours, key)
	}
	if len(ours) > 0 {
		return nil
	}
	return s
}

// beside reports whether p is the plan of the lanes without members but for its
// steps, and for which applications place their threads themselves.
func (s *settled) beside(p *plan.Plan) bool {
	as := *p
	as.Steps, as.Lanes = s.bare.Steps, slices.Clone(p.Lanes)
	for i := range as.Lanes {
		as.Lanes[i].Aligned = false
	}
	return reflect.DeepEqual(&as, s.bare)
}

// compared returns what an object of a member compares, and the device that takes it as
// a rule.
func compared(o device.Object) (m device.Match, rules string, ok bool) {
	switch o := o.(type) {
	case device.Rule:
		return o.Match, o.Dev, true
	case device.FilterEntry:
		return o.Match, "", true
	case device.XDPEntry:
		return o.Match, "", true
	case device.Flower:
		return o.Match, "", true
	}
	return m, "", false
}

// add takes note of what a member has.
func (s *settled) add(m *policy.Member, r plan.OwnedRecord) bool {
	match, rules, ok := compared(r.Last)
	s.made[m] = append(s.made[m], r)
	s.patterns[plan.PatternOf(match)] = true
	s.rules[rules]++
	return ok
}

// A some is the plan of some members.
type some struct {
	*plan.Plan
	file *policy.File
	gone []*policy.Member
	came map[string]*policy.Member // by path
}

// plan plans what f has other members than the file that is applied; nil if that has to
// be planned together with all others.
func (s *settled) plan(f *policy.File) *some {
	d, ok := f.Since(s.file)
	if !ok {
		return nil
	}
	var back []device.Change
	owned := plan.Owned{Records: slices.Clip(s.owned.Records)}
	freed := map[string]int{}
	for _, m := range d.Gone {
		for _, r := range s.made[m] {
			back = append(back, device.Change{New: r.Last})
			owned.Records = append(owned.Records, r)
			_, rules, _ := compared(r.Last)
			freed[rules]++
		}
	}
	st := s.base.After(back)
	for i := range st.Devices { // as many rules as those who stay leave
		if dev := &st.Devices[i]; dev.RuleCapacity > 0 {
			if dev.RuleCapacity -= s.rules[dev.Name] - freed[dev.Name]; dev.RuleCapacity <= 0 {
				return nil
			}
		}
	}
	p, err := plan.Make(d.Came, st, owned)
	if err != nil || !s.beside(p) {
		return nil
	}
	left, served := len(back), map[*policy.Member]bool{}
	for _, step := range p.Steps {
		m := d.Members[step.Cause]
		match, _, ok := compared(step.Object())
		switch {
		case ok && step.New == nil:
			left--
		case ok && step.Old == nil && m != nil && s.patterns[plan.PatternOf(match)]:
			served[m] = true
		default:
			return nil
		}
	}
	if left > 0 || len(served) < len(d.Members) { // one has what another had, or nothing
		return nil
	}
	for i := range p.Lanes {
		for j := range f.Intent.Lanes {
			if l := &f.Intent.Lanes[j]; l.Name == p.Lanes[i].Name {
				for k := range l.Members {
					p.Lanes[i].Aligned = p.Lanes[i].Aligned || l.Members[k].Aligned
				}
			}
		}
	}
	return &some{p, f, d.Gone, d.Members}
}

// take takes note that p was applied.
func (s *settled) take(p *some) {
	for _, m := range p.gone {
		for _, r := range s.made[m] {
			_, rules, _ := compared(r.Last)
			s.rules[rules]--
		}
		delete(s.made, m)
	}
	for _, step := range p.Steps {
		if step.New != nil {
			s.add(p.came[step.Cause], plan.OwnedRecord{Last: step.New, Part: step.Part, Cause: step.Cause})
		}
	}
	s.file = p.file
}

// state is the card with the members.
func (s *settled) state() *device.State {
	var all []device.Change
	for _, own := range s.made {
		for _, r := range own {
			all = append(all, device.Change{New: r.Last})
		}
	}
	slices.SortFunc(all, func(a, b device.Change) int { return strings.Compare(a.New.Key(), b.New.Key()) })
	return s.base.After(all)
}
