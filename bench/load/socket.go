// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dial returns a connected non-blocking TCP socket with TCP_NODELAY.
func dial(addr netip.AddrPort, timeout time.Duration) (int, error) {
	family, sa := unix.AF_INET, unix.Sockaddr(nil)
	if ip := addr.Addr().Unmap(); ip.Is4() {
		sa = &unix.SockaddrInet4{Port: int(addr.Port()), Addr: ip.As4()}
	} else {
		z, err := zone(ip.Zone())
		if err != nil {
			return -1, err
		}
		family = unix.AF_INET6
		sa = &unix.SockaddrInet6{Port: int(addr.Port()), Addr: ip.As16(), ZoneId: z}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	fail := func(what string, err error) (int, error) {
		unix.Close(fd)
		return -1, fmt.Errorf("%s %s: %w", what, addr, err)
	}
	// SO_SNDTIMEO bounds connect(2), socket(7).
	tv := unix.NsecToTimeval(int64(timeout))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv); err != nil {
		return fail("set SO_SNDTIMEO", err)
	}
	if err := connect(fd, sa); err != nil {
		return fail("connect", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return fail("set O_NONBLOCK", err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fail("set TCP_NODELAY", err)
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
	if err == unix.EINPROGRESS { // SO_SNDTIMEO ran out, socket(7)
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

// The calls of the hot path go straight to the kernel: without the Go
// runtime's book-keeping around blocking calls the thread keeps its P, so
// there is no hand-over to delay its return.

func recv(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), e
}

func send(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(n), e
}

// wait is epoll_pwait2(2), Linux 5.11: the timeout is in ns.
func wait(epfd int, events []unix.EpollEvent, ns int64) (int, unix.Errno) {
	ts := unix.NsecToTimespec(max(ns, 0))
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epfd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
	return int(n), e
}
