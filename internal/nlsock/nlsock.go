// SPDX-License-Identifier: Apache-2.0

// Package nlsock opens netlink sockets that block. The kernel has answered a
// request when sendto(2) returns, so nothing waits in recvfrom(2), and the
// run-time's poller, through which package netlink's own sockets go, only
// costs: most of the time of an apply of a hundred classes and entries was
// spent there. It is not for sockets that wait for notifications.
package nlsock

import (
	"fmt"
	"iter"
	"os"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// answerTimeout in seconds bounds the wait for an answer that does not come, so
// that a mistake of ours is EAGAIN and not a hang.
const answerTimeout = 10

// receiveBuffer is twice what the kernel puts into one datagram of a dump
// (netlink_dump).
const receiveBuffer = 64 << 10

// buffers are for datagrams while they are taken apart: one look at a device
// makes a dozen connections.
var buffers = sync.Pool{New: func() any { return new([receiveBuffer]byte) }}

// Dial connects to a netlink family (unix.NETLINK_ROUTE) in the network
// namespace of the calling thread, with strict checks and extended
// acknowledgements.
func Dial(family int) (*netlink.Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	pid, err := setUp(fd)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return netlink.NewConn(&socket{fd: fd}, pid), nil
}

func setUp(fd int) (pid uint32, err error) {
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	for _, opt := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_GET_STRICT_CHK} {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, opt, 1); err != nil {
			return 0, err
		}
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerTimeout}); err != nil {
		return 0, err
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return sa.(*unix.SockaddrNetlink).Pid, nil
}

// A socket implements netlink.Socket.
type socket struct {
	fd    int
	close sync.Once
}

// Close implements netlink.Socket.
func (s *socket) Close() (err error) {
	s.close.Do(func() { err = os.NewSyscallError("close", unix.Close(s.fd)) })
	return err
}

// Send implements netlink.Socket.
func (s *socket) Send(m netlink.Message) error { return s.SendMessages([]netlink.Message{m}) }

// SendMessages implements netlink.Socket.
func (s *socket) SendMessages(ms []netlink.Message) error {
	var b []byte
	for _, m := range ms {
		mb, err := m.MarshalBinary()
		if err != nil {
			return err
		}
		b = append(b, mb...)
	}
	return os.NewSyscallError("sendto", unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
}

// Receive implements netlink.Socket: the messages of one datagram.
func (s *socket) Receive() ([]netlink.Message, error) {
	buf := buffers.Get().(*[receiveBuffer]byte)
	defer buffers.Put(buf)
	n, _, err := unix.Recvfrom(s.fd, buf[:], unix.MSG_TRUNC)
	for err == unix.EINTR {
		n, _, err = unix.Recvfrom(s.fd, buf[:], unix.MSG_TRUNC)
	}
	if err != nil {
		return nil, os.NewSyscallError("recvfrom", err)
	}
	if n > len(buf) {
		return nil, fmt.Errorf("datagram of %d bytes: %w", n, unix.EMSGSIZE)
	}
	return parse(buf[:n])
}

// ReceiveIter implements netlink.Socket.
func (s *socket) ReceiveIter() iter.Seq2[netlink.Message, error] {
	return func(yield func(netlink.Message, error) bool) {
		ms, err := s.Receive()
		if err != nil {
			yield(netlink.Message{}, err)
			return
		}
		for _, m := range ms {
			if !yield(m, nil) {
				return
			}
		}
	}
}

// parse splits a datagram; the data of the messages is a copy.
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
