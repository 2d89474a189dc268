// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// families are the IDs of generic netlink families; 0 for a family that the kernel lacks.
type families struct {
	ethtool, netdev uint16
}

// findFamilies returns the families and the multicast groups that report changes: "monitor" of
// ethtool (linux/ethtool_netlink.h, ETHTOOL_MCGRP_MONITOR_NAME) and "mgmt" of netdev
// (linux/netdev.h, NETDEV_MCGRP_MGMT).
func findFamilies() (f families, groups []int, err error) {
	c, err := genetlink.Dial(nil)
	if err != nil {
		return f, nil, fmt.Errorf("generic netlink: %w", err)
	}
	defer c.Close()
	for _, want := range []struct {
		family, group string
		id            *uint16
	}{{"ethtool", "monitor", &f.ethtool}, {"netdev", "mgmt", &f.netdev}} {
		family, err := c.GetFamily(want.family)
		if errors.Is(err, fs.ErrNotExist) {
			continue // ethtool before Linux 5.6, netdev before 6.3
		}
		if err != nil {
			return f, nil, fmt.Errorf("generic netlink family %s: %w", want.family, err)
		}
		*want.id = family.ID
		for _, g := range family.Groups {
			if g.Name == want.group {
				groups = append(groups, int(g.ID))
			}
		}
	}
	return f, groups, nil
}

// genlHeader is the length of struct genlmsghdr.
const genlHeader = 4

func (s *Source) genlEvents(b []byte) []Event {
	var out []Event
	messages(b, func(typ uint16, data []byte) {
		e, ok := s.family.event(typ, data)
		if ok && s.interest.of(e.Device, e.Index) {
			out = append(out, e)
		}
	})
	return out
}

func (f families) event(typ uint16, data []byte) (Event, bool) {
	if len(data) < genlHeader || typ == 0 {
		return Event{}, false
	}
	ad, err := netlink.NewAttributeDecoder(data[genlHeader:])
	if err != nil {
		return Event{}, false
	}
	var e Event
	switch typ {
	case f.ethtool:
		e = Event{Source: "ethtool", What: "changed", Detail: ethtoolMessages[data[0]]}
	case f.netdev:
		e = Event{Source: "netdev", What: "changed"}
	default:
		return Event{}, false
	}
	for ad.Next() {
		if ad.Type() != 1 { // ETHTOOL_A_*_HEADER, NETDEV_A_DEV_IFINDEX
			continue
		}
		if typ == f.netdev {
			e.Index = int(ad.Uint32())
			continue
		}
		ad.Nested(func(h *netlink.AttributeDecoder) error {
			for h.Next() {
				switch h.Type() {
				case unix.ETHTOOL_A_HEADER_DEV_INDEX:
					e.Index = int(h.Uint32())
				case unix.ETHTOOL_A_HEADER_DEV_NAME:
					e.Device = h.String()
				}
			}
			return nil
		})
	}
	return e, ad.Err() == nil
}

// ethtoolMessages are the notifications that matter to lanes (linux/ethtool_netlink.h).
var ethtoolMessages = map[byte]string{
	unix.ETHTOOL_MSG_FEATURES_NTF: "features",
	unix.ETHTOOL_MSG_RINGS_NTF:    "rings",
	unix.ETHTOOL_MSG_CHANNELS_NTF: "channels",
	unix.ETHTOOL_MSG_COALESCE_NTF: "coalescing",
}
