// SPDX-License-Identifier: Apache-2.0

package emucard

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// readCard returns the table or rule that has the key of o, or nil if there is none.
func readCard(card *Card, o device.Object) (device.Object, error) {
	if t, ok := o.(device.RSSTable); ok {
		if t.Context < 0 || t.Context >= card.Info().Contexts {
			return nil, nil
		}
		v, err := readTable(card, t.Dev, t.Context)
		if errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return v, nil
	}
	r := o.(device.Rule)
	have, err := card.Rule(r.Match)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return deviceRule(r.Dev, have), nil
}

func readTable(card *Card, dev string, context int) (device.RSSTable, error) {
	queues, configured, err := card.RSS(context)
	return device.RSSTable{Dev: dev, Context: context, Queues: queues, Configured: context == 0 && configured}, err
}

// writeTable makes, changes or deletes an RSS context. The default context always exists. If next
// is the table of the default context, and no user has set it, writeTable resets it to the card's
// own table.
func writeTable(card *Card, old, next device.Object) error {
	if next == nil {
		t := old.(device.RSSTable)
		if t.Context == 0 {
			return errors.New("the default RSS context cannot be deleted")
		}
		return card.DeleteContext(t.Context)
	}
	t := next.(device.RSSTable)
	switch {
	case t.Context == 0 && !t.Configured:
		return card.ResetRSS()
	case t.Context == 0 || old != nil:
		return card.SetRSS(t.Context, t.Queues)
	}
	return card.CreateContext(t.Context, t.Queues)
}

// writeRule adds, moves or deletes a rule. Cards cannot change a rule. So to move a rule, writeRule
// deletes it and adds the new one at the same location. If that fails, writeRule adds the old one
// again.
func writeRule(card *Card, old, next device.Object) error {
	if old == nil {
		return card.AddRule(cardRule(next.(device.Rule), Anywhere))
	}
	was, err := card.DeleteRule(old.(device.Rule).Match)
	if err != nil || next == nil {
		return err
	}
	if err := card.AddRule(cardRule(next.(device.Rule), was.Location)); err != nil {
		return errors.Join(err, card.AddRule(was))
	}
	return nil
}

func cardRule(r device.Rule, location int) Rule {
	return Rule{Location: location, Match: r.Match, Context: r.Context, Queue: r.Queue}
}

func deviceRule(dev string, r Rule) device.Rule {
	return device.Rule{Dev: dev, Match: r.Match, Context: r.Context, Queue: r.Queue}
}

// A Steering has the RSS tables and rules of a device.
type Steering struct {
	// Emulated is true if the device has the lab's emulated card. Only then are LinkRate (bit/s) and
	// MaxContexts (without the default context) set.
	Emulated    bool
	LinkRate    uint64
	MaxContexts int

	// Tables begins with the table of the default context. If there are no tables, TablesErr is the
	// reason: EOPNOTSUPP if the device does not support them.
	Tables    []device.RSSTable
	TablesErr error
	// Rules are in the order of their locations. Other has the rules that a device.Rule cannot
	// express. If there are no rules, RulesErr is the reason.
	Rules    []device.Rule
	Other    []device.OtherRule
	Capacity int
	RulesErr error
}

// Steering returns a device's tables and rules. If the device does not exist, the error is ENODEV.
func (c *Client) Steering(dev string) (Steering, error) {
	card, err := c.card(dev)
	if errors.Is(err, fs.ErrPermission) {
		return Steering{TablesErr: err, RulesErr: err}, nil // the caller may not read the card
	}
	if err != nil {
		return Steering{}, err
	}
	if card != nil {
		return cardSteering(card, dev)
	}
	var s Steering
	s.Tables, s.TablesErr = c.ethtool.RSS(dev)
	if len(s.Tables) > 0 && len(s.Tables[0].Queues) == 0 {
		s.Tables = nil // the driver supports RSS, but this device has none
	}
	r, err := c.ethtool.Rules(dev)
	s.Rules, s.Other, s.Capacity, s.RulesErr = r.Rules, r.Other, r.Capacity, err
	return s, nil
}

func cardSteering(card *Card, dev string) (Steering, error) {
	info := card.Info()
	s := Steering{Emulated: true, LinkRate: info.LinkRate, MaxContexts: info.Contexts - 1, Capacity: info.Rules}
	contexts, err := card.Contexts()
	if err != nil {
		return s, err
	}
	for _, id := range contexts {
		t, err := readTable(card, dev, id)
		if errors.Is(err, unix.ENOENT) {
			continue // the context was deleted meanwhile
		}
		if err != nil {
			return s, err
		}
		s.Tables = append(s.Tables, t)
	}
	rules, err := card.Rules()
	if err != nil {
		return s, err
	}
	for _, r := range rules {
		s.Rules = append(s.Rules, deviceRule(dev, r))
	}
	return s, nil
}
