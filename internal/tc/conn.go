// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A conn is a blocking rtnetlink socket. The kernel has answered a request when
// sendto(2) returns, so nothing ever waits here, and the run-time's poller, which
// package netlink's own connections go through, only costs: most of the time of
// an apply with a hundred classes and filters was spent in it.
type conn struct {
	fd  int
	seq uint32
	buf []byte
}

// answerTimeout bounds the wait for an answer that does not come, so that a
// mistake of ours is an error and not a hang.
const answerTimeout = 10

func dial() (*conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	for _, opt := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK, unix.NETLINK_GET_STRICT_CHK} {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, opt, 1)
		}
	}
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerTimeout})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("rtnetlink: %w", err)
	}
	// The kernel fills dumps in at most 32 KiB (netlink_dump).
	return &conn{fd: fd, buf: make([]byte, 64<<10)}, nil
}

func (c *conn) Close() error { return os.NewSyscallError("close", unix.Close(c.fd)) }

// exchange sends one message and returns the answers before the
// acknowledgement, or before the end of a dump. An error is the errno with the
// kernel's words.
func (c *conn) exchange(m netlink.Message) ([]netlink.Message, error) {
	c.seq++
	m.Header.Sequence = c.seq
	m.Header.Length = uint32(unix.NLMSG_HDRLEN + len(m.Data))
	b, err := m.MarshalBinary()
	if err != nil {
		return nil, err
	}
	if err := unix.Sendto(c.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	var out []netlink.Message
	for {
		n, _, err := unix.Recvfrom(c.fd, c.buf, unix.MSG_TRUNC)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, os.NewSyscallError("recvfrom", err)
		case n > len(c.buf):
			return nil, fmt.Errorf("answer of %d bytes: %w", n, unix.EMSGSIZE)
		}
		var done bool
		if out, done, err = c.collect(out, c.buf[:n]); done || err != nil {
			return out, err
		}
	}
}

// collect adds the messages of one datagram to out; done says that the answer
// is complete.
func (c *conn) collect(out []netlink.Message, b []byte) ([]netlink.Message, bool, error) {
	for len(b) >= unix.NLMSG_HDRLEN {
		h := netlink.Header{
			Length:   binary.NativeEndian.Uint32(b),
			Type:     netlink.HeaderType(binary.NativeEndian.Uint16(b[4:])),
			Flags:    netlink.HeaderFlags(binary.NativeEndian.Uint16(b[6:])),
			Sequence: binary.NativeEndian.Uint32(b[8:]),
		}
		if h.Length < unix.NLMSG_HDRLEN || int(h.Length) > len(b) {
			return out, false, fmt.Errorf("message of %d in %d bytes: %w", h.Length, len(b), unix.EBADMSG)
		}
		data := b[unix.NLMSG_HDRLEN:h.Length]
		b = b[min(len(b), int(h.Length+3)&^3):]
		if h.Sequence != c.seq {
			continue // the rest of an answer that was given up
		}
		switch h.Type {
		case netlink.Error, netlink.Done:
			return out, true, failure(h, data)
		default:
			out = append(out, netlink.Message{Header: h, Data: append([]byte(nil), data...)})
		}
	}
	return out, false, nil
}

// failure reads the end of an answer: nil, or errno and the kernel's words.
func failure(h netlink.Header, data []byte) error {
	if len(data) < 4 {
		return nil // the end of a dump, before Linux 4.20
	}
	code := int32(binary.NativeEndian.Uint32(data))
	if code >= 0 {
		return nil
	}
	errno := unix.Errno(-code)
	attrs := data[4:]
	if h.Type == netlink.Error {
		// The request's header follows; NETLINK_CAP_ACK keeps the rest out.
		attrs = data[min(len(data), 4+unix.NLMSG_HDRLEN):]
	}
	if h.Flags&netlink.AcknowledgeTLVs == 0 {
		return errno
	}
	const attrMessage = 1 // NLMSGERR_ATTR_MSG
	words, err := attribute(attrs, attrMessage)
	if err != nil || len(words) < 2 {
		return errno
	}
	return fmt.Errorf("%w: %s", errno, words[:len(words)-1])
}
