// SPDX-License-Identifier: Apache-2.0

package emucard

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/internal/tuple"
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
	keys, targets, err := c.entries()
	if err != nil {
		return nil, err
	}
	out := make([]Rule, len(keys))
	for i, k := range keys {
		if k.Pattern >= maxPatterns {
			return nil, c.errorf("rule of pattern %d", k.Pattern)
		}
		m, err := tuple.Decode(k.Flow, patterns[k.Pattern].Mask)
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

// Rule returns the rule with a match, ENOENT if there is none. It looks it up
// as the card does and does not go through the others: applying n rules would
// otherwise take n² of them.
func (c *Card) Rule(m device.Match) (Rule, error) {
	f, mask, err := tuple.Encode(m)
	if err != nil {
		return Rule{}, c.errorf("%w: rule %s: %w", unix.EINVAL, m, err)
	}
	patterns, err := c.patterns()
	if err != nil {
		return Rule{}, err
	}
	for i, p := range patterns {
		if p.Used == 0 || p.Mask != mask {
			continue
		}
		var t target
		err := c.maps["card_rules"].Lookup(tuple.Key{Pattern: uint64(i), Flow: f}, &t)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		}
		return rule(m, t), err
	}
	return Rule{}, c.errorf("%w: rule %s", unix.ENOENT, m)
}

// entries returns the rule table, in no order, valid until the next call. The
// table is read in a few system calls (BPF_MAP_LOOKUP_BATCH, Linux 5.6).
func (c *Card) entries() ([]tuple.Key, []target, error) {
	m := c.maps["card_rules"]
	if c.keys == nil {
		// 64 KiB that every rule would otherwise touch anew.
		c.keys, c.targets = make([]tuple.Key, maxRules), make([]target, maxRules)
	}
	keys, targets := c.keys, c.targets
	var cursor ebpf.MapBatchCursor
	n := 0
	for n < maxRules {
		got, err := m.BatchLookup(&cursor, keys[n:], targets[n:], nil)
		n += got
		if errors.Is(err, ebpf.ErrKeyNotExist) { // the end
			break
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return keys[:n], targets[:n], nil
}

// Anywhere is the location of a rule that shall go to the lowest free one.
const Anywhere = -1

// place returns where a rule that asks for a location goes: EEXIST if that is
// taken, ENOSPC if all are.
func (c *Card) place(location int) (int, error) {
	_, targets, err := c.entries()
	if err != nil {
		return -1, err
	}
	taken := make([]bool, c.info.Rules)
	for _, t := range targets {
		if int(t.Location) < len(taken) {
			taken[t.Location] = true
		}
	}
	if location != Anywhere {
		if taken[location] {
			return -1, c.errorf("%w: rule location %d", unix.EEXIST, location)
		}
		return location, nil
	}
	if i := slices.Index(taken, false); i >= 0 {
		return i, nil
	}
	return -1, c.errorf("%w: all %d rules are taken", unix.ENOSPC, len(taken))
}

// AddRule adds a rule, at its location or Anywhere. EEXIST if its location or its match is taken, EINVAL if
// its context or queue does not exist, ENOSPC if the rules in use would compare
// more than 16 different sets of fields.
func (c *Card) AddRule(r Rule) error {
	f, mask, err := tuple.Encode(r.Match)
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
	if r.Location, err = c.place(r.Location); err != nil {
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
	return c.maps["card_rules"].Update(tuple.Key{Pattern: uint64(slot), Flow: f}, t, ebpf.UpdateNoExist)
}

func (c *Card) checkRule(r Rule) error {
	if r.Location != Anywhere && (r.Location < 0 || r.Location >= int(c.info.Rules)) {
		return c.errorf("%w: rule location %d: want 0 to %d, or anywhere", unix.EINVAL, r.Location, c.info.Rules-1)
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
	have, err := c.Rule(r.Match)
	if err == nil {
		return c.errorf("%w: rule %s is at location %d", unix.EEXIST, r.Match, have.Location)
	}
	if !errors.Is(err, unix.ENOENT) {
		return err
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
	keys, targets, err := c.entries()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(targets, func(t target) bool { return int(t.Location) == location })
	if i < 0 {
		return c.errorf("%w: rule at location %d", unix.ENOENT, location)
	}
	k := keys[i]
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
	var cursor ebpf.MapBatchCursor
	var keys [maxPatterns]uint32
	if _, err := c.maps["card_patterns"].BatchLookup(&cursor, keys[:], ps[:], nil); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return ps, err
	}
	return ps, nil
}

// slot returns where the pattern mask is, or a free slot for it. If none is
// free, those are counted anew whose count a kill may have left too high.
func (c *Card) slot(mask tuple.Flow) (int, pattern, error) {
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
		errs = append(errs, c.maps["card_patterns"].Put(uint32(i), p))
	}
	return errors.Join(errs...)
}
