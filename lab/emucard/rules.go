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

// A Rule steers matching packets to the RSS context Context. If Context is 0, it steers them to the
// single queue Queue. If several rules match a packet, the one with the lowest location decides.
type Rule struct {
	Location int
	Match    device.Match
	Context  int
	Queue    int
}

// target corresponds to struct rule in c/card.c.
type target struct {
	Location       uint32
	Context, Queue uint16
}

// Rules returns all rules in the order of their locations.
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

// Rule returns the rule with a match. If there is none, the error is ENOENT. It looks up that match
// only, as the card does. If it read all rules, niclane would read n² rules to apply n rules.
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

// lookup returns the rule whose match compares the fields in mask with the values in f. If there is
// none, the error is ENOENT.
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

// entries returns the keys and targets of all rules, in no particular order.
func (c *Card) entries() ([]flow.Key, []target, error) {
	return flow.Entries[target](c.maps["card_rules"])
}

// Anywhere as a rule's location stands for the lowest free location.
const Anywhere = -1

// locations is a bit set of the locations that rules have.
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

// place takes the location that a rule asks for. If that location is taken, the error is EEXIST. If
// all are taken, it is ENOSPC. A killed process may have left a free location marked as taken. So
// place reads the rules and corrects the marks before it fails.
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

// AddRule adds a rule, at its location or Anywhere. If its location or its match is taken, the
// error is EEXIST. If its context or queue does not exist, it is EINVAL. The rules of a card may
// compare at most 16 different sets of fields; if there would be more, the error is ENOSPC.
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

// DeleteRule removes the rule with a match and returns it. If there is none, the error is ENOENT.
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

// slot returns the slot of the pattern with this mask. If there is none, it returns a free slot. If
// no slot is free, it counts each pattern's rules again, because a killed process may have left a
// count too high.
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
	return -1, pattern{}, c.errorf("%w: its rules already compare %d different sets of fields, the most that it "+
		"supports",
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
