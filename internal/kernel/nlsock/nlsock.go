// SPDX-License-Identifier: Apache-2.0

// Package nlsock opens blocking netlink sockets. The kernel has answered a request when
// sendto(2) returns, so recvfrom(2) never waits. Package netlink's own sockets use the
// run-time's poller, which only adds cost: it took most of the time of an apply of a hundred
// classes and entries. The package is not for sockets that wait for notifications.
//
// If the end of an answer was not seen, the connection is out of step: the next answer on it
// belongs to an earlier request. The package then closes the connection, and the next request
// uses a new one. It repeats a request that only reads (retries). For a request that writes
// and whose acknowledgement was lost, it returns the error, and the caller checks the result.
package nlsock

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// answerTimeout in seconds bounds the wait for an answer that does not come, so that an error
// in niclane gives EAGAIN, not a hang. If the kernel itself has to wait, it does so in
// sendto(2).
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

// openLike is open in the network namespace of another socket, in any namespace of the calling
// thread.
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

// sameNamespace reports whether two sockets surely are in one network namespace.
// SO_NETNS_COOKIE exists since Linux 5.14.
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
