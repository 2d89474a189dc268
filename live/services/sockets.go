// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// established is TCP_ESTABLISHED, closed TCP_CLOSE, the state of UDP sockets without a peer
// (include/net/tcp_states.h).
const (
	established = netlink.TCP_ESTABLISHED
	closed      = netlink.TCP_CLOSE
)

// A socket is a listening socket.
type socket struct {
	place
	inode uint64 // 0: a socket of the kernel's own
}

// inodes returns the inode numbers of sockets that have one: a process has a descriptor of them.
func inodes(socks []socket, conns []connection) map[uint64]bool {
	m := map[uint64]bool{}
	for _, s := range socks {
		m[s.inode] = true
	}
	for _, c := range conns {
		m[c.inode] = true
	}
	delete(m, 0)
	return m
}

// listeners returns the listening TCP sockets and the UDP sockets that take packets of any peer, by
// protocol, address and inode number. h says in which network namespace; the zero value stands for that
// of the calling thread.
func listeners(h *netlink.Handle) ([]socket, error) {
	var out []socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		for protocol, list := range map[string]func(uint8) ([]*netlink.Socket, error){
			"tcp": h.SocketDiagTCP, "udp": h.SocketDiagUDP} {
			socks, err := again(func() ([]*netlink.Socket, error) { return list(family) })
			if err != nil {
				return nil, fmt.Errorf("list %s sockets: %w", protocol, err)
			}
			for _, s := range socks {
				if protocol == "tcp" && s.State == netlink.TCP_LISTEN || protocol == "udp" && s.State == closed {
					out = append(out, socket{place{protocol, addrPort(s.ID.Source, s.ID.SourcePort)},
						uint64(s.INode)})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b socket) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), a.local.Compare(b.local), cmp.Compare(a.inode, b.inode))
	})
	return out, nil
}

// A connection is a TCP connection with its counters.
type connection struct {
	cookie        uint64
	inode         uint64
	local, remote netip.AddrPort
	in, out       counter
}

// A counter has the counters of struct tcp_info for one direction.
type counter struct{ packets, data, bytes uint64 }

func (c counter) since(before counter) counter {
	return counter{c.packets - before.packets, c.data - before.data, c.bytes - before.bytes}
}

func (c *counter) add(x counter) {
	c.packets, c.data, c.bytes = c.packets+x.packets, c.data+x.data, c.bytes+x.bytes
}

// per returns the counter as a rate over some seconds.
func (c counter) per(seconds float64) Rate {
	return Rate{float64(c.packets) / seconds, float64(c.data) / seconds, float64(c.bytes) / seconds}
}

// connections returns the established TCP connections.
func connections() ([]connection, error) {
	var out []connection
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		socks, err := again(func() ([]*netlink.InetDiagTCPInfoResp, error) { return netlink.SocketDiagTCPInfo(family) })
		if err != nil {
			return nil, fmt.Errorf("list TCP connections: %w", err)
		}
		for _, s := range socks {
			m, i := s.InetDiagMsg, s.TCPInfo
			if m.State != established || i == nil {
				continue
			}
			out = append(out, connection{
				cookie: uint64(m.ID.Cookie[1])<<32 | uint64(m.ID.Cookie[0]), inode: uint64(m.INode),
				local: addrPort(m.ID.Source, m.ID.SourcePort), remote: addrPort(m.ID.Destination, m.ID.DestinationPort),
				in:  counter{uint64(i.Segs_in), uint64(i.Data_segs_in), i.Bytes_received},
				out: counter{uint64(i.Segs_out), uint64(i.Data_segs_out), i.Bytes_acked},
			})
		}
	}
	return out, nil
}

// attempts is how often a list is read if it changes while it is read. Then the last one counts: a
// busy host never gives one without a change.
const attempts = 3

func again[T any](list func() ([]T, error)) (out []T, err error) {
	for range attempts {
		if out, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return out, nil
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}
