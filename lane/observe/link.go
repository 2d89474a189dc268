// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/extack"
	"github.com/niclane/niclane/internal/kernel/rtlink"
	"github.com/niclane/niclane/lane/device"
)

// An iface is a network interface as RTM_GETLINK describes it.
type iface struct {
	index    int
	name     string
	kind     string // "veth"; "" for hardware
	flags    uint32 // IFF_*
	linkType string // as in device.Device
	altNames []string
	mac      net.HardwareAddr
	permMAC  net.HardwareAddr
	mtu      int
	qlen     *int // txqueuelen, nil if the kernel does not report it
	gso      *device.GSOLimit
	carrier  bool
	master   int // index, 0 if none
	lower    int // IFLA_LINK, 0 if none
	// lowerElsewhere says that lower is an index in another network namespace.
	lowerElsewhere bool
	vlan           int
	bondMode       string
	// idle says that the bond does not send on this slave, although the slave may have a carrier.
	idle   bool
	parent string // name of the parent device: "0000:3b:00.0", "virtio2"
	xdp    []xdpProgram
}

type xdpProgram struct {
	attach string
	id     uint32
}

// noStats is an encoded attribute that requests rtlink.SkipStats.
var noStats = func() []byte {
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(unix.IFLA_EXT_MASK, rtlink.SkipStats)
	b, err := ae.Encode()
	if err != nil {
		panic(err) // four bytes always fit
	}
	return b
}()

// ifinfomsgLen is the size of struct ifinfomsg (rtnetlink(7)).
const ifinfomsgLen = 16

// links returns the interfaces of the namespace, in the order of their indexes.
func links(c *netlink.Conn) ([]iface, error) {
	msgs, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request | netlink.Dump},
		Data:   append(make([]byte, ifinfomsgLen), noStats...),
	})
	if err != nil {
		return nil, fmt.Errorf("list links: %w", extack.Error(err))
	}
	var ls []iface
	for _, m := range msgs {
		if m.Header.Type != unix.RTM_NEWLINK {
			continue
		}
		l, err := decodeLink(m.Data)
		if err != nil {
			return nil, fmt.Errorf("list links: %w", err)
		}
		ls = append(ls, l)
	}
	return ls, nil
}

// arphrdName returns the name of a link type (ARPHRD_*, linux/if_arp.h). It returns "" for types
// with an Ethernet header.
func arphrdName(arphrd uint16) string {
	switch arphrd {
	case unix.ARPHRD_ETHER, unix.ARPHRD_LOOPBACK:
		return ""
	case unix.ARPHRD_NONE:
		return "none"
	case unix.ARPHRD_PPP:
		return "ppp"
	case unix.ARPHRD_TUNNEL:
		return "ipip"
	case unix.ARPHRD_TUNNEL6:
		return "tunnel6"
	case unix.ARPHRD_SIT:
		return "sit"
	case unix.ARPHRD_IPGRE:
		return "gre"
	case unix.ARPHRD_IP6GRE:
		return "gre6"
	case unix.ARPHRD_INFINIBAND:
		return "infiniband"
	}
	return strconv.Itoa(int(arphrd))
}

var errShortLink = errors.New("link message shorter than its header")

func decodeLink(b []byte) (iface, error) {
	if len(b) < ifinfomsgLen {
		return iface{}, errShortLink
	}
	l := iface{
		index:    int(int32(binary.NativeEndian.Uint32(b[4:]))),
		flags:    binary.NativeEndian.Uint32(b[8:]),
		linkType: arphrdName(binary.NativeEndian.Uint16(b[2:])),
	}
	ad, err := netlink.NewAttributeDecoder(b[ifinfomsgLen:])
	if err != nil {
		return iface{}, err
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_IFNAME:
			l.name = ad.String()
		case unix.IFLA_ADDRESS:
			l.mac = ad.Bytes()
		case unix.IFLA_PERM_ADDRESS:
			l.permMAC = ad.Bytes()
		case unix.IFLA_PROP_LIST:
			ad.Nested(l.decodeProps)
		case unix.IFLA_MTU:
			l.mtu = int(ad.Uint32())
		case unix.IFLA_TXQLEN:
			n := int(ad.Uint32())
			l.qlen = &n
		case unix.IFLA_LINK:
			l.lower = int(ad.Uint32())
		case unix.IFLA_LINK_NETNSID:
			l.lowerElsewhere = true
		case unix.IFLA_MASTER:
			l.master = int(ad.Uint32())
		case unix.IFLA_CARRIER:
			l.carrier = ad.Uint8() != 0
		case unix.IFLA_PARENT_DEV_NAME:
			l.parent = ad.String()
		case unix.IFLA_LINKINFO:
			ad.Nested(l.decodeInfo)
		case unix.IFLA_XDP:
			ad.Nested(l.decodeXDP)
		}
	}
	if err := ad.Err(); err != nil {
		return l, err
	}
	l.gso, err = rtlink.GSOLimit(l.name, b)
	return l, err
}

func (l *iface) decodeProps(ad *netlink.AttributeDecoder) error {
	for ad.Next() {
		if ad.Type() == unix.IFLA_ALT_IFNAME {
			l.altNames = append(l.altNames, ad.String())
		}
	}
	return ad.Err()
}

// vlanID is the attribute IFLA_VLAN_ID of linux/if_link.h.
const vlanID = 1

// A bond sends on a slave whose state is BOND_STATE_ACTIVE (linux/if_bonding.h) and whose link is
// BOND_LINK_UP.
const (
	slaveActive = 0
	slaveLinkUp = 0
)

// bondModes are the names of the modes BOND_MODE_* (linux/if_bonding.h), by number.
var bondModes = [...]string{"balance-rr", device.BondActiveBackup, "balance-xor", device.BondBroadcast, "802.3ad",
	"balance-tlb", "balance-alb"}

func (l *iface) decodeInfo(ad *netlink.AttributeDecoder) error {
	var data []byte
	master := ""
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_INFO_KIND:
			l.kind = ad.String()
		case unix.IFLA_INFO_DATA:
			data = ad.Bytes()
		case unix.IFLA_INFO_SLAVE_KIND: // the kernel sends it before the data
			master = ad.String()
		case unix.IFLA_INFO_SLAVE_DATA:
			if master == "bond" {
				ad.Nested(l.decodeSlave)
			}
		}
	}
	if err := ad.Err(); err != nil || l.kind != "vlan" && l.kind != "bond" {
		return err
	}
	nad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return err
	}
	for nad.Next() {
		switch {
		case l.kind == "vlan" && nad.Type() == vlanID:
			l.vlan = int(nad.Uint16())
		case l.kind == "bond" && nad.Type() == unix.IFLA_BOND_MODE:
			if mode := int(nad.Uint8()); mode < len(bondModes) {
				l.bondMode = bondModes[mode]
			}
		}
	}
	return nad.Err()
}

func (l *iface) decodeSlave(ad *netlink.AttributeDecoder) error {
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_BOND_SLAVE_STATE:
			l.idle = l.idle || ad.Uint8() != slaveActive
		case unix.IFLA_BOND_SLAVE_MII_STATUS:
			l.idle = l.idle || ad.Uint8() != slaveLinkUp
		}
	}
	return ad.Err()
}

// xdpAttach maps IFLA_XDP_*_PROG_ID to the place where the program is attached.
var xdpAttach = map[uint16]string{
	unix.IFLA_XDP_DRV_PROG_ID: "xdp",
	unix.IFLA_XDP_SKB_PROG_ID: "xdp-generic",
	unix.IFLA_XDP_HW_PROG_ID:  "xdp-offload",
}

func (l *iface) decodeXDP(ad *netlink.AttributeDecoder) error {
	for ad.Next() {
		if attach, ok := xdpAttach[ad.Type()]; ok {
			l.xdp = append(l.xdp, xdpProgram{attach, ad.Uint32()})
		}
	}
	return ad.Err()
}
