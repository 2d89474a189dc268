// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// writeTable makes, changes or deletes an RSS context of a card.
func (c *Client) writeTable(old, new device.Object) error {
	if new == nil {
		t := old.(device.RSSTable)
		return c.explainDelete(t, c.ethtool.DeleteContext(t.Dev, t.Context))
	}
	t := new.(device.RSSTable)
	switch {
	case t.Context == 0 && !t.Configured:
		return c.ethtool.ResetRSS(t.Dev)
	case t.Context == 0 || old != nil:
		return c.ethtool.SetRSS(t.Dev, t.Context, t.Queues)
	}
	return c.explainCreate(t, c.ethtool.CreateContext(t.Dev, t.Context, t.Queues))
}

// explainDelete names the rules that keep a context.
func (c *Client) explainDelete(t device.RSSTable, err error) error {
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	rules, rerr := c.ethtool.Rules(t.Dev)
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

// explainCreate says how many contexts there are where the card refuses one
// more. By ioctl there is no reason: EBUSY where the kernel numbers contexts
// (xa_alloc; ERANGE by netlink), ENOSPC of mlx5, EINVAL of others.
func (c *Client) explainCreate(t device.RSSTable, err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ERANGE) {
		return err
	}
	tables, rerr := c.ethtool.RSS(t.Dev)
	if rerr != nil || len(tables) == 0 {
		return err
	}
	return fmt.Errorf("%w: it has %d RSS contexts beside the default, and may have room for no more", err, len(tables)-1)
}

// writeRule adds, moves or deletes a rule of a card.
func (c *Client) writeRule(old, new device.Object) error {
	switch {
	case old == nil:
		r := new.(device.Rule)
		return c.explainAdd(r, c.ethtool.AddRule(r))
	case new == nil:
		return c.ethtool.DeleteRule(old.(device.Rule))
	}
	r := new.(device.Rule)
	return c.explainAdd(r, c.ethtool.MoveRule(old.(device.Rule), r))
}

// explainAdd says what drivers mean that give an error number alone.
func (c *Client) explainAdd(r device.Rule, err error) error {
	var why string
	switch {
	case errors.Is(err, unix.ENOSPC):
		why = "the card has no room for another rule"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		why = "the card does not match these fields, or not together with those of the rules it has (ethtool -n " + r.Dev + ")"
		if f, ferr := c.ethtool.Features(r.Dev); ferr == nil && !f[ntuple].On {
			why = "ntuple filters are off (ethtool -K " + r.Dev + " ntuple on)"
		}
	default:
		return err
	}
	return fmt.Errorf("%w: %s", err, why)
}

// ntuple is the feature by which most drivers take rules.
const ntuple = "rx-ntuple-filter"
