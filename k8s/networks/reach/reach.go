// SPDX-License-Identifier: Apache-2.0

// Package reach decides whether a pod's packets have the pod's address on the uplink, because lanes
// recognise them by it. If it knows that they do not have it, it returns an error, so that the pod
// does not start without a working lane. It also limits the rate toward a pod.
package reach

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// OnDevice returns the tunnels in which packets of a pod with these addresses pass the device, in the
// form of a lanes file ("vxlan:8472"). It returns none if they pass as they are. It returns an error if
// niclane does not see the addresses there: the reason is another kind of tunnel of the pod network, a
// tunnel by another device, or IPsec. node has the node's addresses. OnDevice reports only what it
// knows.
func OnDevice(device string, node, addrs []netip.Addr) ([]string, error) {
	found, err := tunnelled(device, node, addrs)
	if err != nil {
		return nil, err
	}
	return found, encrypted(addrs, 0, "")
}

// policies returns the IPsec policies of the node, none on a kernel without IPsec.
func policies() ([]netlink.XfrmPolicy, error) {
	all, err := dump(func() ([]netlink.XfrmPolicy, error) { return netlink.XfrmPolicyList(unix.AF_UNSPEC) })
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("IPsec policies of the node: %w", err)
	}
	return all, nil
}

// ofPodNetwork reports whether the name of a WireGuard or TUN link is one that a pod network
// (Cilium, flannel, Calico) gives.
func ofPodNetwork(name string) bool {
	return strings.HasPrefix(name, "cilium_") || strings.HasPrefix(name, "flannel") ||
		strings.HasPrefix(name, "wireguard.cali") || strings.HasPrefix(name, "wg-v6.cali")
}

// routed returns a network whose route leads through a link, "" if there is none. The network has
// the family (IPv4 or IPv6) of one of the pod's addresses.
func routed(l netlink.Link, addrs []netip.Addr) (string, error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		has := false
		for _, a := range addrs {
			has = has || a.Is4() == (family == unix.AF_INET)
		}
		if !has {
			continue
		}
		// All routing tables are read: Calico's and Cilium's WireGuard have their own table.
		of := netlink.Route{LinkIndex: l.Attrs().Index, Table: unix.RT_TABLE_UNSPEC}
		routes, err := dump(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &of, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return "", fmt.Errorf("routes of %s: %w", l.Attrs().Name, err)
		}
		for _, r := range routes {
			if r.Dst == nil || r.Type != unix.RTN_UNICAST || r.Dst.IP.IsLinkLocalUnicast() || r.Dst.IP.IsMulticast() {
				continue
			}
			if ones, bits := r.Dst.Mask.Size(); ones == bits ||
				r.Protocol == unix.RTPROT_KERNEL && r.Dst.IP.IsLinkLocalUnicast() {
				continue // a route to a single address leads to the tunnel's other end
			}
			return r.Dst.String(), nil
		}
	}
	return "", nil
}

// Limits of a token bucket toward a pod.
const (
	tbfHandle = 0x6e6c0000 // "nl:"
	// The bucket's size is rate × burstTime, the queue's size rate × queueTime. So a packet waits at
	// most queueTime. 25 ms is also the latency in the CNI plugin bandwidth.
	burstTime = 20 * time.Millisecond
	queueTime = 25 * time.Millisecond
	// leastFrames is the least size of the bucket and of the queue, in frames. With smaller ones, TCP
	// does not reach the rate.
	leastFrames = 3
	mostBurst   = 256 << 20
	// ethernetHeader is the Ethernet header with a VLAN tag, which the MTU does not include.
	ethernetHeader = 18
)

// bucket returns the parameters of tbf for a rate in bit/s and a frame size in bytes. burst is the
// size of the bucket, limit the size of bucket and queue together (tc-tbf(8), "latency"), in bytes.
func bucket(bits uint64, frame int) (burst, limit uint32) {
	during := func(d time.Duration) uint64 {
		return max(uint64(float64(bits)/8*d.Seconds()), uint64(leastFrames*frame))
	}
	burst = uint32(min(during(burstTime), mostBurst))
	return burst, uint32(min(uint64(burst)+during(queueTime), math.MaxUint32))
}

// Unlimit removes every limit that Limit has set on the links of this network namespace.
func Unlimit() error {
	qdiscs, err := dump(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(nil) })
	if err != nil {
		return fmt.Errorf("qdiscs of the node: %w", err)
	}
	var errs []error
	for _, q := range qdiscs {
		if a := q.Attrs(); a.Parent == netlink.HANDLE_ROOT && a.Handle == tbfHandle && q.Type() == "tbf" {
			// The pod can end, and its interface with it, at any time.
			if err := netlink.QdiscDel(q); err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("limit of the interface with the number %d: %w", a.LinkIndex, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Limit sets the highest rate at which a link sends, in bit/s. On the host's end of a veth pair,
// this is the rate toward the pod. Rate 0 removes the limit. Limit returns an error if another
// program has set the link's root qdisc.
func Limit(link string, bits uint64) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return fmt.Errorf("%s: %w", link, err)
	}
	qdiscs, err := dump(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(l) })
	if err != nil {
		return fmt.Errorf("qdiscs of %s: %w", link, err)
	}
	burst, limit := bucket(bits, l.Attrs().MTU+ethernetHeader)
	tbf := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: tbfHandle, Parent: netlink.HANDLE_ROOT},
		Rate:       bits / 8, Limit: limit, Buffer: burst,
	}
	for _, q := range qdiscs {
		if q.Attrs().Parent != netlink.HANDLE_ROOT || q.Attrs().Handle == 0 {
			continue
		}
		if q.Attrs().Handle != tbfHandle {
			return fmt.Errorf("%s has a root qdisc of another program (%s %x:)", link, q.Type(), q.Attrs().Handle>>16)
		}
		if bits == 0 {
			return netlink.QdiscDel(q)
		}
	}
	if bits == 0 {
		return nil
	}
	// Like tc(8), Limit gives the kernel the bucket's size as the time that sending it takes.
	tbf.Buffer = netlink.Xmittime(tbf.Rate, tbf.Buffer)
	if err := netlink.QdiscReplace(tbf); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("the kernel has no qdisc tbf: %w", err)
		}
		return fmt.Errorf("limit %s: %w", link, err)
	}
	return nil
}
