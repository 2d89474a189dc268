// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"errors"
	"io/fs"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/genetlink/genltest"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

// attrs encodes a message by hand, so that the test does not share the client's encoding.
func attrs(t testing.TB, f func(ae *netlink.AttributeEncoder)) []byte {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	f(ae)
	b, err := ae.Encode()
	must.Do(t, err)
	return b
}

// handle encodes a handle: a scope (1 netdev, 2 queue, 3 node) and a number.
func handle(ae *netlink.AttributeEncoder, typ uint16, scope, id uint32) {
	ae.Nested(typ, func(h *netlink.AttributeEncoder) error {
		h.Uint32(1, scope)
		h.Uint32(2, id)
		return nil
	})
}

// connect returns a client to which serve answers in place of the kernel. Its only device, d0,
// has index 7.
func connect(t *testing.T, serve func(m genetlink.Message, nm netlink.Message) ([]genetlink.Message, error)) *Conn {
	t.Helper()
	family := genetlink.Family{ID: 29, Name: Family, Version: 1}
	c := Open()
	c.index = func(dev string) (int, error) {
		if dev != "d0" {
			return 0, unix.ENODEV
		}
		return 7, nil
	}
	must.Do(t, c.Use(genltest.Dial(genltest.ServeFamily(family, serve))))
	t.Cleanup(func() { c.Close() })
	return c
}

func TestRequests(t *testing.T) {
	s := device.Shaper{Dev: "d0", Queue: 6, Min: 1e9, Max: 2e9}
	most := device.Shaper{Dev: "d0", Queue: 6, Max: 3e9}
	binding := func(ae *netlink.AttributeEncoder) {
		ae.Uint32(8, 7)
		handle(ae, 1, 2, 6)
	}
	for _, x := range []struct {
		name     string
		old, new device.Object
		command  uint8
		want     func(ae *netlink.AttributeEncoder)
	}{
		{"both", nil, s, 2, func(ae *netlink.AttributeEncoder) {
			binding(ae)
			ae.Uint32(2, 0)
			ae.Uint64(3, 1e9)
			ae.Uint64(4, 2e9)
		}},
		{"a card without minimum rates", nil, most, 2, func(ae *netlink.AttributeEncoder) {
			binding(ae)
			ae.Uint32(2, 0)
			ae.Uint64(4, 3e9)
		}},
		{"the minimum goes", s, most, 2, func(ae *netlink.AttributeEncoder) {
			binding(ae)
			ae.Uint32(2, 0)
			ae.Uint64(3, 0)
			ae.Uint64(4, 3e9)
		}},
		{"removal", s, nil, 3, binding},
	} {
		t.Run(x.name, func(t *testing.T) {
			var got []byte
			var command uint8
			c := connect(t, func(m genetlink.Message, _ netlink.Message) ([]genetlink.Message, error) {
				got, command = slices.Clone(m.Data), m.Header.Command
				return nil, genltest.Error(0)
			})
			must.Do(t, c.Write(x.old, x.new))
			if diff := cmp.Diff(attrs(t, x.want), got); command != x.command || diff != "" {
				t.Errorf("command %d, want %d; (-want +got):\n%s", command, x.command, diff)
			}
		})
	}
	c := connect(t, func(genetlink.Message, netlink.Message) ([]genetlink.Message, error) {
		return nil, genltest.Error(int(unix.EOPNOTSUPP))
	})
	if err := c.Write(nil, s); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("%v, want EOPNOTSUPP", err)
	}
	if err := c.Write(nil, device.Shaper{Dev: "none", Queue: 6, Max: 1}); !errors.Is(err, unix.ENODEV) {
		t.Errorf("%v, want ENODEV", err)
	}
	must.Refuse(t, "somebody else's settings",
		c.Write(s, device.Shaper{Dev: "d0", Queue: 6, Max: 1, Other: true}), unix.EOPNOTSUPP)
}

func TestReplies(t *testing.T) {
	one := func(queue uint32, more func(ae *netlink.AttributeEncoder)) []byte {
		return attrs(t, func(ae *netlink.AttributeEncoder) {
			ae.Uint32(8, 7)
			handle(ae, 9, 1, 0)
			handle(ae, 1, 2, queue)
			more(ae)
		})
	}
	replies := [][]byte{
		one(0, func(ae *netlink.AttributeEncoder) { ae.Uint32(2, 0); ae.Uint32(3, 1e9); ae.Uint64(4, 400e9) }),
		one(1, func(ae *netlink.AttributeEncoder) { ae.Uint32(4, 1e6) }),
		one(2, func(ae *netlink.AttributeEncoder) { ae.Uint32(4, 1e6); ae.Uint32(5, 1500) }),
		one(3, func(ae *netlink.AttributeEncoder) { ae.Uint32(4, 1e6); ae.Uint32(6, 1) }),
		one(4, func(ae *netlink.AttributeEncoder) { ae.Uint32(4, 1e6); ae.Uint32(7, 3) }),
		one(5, func(ae *netlink.AttributeEncoder) { ae.Uint32(2, 1); ae.Uint32(4, 1e6) }),
		attrs(t, func(ae *netlink.AttributeEncoder) {
			ae.Uint32(8, 7)
			handle(ae, 9, 3, 4)
			handle(ae, 1, 2, 6)
			ae.Uint32(4, 5)
		}),
		attrs(t, func(ae *netlink.AttributeEncoder) {
			ae.Uint32(8, 7)
			handle(ae, 9, 0, 0)
			handle(ae, 1, 1, 0)
			ae.Uint32(4, 5)
		}), // the shaper of the device
	}
	want := []device.Shaper{
		{Dev: "d0", Queue: 0, Min: 1e9, Max: 400e9}, {Dev: "d0", Queue: 1, Max: 1e6},
		{Dev: "d0", Queue: 2, Max: 1e6, Other: true}, {Dev: "d0", Queue: 3, Max: 1e6, Other: true},
		{Dev: "d0", Queue: 4, Max: 1e6, Other: true}, {Dev: "d0", Queue: 5, Max: 1e6, Other: true},
		{Dev: "d0", Queue: 6, Max: 5, Other: true},
	}
	c := connect(t, func(m genetlink.Message, nm netlink.Message) ([]genetlink.Message, error) {
		if nm.Header.Flags&netlink.Dump == 0 {
			return []genetlink.Message{{Header: m.Header, Data: replies[0]}}, nil
		}
		var out []genetlink.Message
		for _, b := range replies {
			out = append(out, genetlink.Message{Header: m.Header, Data: b})
		}
		return out, nil
	})
	got, err := c.Shapers("d0")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := c.Read(device.Shaper{Dev: "d0", Queue: 0}); err != nil || !device.Equal(got, want[0]) {
		t.Errorf("%v, %v, want %v", got, err, want[0])
	}
	none := connect(t, func(genetlink.Message, netlink.Message) ([]genetlink.Message, error) {
		return nil, genltest.Error(int(unix.ENOENT))
	})
	if got, err := none.Read(device.Shaper{Dev: "d0", Queue: 0}); got != nil || err != nil {
		t.Errorf("of a queue without one: %v, %v", got, err)
	}
}

func TestCaps(t *testing.T) {
	for _, x := range []struct {
		name  string
		flags []uint16
		want  Caps
		err   error
	}{
		{"both", []uint16{3, 6, 7, 8}, Caps{Min: true, Max: true}, nil},
		{"no minimum", []uint16{3, 7}, Caps{Max: true}, nil},
		{"packets only", []uint16{4, 6, 7}, Caps{}, unix.EOPNOTSUPP},
	} {
		c := connect(t, func(m genetlink.Message, _ netlink.Message) ([]genetlink.Message, error) {
			return []genetlink.Message{{Header: m.Header, Data: attrs(t, func(ae *netlink.AttributeEncoder) {
				ae.Uint32(1, 7)
				ae.Uint32(2, 2)
				for _, f := range x.flags {
					ae.Flag(f, true)
				}
			})}}, nil
		})
		if got, err := c.Caps("d0"); got != x.want || !errors.Is(err, x.err) {
			t.Errorf("%s: %+v, %v, want %+v, %v", x.name, got, err, x.want, x.err)
		}
	}
}

// TestNoFamily: Caps fails on the loopback device, with or without the family in the kernel.
func TestNoFamily(t *testing.T) {
	c := Open()
	defer c.Close()
	if _, err := c.Caps("lo"); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("%v: want that there is no family, or that loopback has no shapers", err)
	} else if err == nil {
		t.Error("loopback has shapers")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(attrs(f, func(ae *netlink.AttributeEncoder) { handle(ae, 1, 2, 6); ae.Uint64(3, 1e9); ae.Uint32(4, 5) }))
	f.Fuzz(func(t *testing.T, b []byte) { _, _, _ = decode("d0", b) })
}
