// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Links knows which links of the network namespace can be tunnels. It lists all links once, and
// then reads the kernel's messages about changes (rtnetlink(7)). Listing all links of 100 pods for
// each starting pod would take 1 ms (BenchmarkOnDevice). The kernel queues a message before it
// completes the change, so the messages give the present state. The zero value is ready for use.
// Links keeps a socket open.
type Links struct {
	mu       sync.Mutex
	told     int          // the socket; 0 if it is not open
	suspects map[int]bool // links that can be tunnels, by index; nil if the links must be listed
}

// OnDevice does the same as the function OnDevice, without listing all links.
func (l *Links) OnDevice(device string, node, addrs []netip.Addr) ([]string, error) {
	l.mu.Lock()
	some, err := l.some()
	l.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("links of the node: %w", err)
	}
	if some {
		return OnDevice(device, node, addrs)
	}
	return nil, encrypted(addrs, 0, "")
}

// some reports whether the network namespace has a link that can be a tunnel of the pod network.
func (l *Links) some() (bool, error) {
	if l.suspects != nil {
		err := l.follow()
		if err == nil {
			return len(l.suspects) > 0, nil
		}
		if !errors.Is(err, unix.ENOBUFS) { // ENOBUFS: messages were lost, but the socket still works
			l.forget()
		}
	}
	if err := l.begin(); err != nil {
		l.forget()
		return false, err
	}
	return len(l.suspects) > 0, nil
}

// forget closes the socket. The next call of some opens it and lists the links again.
func (l *Links) forget() {
	if l.told != 0 {
		_ = unix.Close(l.told)
	}
	l.told, l.suspects = 0, nil
}

// begin opens the socket, and then lists the links. The next call of some reads the messages that
// arrived during the listing.
func (l *Links) begin() error {
	if l.told == 0 {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		l.told = fd
		if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK,
			Groups: 1 << (unix.RTNLGRP_LINK - 1)}); err != nil {
			return err
		}
	}
	messages, err := dump(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
		req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	})
	if err != nil {
		return err
	}
	l.suspects = map[int]bool{}
	for _, m := range messages {
		if err := l.take(unix.RTM_NEWLINK, m); err != nil {
			return err
		}
	}
	return nil
}

// follow reads the messages about changed links that have arrived, without waiting.
func (l *Links) follow() error {
	b := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(l.told, b, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		}
		messages, err := syscall.ParseNetlinkMessage(b[:n])
		if err != nil {
			return err
		}
		for _, m := range messages {
			if err := l.take(m.Header.Type, m.Data); err != nil {
				return err
			}
		}
	}
}

// take reads a message about one link (a struct ifinfomsg and attributes), and records whether the
// link can be a tunnel.
func (l *Links) take(kind uint16, m []byte) error {
	if kind != unix.RTM_NEWLINK && kind != unix.RTM_DELLINK {
		return nil
	}
	if len(m) < unix.SizeofIfInfomsg {
		return fmt.Errorf("a link's message has %d bytes", len(m))
	}
	if m[0] != unix.AF_UNSPEC {
		return nil // the message is about the link as a port of a bridge
	}
	index := int(int32(binary.NativeEndian.Uint32(m[4:])))
	if kind == unix.RTM_DELLINK {
		delete(l.suspects, index)
		return nil
	}
	name, of, err := describe(m[unix.SizeofIfInfomsg:])
	switch {
	case err != nil:
		return err
	case name == "": // such messages come from wireless drivers, and say nothing about the link
	case suspect(of, name):
		l.suspects[index] = true
	default:
		delete(l.suspects, index)
	}
	return nil
}

// describe reads the name and the kind of a link from its attributes. Each is "" if there is no
// such attribute.
func describe(attributes []byte) (name, kind string, err error) {
	attrs, err := nl.ParseRouteAttr(attributes)
	if err != nil {
		return "", "", err
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFLA_IFNAME:
			name = text(a.Value)
		case unix.IFLA_LINKINFO:
			infos, err := nl.ParseRouteAttr(a.Value)
			if err != nil {
				return "", "", err
			}
			i := slices.IndexFunc(infos, func(i syscall.NetlinkRouteAttr) bool {
				return i.Attr.Type == nl.IFLA_INFO_KIND
			})
			if i >= 0 {
				kind = text(infos[i].Value)
			}
		}
	}
	return name, kind, nil
}

// text returns an attribute's string without its final zero.
func text(b []byte) string { return strings.TrimRight(string(b), "\x00") }

// suspect reports whether a link of this kind and name can be a tunnel of the pod network.
func suspect(kind, name string) bool {
	return tunnels[kind] || sometimes[kind] && ofPodNetwork(name)
}
