// SPDX-License-Identifier: Apache-2.0

package emucard_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lab/emucard"
	"github.com/niclane/niclane/lane/device"
)

const queues = 4

// withCard runs f in a namespace whose veth has an emulated card behind it.
func withCard(t *testing.T, f func(t *testing.T, c *emucard.Client)) {
	vethtest.Run(t, queues, func(t *testing.T) {
		vethtest.AddCard(t, emucard.Config{Queues: queues, Rules: 3, Contexts: 3, LinkRate: 1e9})
		f(t, open(t))
	})
}

func open(t *testing.T) *emucard.Client {
	t.Helper()
	et, err := ethtool.Open()
	must.Do(t, err)
	t.Cleanup(func() { et.Close() })
	c, err := emucard.NewClient(et)
	must.Do(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func read(t *testing.T, c *emucard.Client, o device.Object) device.Object {
	t.Helper()
	got, err := c.Read(o)
	if err != nil {
		t.Fatalf("Read(%s): %v", o.Key(), err)
	}
	return got
}

// want checks the present value of the object id. If want is nil, the object must not exist.
func want(t *testing.T, c *emucard.Client, id, want device.Object) {
	t.Helper()
	if diff := cmp.Diff(want, read(t, c, id)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", id.Key(), diff)
	}
}

func table(context int, configured bool, queues ...int) device.RSSTable {
	t := device.RSSTable{Dev: vethtest.Dev, Context: context, Configured: configured}
	for i := range emucard.TableSize {
		t.Queues = append(t.Queues, queues[i%len(queues)])
	}
	return t
}

func rule(port uint16, context, queue int) device.Rule {
	return device.Rule{
		Dev: vethtest.Dev, Context: context, Queue: queue,
		Match: device.Match{Family: 4, Protocol: "tcp", Local: "10.9.0.1/32", LocalPort: port},
	}
}

func TestTables(t *testing.T) {
	withCard(t, func(t *testing.T, c *emucard.Client) {
		own := table(0, false, 0, 1, 2, 3)
		want(t, c, own, own)
		vethtest.Write(t, c, own, table(0, true, 0, 1))
		want(t, c, own, table(0, true, 0, 1))
		// These are the queues of the card's own table, but set by a user.
		vethtest.Write(t, c, table(0, true, 0, 1), table(0, true, 0, 1, 2, 3))
		want(t, c, own, table(0, true, 0, 1, 2, 3))
		vethtest.Write(t, c, table(0, true, 0, 1, 2, 3), own)
		want(t, c, own, own)

		lane := table(1, false, 2, 3)
		want(t, c, lane, nil)
		vethtest.Write(t, c, nil, lane)
		want(t, c, lane, lane)
		vethtest.Write(t, c, lane, table(1, false, 3))
		want(t, c, lane, table(1, false, 3))
		if err := c.Write(nil, lane); !errors.Is(err, unix.EEXIST) || !strings.Contains(err.Error(), "rss/v0/1") {
			t.Errorf("making a context twice: %v, want EEXIST", err)
		}
		vethtest.Write(t, c, table(1, false, 3), nil)
		want(t, c, lane, nil)
		want(t, c, own, own)
		want(t, c, device.RSSTable{Dev: vethtest.Dev, Context: 3}, nil)
		want(t, c, device.RSSTable{Dev: "nosuch0"}, nil)

		for _, tt := range []struct {
			name     string
			old, new device.Object
			want     error
		}{
			{"delete what is not there", lane, nil, unix.ENOENT},
			{"more contexts than the card has", nil, table(3, false, 0), unix.EINVAL},
			{"a queue that does not exist", own, table(0, true, queues), unix.EINVAL},
			{"no such device", nil, device.RSSTable{Dev: "nosuch0", Context: 1}, unix.ENODEV},
			{"no card", nil, device.RSSTable{Dev: vethtest.Peer, Context: 1, Queues: []int{0}}, unix.EOPNOTSUPP},
		} {
			must.Refuse(t, tt.name, c.Write(tt.old, tt.new), tt.want)
		}
		if err := c.Write(own, nil); err == nil {
			t.Error("the default context was deleted")
		}
		want(t, c, own, own)
	})
}

func TestRules(t *testing.T) {
	withCard(t, func(t *testing.T, c *emucard.Client) {
		vethtest.Write(t, c, nil, table(1, false, 2, 3))
		a, b := rule(11211, 1, 0), rule(6379, 0, 3)
		want(t, c, a, nil)
		vethtest.Write(t, c, nil, a)
		vethtest.Write(t, c, nil, b)
		want(t, c, a, a)
		want(t, c, b, b)
		must.Refuse(t, "deleting a context in use", c.Write(table(1, false, 2, 3), nil), unix.EBUSY)
		moved := rule(11211, 0, 2)
		vethtest.Write(t, c, a, moved)
		want(t, c, a, moved)
		want(t, c, b, b)
		must.Refuse(t, "moving a rule to a context that does not exist", c.Write(moved, rule(11211, 2, 0)), unix.EINVAL)
		want(t, c, a, moved) // Write has put the old rule back
		vethtest.Write(t, c, moved, nil)
		want(t, c, a, nil)
		want(t, c, b, b)
		must.Refuse(t, "deleting a rule twice", c.Write(moved, nil), unix.ENOENT)
		vethtest.Write(t, c, nil, a) // the rule takes the location that is free now
		vethtest.Write(t, c, nil, rule(1, 0, 0))
		must.Refuse(t, "one rule more than fits", c.Write(nil, rule(2, 0, 0)), unix.ENOSPC)
		if err := c.Write(nil, b); err == nil {
			t.Error("a rule was added twice")
		}
	})
}

func TestReadSteering(t *testing.T) {
	withCard(t, func(t *testing.T, c *emucard.Client) {
		vethtest.Write(t, c, nil, table(2, false, 1))
		vethtest.Write(t, c, nil, rule(11211, 2, 0))
		got, err := c.Steering(vethtest.Dev)
		must.Do(t, err)
		wanted := emucard.Steering{
			Emulated: true, LinkRate: 1e9, MaxContexts: 2, Capacity: 3,
			Tables: []device.RSSTable{table(0, false, 0, 1, 2, 3), table(2, false, 1)},
			Rules:  []device.Rule{rule(11211, 2, 0)},
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		got, err = c.Steering(vethtest.Peer)
		if err != nil || got.Emulated || !errors.Is(got.TablesErr, unix.EOPNOTSUPP) ||
			!errors.Is(got.RulesErr, unix.EOPNOTSUPP) {
			t.Errorf("a veth without a card: %+v, %v", got, err)
		}
		if _, err := c.Steering("nosuch0"); !errors.Is(err, unix.ENODEV) {
			t.Errorf("no such device: %v, want ENODEV", err)
		}
	})
}

// TestCardMadeAgain: a lab goes down and up again. Its new card has the same address as the old
// one.
func TestCardMadeAgain(t *testing.T) {
	withCard(t, func(t *testing.T, c *emucard.Client) {
		vethtest.Write(t, c, nil, rule(11211, 0, 1))
		vethtest.MakeCard(t, emucard.Config{Queues: 2, Rules: 9, Contexts: 1})
		want(t, c, rule(11211, 0, 1), nil)
		got, err := c.Steering(vethtest.Dev)
		if err != nil || got.Capacity != 9 || len(got.Rules) != 0 {
			t.Errorf("%d of %d rules, %v; want none of 9", len(got.Rules), got.Capacity, err)
		}
	})
}
