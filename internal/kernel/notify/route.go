// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// routeGroups are rtnetlink's multicast groups (linux/rtnetlink.h, enum rtnetlink_groups).
var routeGroups = []int{unix.RTNLGRP_LINK, unix.RTNLGRP_TC, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR}

// iflaNewNetnsID is in RTM_DELLINK if the device has moved to another namespace
// (linux/if_link.h, IFLA_NEW_NETNSID).
const iflaNewNetnsID = 45

// messages calls f for each message in a datagram. It stops at an incomplete message.
func messages(b []byte, f func(typ uint16, data []byte)) {
	for len(b) >= unix.NLMSG_HDRLEN {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.NLMSG_HDRLEN || n > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[4:]), b[unix.NLMSG_HDRLEN:n])
		b = b[min(len(b), (n+3)&^3):]
	}
}

// routeEvents decodes rtnetlink's notifications.
func (s *Source) routeEvents(b []byte) []Event {
	var out []Event
	messages(b, func(typ uint16, data []byte) {
		// struct tcmsg has the device's index and no name. This check comes before the decoding,
		// because most messages are not of interest.
		if len(data) >= 8 && typ >= unix.RTM_NEWQDISC && typ <= unix.RTM_GETTFILTER &&
			!s.interest.of("", int(int32(binary.NativeEndian.Uint32(data[4:])))) {
			return
		}
		e, ok := routeEvent(typ, data)
		if ok && s.interest.of(e.Device, e.Index) && !s.known(typ, data) {
			out = append(out, e)
		}
	})
	return out
}

// tcmsgLen is the length of struct tcmsg. Handle and parent follow the index in it.
const tcmsgLen = 20

// known reports whether a qdisc has not changed since it was last reported. The kernel notifies
// all listeners even if a process only requests a qdisc (tc_get_qdisc, net/sched/sch_api.c). A
// listener that requests the qdisc after each notification would so cause the next one, forever.
func (s *Source) known(typ uint16, data []byte) bool {
	if typ != unix.RTM_NEWQDISC && typ != unix.RTM_DELQDISC || len(data) < tcmsgLen {
		return false
	}
	key := string(data[4:8]) + string(data[12:16]) // index, parent
	if typ == unix.RTM_DELQDISC {
		delete(s.qdiscs, key)
		return false
	}
	value := string(data[8:12]) // handle
	ad, err := netlink.NewAttributeDecoder(data[tcmsgLen:])
	if err != nil {
		return false
	}
	for ad.Next() {
		if t := ad.Type(); t == unix.TCA_KIND || t == unix.TCA_OPTIONS { // not TCA_STATS
			value += string(ad.Bytes())
		}
	}
	if s.qdiscs[key] == value {
		return true
	}
	s.qdiscs[key] = value
	return false
}

func routeEvent(typ uint16, data []byte) (Event, bool) {
	switch typ {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return linkEvent(typ, data)
	case unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_NEWTCLASS, unix.RTM_DELTCLASS, unix.RTM_NEWTFILTER,
		unix.RTM_DELTFILTER:
		// struct tcmsg (linux/rtnetlink.h): family, padding, ifindex, handle, parent.
		if len(data) < tcmsgLen {
			return Event{}, false
		}
		e := Event{Source: "tc", What: "changed", Index: int(int32(binary.NativeEndian.Uint32(data[4:])))}
		what := "qdisc"
		switch typ {
		case unix.RTM_NEWTCLASS, unix.RTM_DELTCLASS:
			what = "class"
		case unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER:
			what = "filter"
		}
		if typ == unix.RTM_DELQDISC || typ == unix.RTM_DELTCLASS || typ == unix.RTM_DELTFILTER {
			e.What = "removed"
		}
		e.Detail = fmt.Sprintf("%s %s", what, handle(binary.NativeEndian.Uint32(data[8:])))
		return e, true
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		// struct ifaddrmsg: family, prefix length, flags, scope, index.
		if len(data) < unix.SizeofIfAddrmsg {
			return Event{}, false
		}
		e := Event{Source: "address", What: "added", Index: int(binary.NativeEndian.Uint32(data[4:]))}
		if typ == unix.RTM_DELADDR {
			e.What = "removed"
		}
		return e, true
	}
	return Event{}, false
}

// handle formats a traffic control handle as tc(8) does.
func handle(h uint32) string {
	if h&0xffff == 0 {
		return fmt.Sprintf("%x:", h>>16)
	}
	return fmt.Sprintf("%x:%x", h>>16, h&0xffff)
}

func linkEvent(typ uint16, data []byte) (Event, bool) {
	if len(data) < unix.SizeofIfInfomsg || data[0] != unix.AF_UNSPEC { // AF_BRIDGE: settings of a bridge port
		return Event{}, false
	}
	e := Event{Source: "link", What: "changed", Index: int(int32(binary.NativeEndian.Uint32(data[4:])))}
	if binary.NativeEndian.Uint32(data[8:])&unix.IFF_UP == 0 {
		e.What = "down"
	}
	if typ == unix.RTM_DELLINK {
		e.What = "removed"
	}
	ad, err := netlink.NewAttributeDecoder(data[unix.SizeofIfInfomsg:])
	if err != nil {
		return Event{}, false
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_IFNAME:
			e.Device = ad.String()
		case iflaNewNetnsID:
			e.What = "moved"
		}
	}
	return e, ad.Err() == nil
}
