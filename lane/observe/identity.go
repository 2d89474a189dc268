// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/extack"
	"github.com/niclane/niclane/internal/kernel/nlsock"
	"github.com/niclane/niclane/lane/device"
)

// A Finder finds devices by their identities, even if they were renamed. It looks in the network
// namespace of the thread that opened it, unless a method says otherwise. It is not safe for
// concurrent use.
type Finder struct{ route *netlink.Conn }

// OpenFinder connects to the kernel.
func OpenFinder() (*Finder, error) {
	c, err := nlsock.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &Finder{c}, nil
}

// Close disconnects.
func (f *Finder) Close() error { return f.route.Close() }

// Link returns the device with an interface number. If there is none, the error is unix.ENODEV.
func (f *Finder) Link(index int) (device.Link, error) {
	msg := make([]byte, ifinfomsgLen)
	binary.NativeEndian.PutUint32(msg[4:], uint32(index))
	msgs, err := f.route.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request},
		Data:   append(msg, noStats...),
	})
	if err != nil {
		return device.Link{}, fmt.Errorf("link %d: %w", index, extack.Error(err))
	}
	if len(msgs) != 1 {
		return device.Link{}, fmt.Errorf("link %d: %d answers", index, len(msgs))
	}
	l, err := decodeLink(msgs[0].Data)
	return l.link(), err
}

// Links returns all devices of the network namespace.
func (f *Finder) Links() ([]device.Link, error) {
	all, err := links(f.route)
	out := make([]device.Link, len(all))
	for i, l := range all {
		out[i] = l.link()
	}
	return out, err
}

func (l iface) link() device.Link {
	return device.Link{Name: l.name, Index: l.index, Type: l.kind, MAC: l.mac.String(), PermMAC: l.permMAC.String(),
		Parent: l.parent}
}

// A Present says where a device is now, and with which name.
type Present struct {
	// Name is the device's present name, "" if it is in no namespace that can be entered.
	Name string
	// Netns describes the device's network namespace, "" for that of this thread.
	Netns string
}

// Here returns the present name of the device that has the identity in was. It returns "" if the
// device is not in this network namespace.
func (f *Finder) Here(was device.Link) (string, error) {
	l, err := f.Link(was.Index)
	if err == nil && l.Same(was) {
		return l.Name, nil
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return "", err
	}
	here, err := f.Links()
	return called(here, was), err // the device may have left the namespace and come back with another index
}

// Find looks for the device that has the identity in was: first in this network namespace, then
// in all others that are mounted or that a process is in.
func (f *Finder) Find(was device.Link) (Present, error) {
	if name, err := f.Here(was); name != "" || err != nil {
		return Present{Name: name}, err
	}
	return elsewhere(was)
}

// called returns the name of the link that has the identity in was, "" if none has.
func called(links []device.Link, was device.Link) string {
	for _, l := range links {
		if l.SameElsewhere(was) {
			return l.Name
		}
	}
	return ""
}
