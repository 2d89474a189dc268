// SPDX-License-Identifier: Apache-2.0

package emucard

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

// A Rule steers matching packets to an RSS context, or to the single queue Queue if Context is
// 0. If several rules match, the lowest location decides.
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

// Rules returns all rules, ordered by location.
func (c *Card) Rules() ([]Rule, error) {
	patterns, err := c.patterns()
	if err != nil {
		return nil, err
	}
	keys, targets, err := c.entries()
	if err != nil {
		return nil, err
	}
	out := make([]Rule, len(keys))
	for i, k := range keys {
		if k.Pattern >= maxPatterns {
			return nil, c.errorf("rule of pattern %d", k.Pattern)
		}
		m, err := flow.Decode(k.Flow, patterns[k.Pattern].Mask)
		if err != nil {
			return nil, c.errorf("%w", err)
		}
		out[i] = rule(m, targets[i])
	}
	slices.SortFunc(out, func(a, b Rule) int { return a.Location - b.Location })
	return out, nil
}

func rule(m device.Match, t target) Rule {
	return Rule{int(t.Location), m, int(t.Context), int(t.Queue)}
}

// Rule returns the rule with a match, or ENOENT if there is none. It looks up the match as the
// card does, and does not read the other rules: applying n rules would otherwise read n² of
// them.
func (c *Card) Rule(m device.Match) (Rule, error) {
	f, mask, err := flow.Encode(m)
	if err != nil {
		return Rule{}, c.errorf("%w: rule %s: %w", unix.EINVAL, m, err)
	}
	patterns, err := c.patterns()
	if err != nil {
		return Rule{}, err
	}
	_, t, err := c.lookup(&patterns, f, mask)
	if err != nil {
		return Rule{}, c.errorf("%w: rule %s", err, m)
	}
	return rule(m, t), nil
}

// lookup returns the rule that compares these fields with these values, or ENOENT if there is
// none.
func (c *Card) lookup(patterns *[maxPatterns]pattern, f, mask flow.Flow) (flow.Key, target, error) {
	for i, p := range patterns {
		if p.Used == 0 || p.Mask != mask {
			continue
		}
		k, t := flow.Key{Pattern: uint64(i), Flow: f}, target{}
		err := c.maps["card_rules"].Lookup(k, &t)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		}
		return k, t, err
	}
	return flow.Key{}, target{}, unix.ENOENT
}

// entries returns the rule table, in no order.
func (c *Card) entries() ([]flow.Key, []target, error) {
	return flow.Entries[target](c.maps["card_rules"])
}

// Anywhere as a rule's location means the lowest free one.
const Anywhere = -1

// locations is a bit set of the taken locations.
type locations [maxRules / 64]uint64

func (l *locations) taken(i int) bool { return l[i/64]&(1<<(i%64)) != 0 }
func (l *locations) take(i int)       { l[i/64] |= 1 << (i % 64) }
func (l *locations) free(i int)       { l[i/64] &^= 1 << (i % 64) }

func (l *locations) lowestFree(n int) (int, bool) {
	for i := range n {
		if !l.taken(i) {
			return i, true
		}
	}
	return -1, false
}

func (c *Card) locations() (l locations, err error) {
	return l, c.maps["card_locations"].Lookup(uint32(0), &l)
}

func (c *Card) setLocations(l locations) error {
	return c.maps["card_locations"].Put(uint32(0), l)
}

// place takes the location that a rule asks for. The error is EEXIST if it is taken, ENOSPC if
// all are. A kill may have left free locations marked as taken, so place checks the marks
// before it fails.
func (c *Card) place(location int) (int, error) {
	l, err := c.locations()
	if err != nil {
		return -1, err
	}
	for range 2 {
		at, ok := location, location != Anywhere && !l.taken(location)
		if location == Anywhere {
			at, ok = l.lowestFree(int(c.info.Rules))
		}
		if ok {
			l.take(at)
			return at, c.setLocations(l)
		}
		_, targets, err := c.entries()
		if err != nil {
			return -1, err
		}
		l = locations{}
		for _, t := range targets {
			if t.Location < maxRules {
				l.take(int(t.Location))
			}
		}
	}
	if location != Anywhere {
		return -1, c.errorf("%w: rule location %d", unix.EEXIST, location)
	}
	return -1, c.errorf("%w: all %d rules are taken", unix.ENOSPC, c.info.Rules)
}

// AddRule adds a rule, at its location or Anywhere. The error is EEXIST if its location or its
// match is taken, EINVAL if its context or queue does not exist, and ENOSPC if the rules in use
// would compare more than 16 different sets of fields.
func (c *Card) AddRule(r Rule) error {
	f, mask, err := flow.Encode(r.Match)
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
	patterns, err := c.patterns()
	if err != nil {
		return err
	}
	switch _, have, err := c.lookup(&patterns, f, mask); {
	case err == nil:
		return c.errorf("%w: rule %s is at location %d", unix.EEXIST, r.Match, have.Location)
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	slot, p, err := c.slot(&patterns, mask)
	if err != nil {
		return err
	}
	if r.Location, err = c.place(r.Location); err != nil {
		return err
	}
	p.Used++
	if err := c.maps["card_patterns"].Put(uint32(slot), p); err != nil {
		return err
	}
	t := target{uint32(r.Location), uint16(r.Context), uint16(r.Queue)}
	return c.maps["card_rules"].Update(flow.Key{Pattern: uint64(slot), Flow: f}, t, ebpf.UpdateNoExist)
}

func (c *Card) checkRule(r Rule) error {
	if r.Location != Anywhere && (r.Location < 0 || r.Location >= int(c.info.Rules)) {
		return c.errorf("%w: rule location %d: want 0 to %d, or anywhere", unix.EINVAL, r.Location, c.info.Rules-1)
	}
	if r.Context != 0 && r.Queue != 0 {
		return c.errorf("%w: rule %s leads to both RSS context %d and queue %d", unix.EINVAL, r.Match, r.Context,
			r.Queue)
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
	return nil
}

// DeleteRule removes the rule with a match and returns it, or ENOENT if there is none.
func (c *Card) DeleteRule(m device.Match) (Rule, error) {
	f, mask, err := flow.Encode(m)
	if err != nil {
		return Rule{}, c.errorf("%w: rule %s: %w", unix.EINVAL, m, err)
	}
	unlock, err := c.lock()
	if err != nil {
		return Rule{}, err
	}
	defer unlock()
	patterns, err := c.patterns()
	if err != nil {
		return Rule{}, err
	}
	k, t, err := c.lookup(&patterns, f, mask)
	if err != nil {
		return Rule{}, c.errorf("%w: rule %s", err, m)
	}
	if err := c.maps["card_rules"].Delete(k); err != nil {
		return Rule{}, err
	}
	p := patterns[k.Pattern]
	if p.Used--; p.Used == 0 {
		p = pattern{}
	}
	if err := c.maps["card_patterns"].Put(uint32(k.Pattern), p); err != nil {
		return Rule{}, err
	}
	l, err := c.locations()
	if err == nil {
		l.free(int(t.Location))
		err = c.setLocations(l)
	}
	return rule(m, t), err
}

func (c *Card) patterns() (ps [maxPatterns]pattern, err error) {
	var cursor ebpf.MapBatchCursor
	var keys [maxPatterns]uint32
	if _, err := c.maps["card_patterns"].BatchLookup(&cursor, keys[:], ps[:], nil); err != nil &&
		!errors.Is(err, ebpf.ErrKeyNotExist) {
		return ps, err
	}
	return ps, nil
}

// slot returns the slot of the pattern mask, or a free one. If none is free, it counts the
// rules of each pattern again, because a killed process may have left a count too high.
func (c *Card) slot(ps *[maxPatterns]pattern, mask flow.Flow) (int, pattern, error) {
	for range 2 {
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
	return -1, pattern{}, c.errorf("%w: its rules already compare %d different sets of fields, the most that it supports",
		unix.ENOSPC, maxPatterns)
}

func (c *Card) recount(ps *[maxPatterns]pattern) error {
	var used [maxPatterns]uint32
	keys, _, err := c.entries()
	if err != nil {
		return err
	}
	for _, k := range keys {
		if k.Pattern < maxPatterns {
			used[k.Pattern]++
		}
	}
	var errs []error
	for i, p := range ps {
		if p.Used = used[i]; p.Used == 0 {
			p = pattern{}
		}
		ps[i] = p
		errs = append(errs, c.maps["card_patterns"].Put(uint32(i), p))
	}
	return errors.Join(errs...)
}
