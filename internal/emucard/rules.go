// SPDX-License-Identifier: Apache-2.0

package emucard

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/device"
)

// A Rule steers what matches to an RSS context, or to the single queue Queue
// if Context is 0. Where several match, the lowest location decides.
type Rule struct {
	Location int
	Match    device.Match
	Context  int
	Queue    int
}

// target is struct rule.
type target struct {
	Location       uint32
	Context, Queue uint16
}

// Rules returns all rules by location.
func (c *Card) Rules() ([]Rule, error) {
	patterns, err := c.patterns()
	if err != nil {
		return nil, err
	}
	var out []Rule
	var k flowKey
	var t target
	it := c.maps["card_rules"].Iterate()
	for it.Next(&k, &t) {
		if k.Pattern >= maxPatterns {
			return nil, c.errorf("rule of pattern %d", k.Pattern)
		}
		m, err := decode(k.Flow, patterns[k.Pattern].Mask)
		if err != nil {
			return nil, c.errorf("%w", err)
		}
		out = append(out, Rule{int(t.Location), m, int(t.Context), int(t.Queue)})
	}
	slices.SortFunc(out, func(a, b Rule) int { return a.Location - b.Location })
	return out, it.Err()
}

// FreeLocation returns the lowest location without a rule, ENOSPC if all are
// taken.
func (c *Card) FreeLocation() (int, error) {
	rules, err := c.Rules()
	if err != nil {
		return -1, err
	}
	for i, r := range rules {
		if r.Location != i {
			return i, nil
		}
	}
	if len(rules) == int(c.info.Rules) {
		return -1, c.errorf("%w: all %d rules are taken", unix.ENOSPC, len(rules))
	}
	return len(rules), nil
}

// AddRule adds a rule. EEXIST if its location or its match is taken, EINVAL if
// its context or queue does not exist, ENOSPC if the rules in use would compare
// more than 16 different sets of fields.
func (c *Card) AddRule(r Rule) error {
	f, mask, err := encode(r.Match)
	if err != nil {
		return c.errorf("%w: rule %s: %w", unix.EINVAL, r.Match, err)
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.checkRule(r); err != nil {
		return err
	}
	slot, p, err := c.slot(mask)
	if err != nil {
		return err
	}
	p.Used++
	if err := c.maps["card_patterns"].Put(uint32(slot), p); err != nil {
		return err
	}
	t := target{uint32(r.Location), uint16(r.Context), uint16(r.Queue)}
	return c.maps["card_rules"].Update(flowKey{uint64(slot), f}, t, ebpf.UpdateNoExist)
}

func (c *Card) checkRule(r Rule) error {
	if r.Location < 0 || r.Location >= int(c.info.Rules) {
		return c.errorf("%w: rule location %d: want 0 to %d", unix.EINVAL, r.Location, c.info.Rules-1)
	}
	if r.Context != 0 && r.Queue != 0 {
		return c.errorf("%w: rule %s leads to both RSS context %d and queue %d", unix.EINVAL, r.Match, r.Context, r.Queue)
	}
	if r.Queue < 0 || r.Queue >= int(c.info.Queues) {
		return c.errorf("%w: rule %s: queue %d: want 0 to %d", unix.EINVAL, r.Match, r.Queue, c.info.Queues-1)
	}
	x, err := c.context(r.Context)
	if err != nil {
		return err
	}
	if x.Used == 0 {
		return c.errorf("%w: rule %s: RSS context %d does not exist", unix.EINVAL, r.Match, r.Context)
	}
	rules, err := c.Rules()
	if err != nil {
		return err
	}
	for _, have := range rules {
		if have.Location == r.Location {
			return c.errorf("%w: rule location %d", unix.EEXIST, r.Location)
		}
		if have.Match == r.Match {
			return c.errorf("%w: rule %s is at location %d", unix.EEXIST, r.Match, have.Location)
		}
	}
	return nil
}

// DeleteRule removes the rule at a location, ENOENT if there is none.
func (c *Card) DeleteRule(location int) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	var k flowKey
	var t target
	found := false
	it := c.maps["card_rules"].Iterate()
	for it.Next(&k, &t) {
		if int(t.Location) == location {
			found = true
			break
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	if !found {
		return c.errorf("%w: rule at location %d", unix.ENOENT, location)
	}
	if err := c.maps["card_rules"].Delete(k); err != nil {
		return err
	}
	var p pattern
	if err := c.maps["card_patterns"].Lookup(uint32(k.Pattern), &p); err != nil {
		return err
	}
	if p.Used--; p.Used == 0 {
		p = pattern{}
	}
	return c.maps["card_patterns"].Put(uint32(k.Pattern), p)
}

func (c *Card) patterns() (ps [maxPatterns]pattern, err error) {
	for i := range ps {
		if err := c.maps["card_patterns"].Lookup(uint32(i), &ps[i]); err != nil {
			return ps, err
		}
	}
	return ps, nil
}

// slot returns where the pattern mask is, or a free slot for it. If none is
// free, those are counted anew whose count a kill may have left too high.
func (c *Card) slot(mask flow) (int, pattern, error) {
	for range 2 {
		ps, err := c.patterns()
		if err != nil {
			return -1, pattern{}, err
		}
		free := -1
		for i, p := range ps {
			if p.Used > 0 && p.Mask == mask {
				return i, p, nil
			}
			if p.Used == 0 && free < 0 {
				free = i
			}
		}
		if free >= 0 {
			return free, pattern{Mask: mask}, nil
		}
		if err := c.recount(ps); err != nil {
			return -1, pattern{}, err
		}
	}
	return -1, pattern{}, c.errorf("%w: its rules compare %d different sets of fields, which is the most", unix.ENOSPC, maxPatterns)
}

func (c *Card) recount(ps [maxPatterns]pattern) error {
	var used [maxPatterns]uint32
	var k flowKey
	var t target
	it := c.maps["card_rules"].Iterate()
	for it.Next(&k, &t) {
		if k.Pattern < maxPatterns {
			used[k.Pattern]++
		}
	}
	errs := []error{it.Err()}
	for i, p := range ps {
		if p.Used = used[i]; p.Used == 0 {
			p = pattern{}
		}
		errs = append(errs, c.maps["card_patterns"].Put(uint32(i), p))
	}
	return errors.Join(errs...)
}
