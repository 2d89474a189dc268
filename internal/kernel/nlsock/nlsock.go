// SPDX-License-Identifier: Apache-2.0

// Package nlsock opens blocking netlink sockets. The kernel has answered a request when
// sendto(2) returns, so recvfrom(2) never waits. The sockets of package netlink use the poller
// of Go's run-time, which costs time without use here. The package is not for sockets that wait
// for notifications.
//
// If the package did not read an answer to its end, the connection is out of step: the next
// answer on it belongs to an earlier request. The package then closes the connection, and the
// next request uses a new one. It repeats a request that only reads (see retries). If the
// acknowledgement of a request that writes is lost, the package returns an error, and the caller
// checks the result.
package nlsock

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// answerTimeout is in seconds. If niclane waits for an answer that does not come, because of a
// bug, recvfrom(2) returns EAGAIN after this time. The time is no limit for slow requests: the
// kernel works on them in sendto(2).
const answerTimeout = 2

// receiveBuffer is twice the size of the largest datagram of a dump (netlink_dump).
const receiveBuffer = 64 << 10

// buffers hold datagrams during parsing. They are reused, because one read of a device makes
// a dozen connections.
var buffers = sync.Pool{New: func() any { return new([receiveBuffer]byte) }}

// Dial connects to a netlink family (unix.NETLINK_ROUTE) in the network namespace of the
// calling thread, with strict checks and extended acknowledgements. It does not support
// several requests in one datagram.
func Dial(family int) (*netlink.Conn, error) {
	fd, port, err := open(family)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return netlink.NewConn(&socket{family: family, fd: fd, port: port, pid: port}, port), nil
}

// open returns a socket and its port ID (netlink(7)).
func open(family int) (fd int, port uint32, err error) {
	if fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family); err != nil {
		return -1, 0, err
	}
	if port, err = setUp(fd); err != nil {
		unix.Close(fd)
		return -1, 0, err
	}
	return fd, port, nil
}

func setUp(fd int) (port uint32, err error) {
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	for _, opt := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_GET_STRICT_CHK} {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, opt, 1); err != nil {
			return 0, err
		}
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&unix.Timeval{Sec: answerTimeout}); err != nil {
		return 0, err
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return sa.(*unix.SockaddrNetlink).Pid, nil
}

// openLike does what open does, but in the network namespace of the socket other. The calling
// thread may be in any namespace.
func openLike(other, family int) (fd int, port uint32, err error) {
	fd, port, err = open(family)
	if err != nil || sameNamespace(other, fd) {
		return fd, port, err
	}
	unix.Close(fd)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var ns int
		if ns, err = unix.IoctlRetInt(other, unix.SIOCGSKNS); err != nil {
			return
		}
		err = unix.Setns(ns, unix.CLONE_NEWNET)
		unix.Close(ns)
		if err == nil {
			fd, port, err = open(family)
		}
	}()
	<-done
	return fd, port, err
}

// sameNamespace reports whether two sockets are certainly in the same network namespace. Before
// Linux 5.14, which added SO_NETNS_COOKIE, it returns false.
func sameNamespace(a, b int) bool {
	ca, erra := unix.GetsockoptUint64(a, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	cb, errb := unix.GetsockoptUint64(b, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	return erra == nil && errb == nil && ca == cb
}

// parse splits a datagram into messages, which hold a copy of its data.
func parse(b []byte) ([]netlink.Message, error) {
	var out []netlink.Message
	for len(b) > 0 {
		var m netlink.Message
		if err := header(&m.Header, b); err != nil {
			return nil, err
		}
		m.Data = append([]byte(nil), b[unix.NLMSG_HDRLEN:m.Header.Length]...)
		out = append(out, m)
		b = b[min(len(b), int(m.Header.Length+3)&^3):]
	}
	return out, nil
}
