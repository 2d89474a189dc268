// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

// A fakeFilters is a clsact with flower filters, by handle. It counts the requests for one
// filter and for all.
type fakeFilters struct {
	t          *testing.T
	filters    map[uint32]device.Flower
	next       uint32
	ones, alls int
}

func (f *fakeFilters) client() *Client {
	c, err := Open()
	must.Do(f.t, err)
	c.nl.Close()
	c.nl = nltest.Dial(f.answer)
	f.t.Cleanup(func() { c.Close() })
	return c
}

func (f *fakeFilters) add(fl device.Flower) {
	f.next++
	f.filters[f.next] = fl
}

func (f *fakeFilters) answer(req []netlink.Message) ([]netlink.Message, error) {
	m := req[0]
	index := int(binary.NativeEndian.Uint32(m.Data[4:]))
	handle := binary.NativeEndian.Uint32(m.Data[8:])
	ack := netlink.Message{Header: netlink.Header{Type: netlink.Error, Sequence: m.Header.Sequence},
		Data: make([]byte, 20)}
	done := netlink.Message{Header: netlink.Header{Type: netlink.Done, Flags: netlink.Multi,
		Sequence: m.Header.Sequence}}
	switch m.Header.Type {
	case unix.RTM_GETQDISC:
		clsact := request{typ: unix.RTM_NEWQDISC, ifindex: index, handle: 0xffff0000, parent: 0xfffffff1,
			kind: "clsact"}
		return []netlink.Message{f.message(m, clsact), done}, nil
	case unix.RTM_DELTFILTER:
		if _, ok := f.filters[handle]; !ok {
			return nltest.Error(int(unix.ENOENT), req)
		}
		delete(f.filters, handle)
		return []netlink.Message{ack}, nil
	}
	if m.Header.Flags&netlink.Dump == netlink.Dump {
		f.alls++
		var out []netlink.Message
		for h := range f.next {
			if fl, ok := f.filters[h+1]; ok {
				out = append(out, f.filter(m, index, h+1, fl))
			}
		}
		return append(out, done), nil
	}
	f.ones++
	fl, ok := f.filters[handle]
	if !ok {
		return nltest.Error(int(unix.ENOENT), req)
	}
	return []netlink.Message{f.filter(m, index, handle, fl), ack}, nil
}

func (f *fakeFilters) filter(req netlink.Message, index int, handle uint32, fl device.Flower) netlink.Message {
	rep := flowerReply(f.t, fl, nil)
	pref, protocol := flowerPref(fl.Match)
	if fl.Pref != 0 {
		pref = fl.Pref
	}
	return f.message(req, request{
		typ: unix.RTM_NEWTFILTER, ifindex: index, handle: handle, parent: clsactIngress,
		info: uint32(pref)<<16 | uint32(protocol>>8|protocol<<8), kind: "flower", raw: rep.options,
	})
}

func (f *fakeFilters) message(req netlink.Message, r request) netlink.Message {
	m, err := r.message()
	must.Do(f.t, err)
	m.Header.Flags, m.Header.Sequence = 0, req.Header.Sequence
	if req.Header.Flags&netlink.Dump == netlink.Dump {
		m.Header.Flags = netlink.Multi
	}
	return m
}

func portFlower(port int) device.Flower {
	return device.Flower{Dev: "lo", Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: uint16(port)},
		Class: 1 + port%7}
}

// TestFlowerTable: the client reads many filters with one dump. To remove a filter, it looks at
// that filter alone, without a dump.
func TestFlowerTable(t *testing.T) {
	const n = 100
	f := &fakeFilters{t: t, filters: map[uint32]device.Flower{}}
	c := f.client()
	var objects []device.Object
	for i := range n {
		f.add(portFlower(i + 1))
		objects = append(objects, portFlower(i+1))
	}
	for _, there := range []bool{true, false} {
		values, err := c.ReadMany(objects)
		must.Do(t, err)
		for i, v := range values {
			if there != device.Equal(v, objects[i]) || !there && v != nil {
				t.Fatalf("%s is read as %v, there: %v", objects[i].Key(), v, there)
			}
			if !there {
				continue
			}
			must.Do(t, c.Write(objects[i], nil))
		}
	}
	if len(f.filters) != 0 || f.alls != 2 || f.ones != n {
		t.Errorf("%d of %d filters are left, %d dumps, %d looked at alone", len(f.filters), n, f.alls, f.ones)
	}
}

// TestFlowerOfOthers: before the client removes a filter that it knows, it notices what another
// program has done to that filter.
func TestFlowerOfOthers(t *testing.T) {
	f := &fakeFilters{t: t, filters: map[uint32]device.Flower{}}
	c := f.client()
	for _, port := range []int{1, 2, 3} {
		f.add(portFlower(port))
	}
	if _, err := c.Read(portFlower(1)); err != nil {
		t.Fatal(err)
	}
	// Another filter gets the first filter's handle, and the first filter gets a new handle.
	theirs := portFlower(9)
	f.filters[1] = theirs
	f.add(portFlower(1))
	// The second filter has another class now.
	moved := portFlower(2)
	moved.Class = 7
	f.filters[2] = moved
	if err := c.Write(portFlower(1), nil); err != nil {
		t.Error(err)
	}
	if err := c.Write(portFlower(2), nil); err == nil || !strings.Contains(err.Error(), "it leads to class 7, not 3") {
		t.Errorf("a filter that somebody else has changed: %v", err)
	}
	// The third filter is gone.
	delete(f.filters, 3)
	if err := c.Write(portFlower(3), nil); err == nil {
		t.Error("a filter that is gone was removed")
	}
	if len(f.filters) != 2 || f.filters[1] != theirs || f.filters[2] != moved {
		t.Errorf("left: %v", f.filters)
	}
}

// TestFlowerPlaces: a filter for the same packets with a preference that niclane does not use
// is foreign. Read returns it only if niclane's own filter is not there. The foreign filter
// stays when the client removes niclane's.
func TestFlowerPlaces(t *testing.T) {
	own := portFlower(7)
	theirs, later := own, own
	theirs.Pref, later.Pref = 5, 49152
	for name, c := range map[string]struct {
		there []device.Flower
		want  device.Flower
	}{
		"theirs before ours": {[]device.Flower{theirs, own}, own},
		"theirs after ours":  {[]device.Flower{own, later}, own},
		"theirs alone":       {[]device.Flower{theirs}, theirs},
	} {
		f := &fakeFilters{t: t, filters: map[uint32]device.Flower{}}
		for _, fl := range c.there {
			f.add(fl)
		}
		client := f.client()
		for range 2 { // before and after the client knows the places
			one, err := client.Read(own)
			if err != nil || !device.Equal(one, c.want) {
				t.Errorf("%s: read %v, %v, want %v", name, one, err, c.want)
			}
			many, err := client.ReadMany([]device.Object{own, portFlower(1)})
			if err != nil || !device.Equal(many[0], c.want) || many[1] != nil {
				t.Errorf("%s: read together %v, %v, want %v", name, many, err, c.want)
			}
		}
		if all, err := client.Flowers("lo"); err != nil || len(all) != len(c.there) || all[len(all)-1] != c.want {
			t.Errorf("%s: all: %v, %v", name, all, err)
		}
		err := client.Write(own, nil)
		if had := len(c.there) == 2; had != (err == nil) || !had && !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s: remove niclane's: %v", name, err)
		}
		if len(f.filters) != 1 {
			t.Errorf("%s: %v are left, want the one that is not niclane's", name, f.filters)
		}
		for _, left := range f.filters {
			if left.Pref == 0 {
				t.Errorf("%s: niclane's own is left", name)
			}
			if err := client.Write(left, nil); err != nil { // as a plan may request it
				t.Errorf("%s: remove theirs: %v", name, err)
			}
		}
		if len(f.filters) != 0 {
			t.Errorf("%s: %v are left", name, f.filters)
		}
	}
}
