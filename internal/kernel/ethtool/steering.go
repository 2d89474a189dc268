// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// readSteering returns the RSS table or rule with o's identity. It returns nil if there is
// none, if the device does not exist, or if the driver has no such objects. It returns ENOENT
// as an error, unlike the function absent: the kernel answers ENOENT if a rule disappears
// during the read.
func (c *Client) readSteering(o device.Object) (device.Object, error) {
	v, err := c.findSteering(o)
	if NotSupported(err) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	return v, err
}

func (c *Client) findSteering(o device.Object) (device.Object, error) {
	if t, ok := o.(device.RSSTable); ok {
		tables, err := c.RSS(t.Dev)
		for _, have := range tables {
			if have.Key() == o.Key() {
				return have, nil
			}
		}
		return nil, err
	}
	now, there, err := c.Rule(o.(device.Rule))
	if !there {
		return nil, err
	}
	return now, nil
}

// writeSteering changes an RSS table or rule from old to next; nil means absent.
func (c *Client) writeSteering(old, next device.Object) error {
	o, write := next, c.writeRule
	if o == nil {
		o = old
	}
	if _, table := o.(device.RSSTable); table {
		write = c.writeTable
	}
	if err := write(old, next); err != nil {
		return fmt.Errorf("%s: %w", o.Key(), err)
	}
	return nil
}

// writeTable makes, changes or deletes an RSS context of a card.
func (c *Client) writeTable(old, next device.Object) error {
	if next == nil {
		t := old.(device.RSSTable)
		return c.explainDelete(t, c.DeleteContext(t.Dev, t.Context))
	}
	t := next.(device.RSSTable)
	switch {
	case t.Context == 0 && !t.Configured:
		return c.ResetRSS(t.Dev)
	case t.Context == 0 || old != nil:
		return c.SetRSS(t.Dev, t.Context, t.Queues)
	}
	return c.explainCreate(t, c.CreateContext(t.Dev, t.Context, t.Queues))
}

// explainDelete adds names to err if it is EBUSY: those of the rules that still lead to the
// context.
func (c *Client) explainDelete(t device.RSSTable, err error) error {
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	rules, rerr := c.Rules(t.Dev)
	if rerr != nil {
		return err
	}
	var who []string
	for i, r := range rules.Rules {
		if r.Context == t.Context {
			who = append(who, fmt.Sprintf("rule %d (%s)", rules.Locations[i], r.Match))
		}
	}
	if len(who) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s leads to it", err, strings.Join(who, ", "))
}

// explainCreate adds the number of existing contexts to err if the card refuses another
// one. The errno alone does not explain the refusal: it is EBUSY if the kernel numbers the
// contexts (xa_alloc; ERANGE by netlink), ENOSPC on mlx5, EINVAL on other cards.
func (c *Client) explainCreate(t device.RSSTable, err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EBUSY) &&
		!errors.Is(err, unix.ERANGE) {
		return err
	}
	tables, rerr := c.RSS(t.Dev)
	if rerr != nil || len(tables) == 0 {
		return err
	}
	return fmt.Errorf("%w: it has %d RSS contexts beside the default, and may have room for no more", err,
		len(tables)-1)
}

// writeRule adds, moves or deletes a rule of a card.
func (c *Client) writeRule(old, next device.Object) error {
	switch {
	case old == nil:
		r := next.(device.Rule)
		return c.explainAdd(r, c.AddRule(r))
	case next == nil:
		return c.DeleteRule(old.(device.Rule))
	}
	r := next.(device.Rule)
	return c.explainAdd(r, c.MoveRule(old.(device.Rule), r))
}

// explainAdd adds a probable cause to err, because drivers give no text with these errnos.
func (c *Client) explainAdd(r device.Rule, err error) error {
	var why string
	switch {
	case errors.Is(err, unix.ENOSPC):
		why = "the card has no room for another rule"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		why = "the card cannot match these fields, or not together with those of its present rules (ethtool -n " +
			r.Dev + ")"
		if f, ferr := c.Features(r.Dev); ferr == nil && !f[ntuple].On {
			why = "ntuple filters are off (ethtool -K " + r.Dev + " ntuple on)"
		}
	default:
		return err
	}
	return fmt.Errorf("%w: %s", err, why)
}

// ntuple is the feature that most drivers need for rules.
const ntuple = "rx-ntuple-filter"
