// SPDX-License-Identifier: Apache-2.0

// Package sock opens TCP and UDP sockets as plain file descriptors, for threads
// that run their own epoll loop. It resolves no names.
package sock

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Dial returns a connected non-blocking TCP socket. before, which may be nil, sets options that the
// socket must have before it connects.
func Dial(addr netip.AddrPort, timeout time.Duration, before func(fd int) error) (int, error) {
	family, sa, err := sockaddr(addr)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	fail := func(what string, err error) (int, error) {
		unix.Close(fd)
		return -1, fmt.Errorf("%s %s: %w", what, addr, err)
	}
	// SO_SNDTIMEO limits connect(2), socket(7).
	tv := unix.NsecToTimeval(int64(timeout))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv); err != nil {
		return fail("set SO_SNDTIMEO", err)
	}
	if before != nil {
		if err := before(fd); err != nil {
			unix.Close(fd)
			return -1, err
		}
	}
	if err := connect(fd, sa); err != nil {
		return fail("connect", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return fail("set O_NONBLOCK", err)
	}
	return fd, nil
}

// sockaddr returns addr in the kernel's form.
func sockaddr(addr netip.AddrPort) (family int, sa unix.Sockaddr, err error) {
	ip := addr.Addr().Unmap()
	if ip.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: ip.As4()}, nil
	}
	z, err := zone(ip.Zone())
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(addr.Port()), Addr: ip.As16(), ZoneId: z}, err
}

// DialUDP returns a non-blocking UDP socket that is connected to addr. ListenUDP returns one that is
// bound to addr. Neither sends anything.
func DialUDP(addr netip.AddrPort) (int, error)   { return udp(addr, "connect", unix.Connect) }
func ListenUDP(addr netip.AddrPort) (int, error) { return udp(addr, "bind", unix.Bind) }

func udp(addr netip.AddrPort, what string, do func(int, unix.Sockaddr) error) (int, error) {
	family, sa, err := sockaddr(addr)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if err := do(fd, sa); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("%s %s: %w", what, addr, err)
	}
	return fd, nil
}

// connect retries after a signal: the Go runtime preempts with SIGURG.
func connect(fd int, sa unix.Sockaddr) error {
	err := unix.Connect(fd, sa)
	for err == unix.EINTR || err == unix.EALREADY {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if _, perr := unix.Poll(p, 1000); perr != nil && perr != unix.EINTR {
			return perr
		}
		if err = unix.Connect(fd, sa); err == unix.EISCONN {
			return nil
		}
	}
	if err == unix.EINPROGRESS { // SO_SNDTIMEO expired, socket(7)
		return unix.ETIMEDOUT
	}
	return err
}

// zone returns the interface index of an IPv6 zone, 0 when there is none.
func zone(name string) (uint32, error) {
	if name == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	link, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("zone %s: %w", name, err)
	}
	return uint32(link.Index), nil
}

// Listen returns a non-blocking listening socket and its address. It uses package net, which handles
// zones, IPV6_V6ONLY and the backlog.
func Listen(addr netip.AddrPort) (int, netip.AddrPort, error) {
	fail := func(err error) (int, netip.AddrPort, error) { return -1, netip.AddrPort{}, err }
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr.String())
	if err != nil {
		return fail(err)
	}
	defer l.Close()
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		return fail(err)
	}
	fd := -1
	var derr error
	if err := raw.Control(func(f uintptr) { fd, derr = unix.FcntlInt(f, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return fail(err)
	}
	if derr != nil {
		return fail(fmt.Errorf("duplicate listener: %w", derr))
	}
	return fd, l.Addr().(*net.TCPAddr).AddrPort(), nil
}
