// SPDX-License-Identifier: Apache-2.0

package emucard

import (
	"golang.org/x/sys/unix"
)

// context corresponds to struct context in c/card.c.
type context struct {
	Used       uint16
	Configured uint16
	Table      [TableSize]uint16
}

func (c *Card) context(id int) (context, error) {
	var x context
	if id < 0 || id >= int(c.info.Contexts) {
		return x, c.errorf("%w: RSS context %d: want 0 to %d", unix.EINVAL, id, c.info.Contexts-1)
	}
	err := c.maps["card_contexts"].Lookup(uint32(id), &x)
	return x, err
}

func (c *Card) setContext(id int, x context) error {
	return c.maps["card_contexts"].Put(uint32(id), x)
}

// encodeTable converts queues to a table. It returns an error if there are not TableSize queues, or
// if a queue does not exist.
func (c *Card) encodeTable(queues []int) (t [TableSize]uint16, err error) {
	if len(queues) != TableSize {
		return t, c.errorf("%w: indirection table of %d entries: want %d", unix.EINVAL, len(queues), TableSize)
	}
	for i, q := range queues {
		if q < 0 || q >= int(c.info.Queues) {
			return t, c.errorf("%w: indirection table entry %d: queue %d: want 0 to %d", unix.EINVAL, i, q,
				c.info.Queues-1)
		}
		t[i] = uint16(q)
	}
	return t, nil
}

// RSS returns the indirection table of an RSS context, and whether a user has set it. Context 0
// always exists. If another context does not exist, the error is ENOENT.
func (c *Card) RSS(id int) (queues []int, configured bool, err error) {
	x, err := c.context(id)
	if err != nil {
		return nil, false, err
	}
	if x.Used == 0 {
		return nil, false, c.errorf("%w: RSS context %d", unix.ENOENT, id)
	}
	for _, q := range x.Table {
		queues = append(queues, int(q))
	}
	return queues, x.Configured != 0, nil
}

// SetRSS writes the indirection table of an existing context.
func (c *Card) SetRSS(id int, queues []int) error {
	return c.writeContext(id, func(x *context) (err error) {
		if x.Used == 0 {
			return c.errorf("%w: RSS context %d", unix.ENOENT, id)
		}
		x.Configured = 1
		x.Table, err = c.encodeTable(queues)
		return err
	})
}

// ResetRSS gives context 0 its original table: all queues in turn.
func (c *Card) ResetRSS() error {
	return c.writeContext(0, func(x *context) error {
		*x = defaultContext(int(c.info.Queues))
		return nil
	})
}

// CreateContext makes an RSS context. id is 1 or more. If the context exists, the error is EEXIST.
func (c *Card) CreateContext(id int, queues []int) error {
	return c.writeContext(id, func(x *context) (err error) {
		if x.Used != 0 {
			return c.errorf("%w: RSS context %d", unix.EEXIST, id)
		}
		x.Used, x.Configured = 1, 1
		x.Table, err = c.encodeTable(queues)
		return err
	})
}

// DeleteContext removes an RSS context. While a rule leads to the context, the error is EBUSY, as
// in ethtool_check_rss_ctx_busy of net/ethtool/common.c. For the default context it is EINVAL.
func (c *Card) DeleteContext(id int) error {
	return c.writeContext(id, func(x *context) error {
		if id == 0 {
			return c.errorf("%w: the default RSS context cannot be deleted", unix.EINVAL)
		}
		if x.Used == 0 {
			return c.errorf("%w: RSS context %d", unix.ENOENT, id)
		}
		rules, err := c.Rules()
		if err != nil {
			return err
		}
		for _, r := range rules {
			if r.Context == id {
				return c.errorf("%w: RSS context %d: the rule at location %d leads to it", unix.EBUSY, id, r.Location)
			}
		}
		*x = context{}
		return nil
	})
}

func (c *Card) writeContext(id int, change func(*context) error) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	x, err := c.context(id)
	if err != nil {
		return err
	}
	if err := change(&x); err != nil {
		return err
	}
	return c.setContext(id, x)
}

// Contexts returns the IDs of the contexts that exist, ascending. The first is always 0.
func (c *Card) Contexts() ([]int, error) {
	var ids []int
	for id := range int(c.info.Contexts) {
		x, err := c.context(id)
		if err != nil {
			return nil, err
		}
		if x.Used != 0 {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func defaultContext(queues int) context {
	x := context{Used: 1}
	for i := range x.Table {
		x.Table[i] = uint16(i % queues)
	}
	return x
}
