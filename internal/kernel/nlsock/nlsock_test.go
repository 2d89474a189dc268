// SPDX-License-Identifier: Apache-2.0

package nlsock

import (
	"bytes"
	"errors"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
)

func TestDial(t *testing.T) {
	c, err := Dial(unix.NETLINK_ROUTE)
	must.Do(t, err)
	dump := netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request | netlink.Dump},
		Data:   make([]byte, unix.SizeofIfInfomsg),
	}
	links, err := c.Execute(dump)
	if err != nil || len(links) == 0 {
		t.Errorf("%d links, %v", len(links), err)
	}
	one := netlink.Message{Header: netlink.Header{Type: unix.RTM_DELLINK, Flags: netlink.Request | netlink.Acknowledge},
		Data: make([]byte, unix.SizeofIfInfomsg)}
	one.Data[4], one.Data[5], one.Data[6] = 0xff, 0xff, 0xff // no such interface
	if _, err := c.Execute(one); !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EPERM) {
		t.Errorf("removing an interface that does not exist: %v, want ENODEV", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	m := netlink.Message{Header: netlink.Header{Type: netlink.Done, Flags: netlink.Multi, Sequence: 7},
		Data: []byte{1, 2, 3, 4}}
	m.Header.Length = 20
	b, err := m.MarshalBinary()
	must.Do(f, err)
	f.Add(b)
	f.Add(append(bytes.Clone(b), b...))
	f.Add(b[:19])
	f.Fuzz(func(t *testing.T, b []byte) {
		ms, err := parse(b)
		if err != nil {
			return
		}
		n := 0
		for _, m := range ms {
			if len(m.Data) != int(m.Header.Length)-unix.NLMSG_HDRLEN {
				t.Errorf("%d bytes of data in a message of %d", len(m.Data), m.Header.Length)
			}
			n += int(m.Header.Length)
		}
		if n > len(b) {
			t.Errorf("messages of %d bytes in %d", n, len(b))
		}
	})
}
