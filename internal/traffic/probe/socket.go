// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is the socket of one attempt.
type socket struct {
	fd   int
	port uint16 // the port that it is bound to
	raw  bool   // niclane makes the packet except the IP header
	// connect is Attempt.Connect. Without it, a filter drops the SYN-ACK and counts it.
	connect, tcp bool
	awaits       bool
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// open makes an attempt's socket and binds it.
func open(a Attempt) (*socket, error) {
	s, err := unbound(a)
	if err != nil {
		return nil, err
	}
	if err := s.bind(a.Local); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// unbound makes an attempt's socket without binding it.
func unbound(a Attempt) (*socket, error) {
	s := &socket{connect: a.Connect, tcp: a.Protocol == "tcp", awaits: true}
	kind, protocol := unix.SOCK_STREAM, unix.IPPROTO_TCP
	given := a.Local.Port() != 0
	switch {
	case a.Protocol == "udp" && given:
		// A second UDP socket on the port would take datagrams of the first one, which may be a
		// server's.
		kind, protocol, s.raw, s.awaits = unix.SOCK_RAW, unix.IPPROTO_UDP, true, false
	case a.Protocol == "udp":
		kind, protocol = unix.SOCK_DGRAM, unix.IPPROTO_UDP
	case a.Protocol != "tcp":
		return nil, fmt.Errorf("protocol %q: want tcp or udp", a.Protocol)
	}
	fd, err := unix.Socket(family(a.Local.Addr()), kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		if s.raw {
			err = fmt.Errorf("raw socket (CAP_NET_RAW): %w", err)
		}
		return nil, err
	}
	s.fd = fd
	if s.tcp && given {
		// In repair mode, a socket may bind to a port of another socket, even if the other socket
		// forbids it (SK_FORCE_REUSE, net/ipv4/tcp.c). connect(2) still refuses the addresses and
		// ports of a connection (net/ipv4/inet_hashtables.c: __inet_check_established).
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, 1); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("TCP repair mode (CAP_NET_ADMIN): %w", err)
		}
	}
	if s.tcp && !s.connect {
		if err := dropSYN(fd); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("socket filter: %w", err)
		}
	}
	return s, nil
}

func (s *socket) bind(local netip.AddrPort) error {
	if s.raw {
		s.port = local.Port()
		local = netip.AddrPortFrom(local.Addr(), 0) // for a raw socket, the port would be the protocol
	}
	if err := unix.Bind(s.fd, sockaddr(local)); err != nil {
		return fmt.Errorf("from %s: %w", local.Addr(), err)
	}
	if s.raw {
		return nil
	}
	if s.tcp && local.Port() != 0 {
		if err := unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, 0); err != nil {
			return fmt.Errorf("TCP repair mode: %w", err)
		}
		// With these options, a server can start on the port meanwhile. They are set after
		// bind(2), because bind(2) would store them for the port (inet_csk_update_fastreuse), and
		// they would then outlive the socket.
		for _, opt := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
			if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, opt, 1); err != nil {
				return err
			}
		}
	}
	sa, err := unix.Getsockname(s.fd)
	if err != nil {
		return err
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		s.port = uint16(sa.Port)
	case *unix.SockaddrInet6:
		s.port = uint16(sa.Port)
	}
	return nil
}

// send sends the packet.
func (s *socket) send(local, remote netip.AddrPort) error {
	to := remote
	if s.raw {
		to = netip.AddrPortFrom(remote.Addr(), 0)
	}
	err := unix.Connect(s.fd, sockaddr(to))
	switch {
	case s.tcp && errors.Is(err, unix.EINPROGRESS):
		return nil
	case s.tcp && errors.Is(err, unix.EADDRNOTAVAIL):
		return ErrInUse
	case err != nil:
		return fmt.Errorf("to %s: %w", remote, err)
	case s.tcp:
		return nil
	}
	var b []byte
	if s.raw {
		b = datagram(local, remote)
	}
	// sendto(2) without an address sends an empty datagram; write(2) does not.
	if err := unix.Sendto(s.fd, b, 0, nil); err != nil {
		return fmt.Errorf("to %s: %w", remote, err)
	}
	return nil
}

// answer returns the answer so far, without waiting.
func (s *socket) answer() (Answer, error) {
	events := int16(unix.POLLIN)
	if s.tcp {
		events = unix.POLLOUT
	}
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: events}}
	if n, err := unix.Poll(fds, 0); err == nil && n > 0 {
		errno, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			return Unreachable, err
		case errno == 0:
			return Accepted, nil
		case unix.Errno(errno) == unix.ECONNREFUSED || unix.Errno(errno) == unix.ECONNRESET:
			return Refused, nil
		}
		return Unreachable, unix.Errno(errno)
	}
	if s.tcp && !s.connect {
		if n, err := dropped(s.fd); err == nil && n > 0 {
			return Accepted, nil
		}
	}
	return None, nil
}

// close closes the socket. A TCP connection ends at once by a reset, and does not stay in
// TIME_WAIT.
func (s *socket) close() {
	if s.tcp {
		_ = unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	unix.Close(s.fd)
}

// dropSYN makes the socket drop segments with SYN set. The filter of a TCP socket sees a
// segment from the TCP header on (net/ipv4/tcp_ipv4.c: tcp_filter).
func dropSYN(fd int) error {
	const flags, syn = 13, 2
	code := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: syn, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]})
}

// dropped returns how many segments the socket's filter has dropped (sk_drops, by SO_MEMINFO,
// Linux 4.12).
func dropped(fd int) (uint32, error) {
	const vars, drops = 9, 8 // SK_MEMINFO_VARS, SK_MEMINFO_DROPS of linux/sock_diag.h
	var mem [vars]uint32
	size := uint32(unsafe.Sizeof(mem))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&mem)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, errno
	}
	return mem[drops], nil
}
