// SPDX-License-Identifier: Apache-2.0

package nlsock

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// retries bounds the attempts at one request. The socket tries again if it could not send the
// request. If the request only reads, it also tries again if the answer was lost, or if the
// listed objects changed during the read.
const retries = 10

// A socket implements netlink.Socket for one request at a time, with its whole answer.
type socket struct {
	family int
	fd     int    // -1 after Close
	port   uint32 // of fd
	pid    uint32 // the port that netlink.Conn knows: that of the first fd
	// request is the last request. open is true until the socket has read the end of its
	// answer.
	request netlink.Message
	open    bool
}

// Close implements netlink.Socket.
func (s *socket) Close() error {
	fd := s.fd
	if s.fd = -1; fd < 0 {
		return nil
	}
	return os.NewSyscallError("close", unix.Close(fd))
}

// SendMessages implements netlink.Socket for one message.
func (s *socket) SendMessages(ms []netlink.Message) error {
	if len(ms) != 1 {
		return fmt.Errorf("%d requests at once: %w", len(ms), errors.ErrUnsupported)
	}
	return s.Send(ms[0])
}

// Send implements netlink.Socket. If sending fails, the request had no effect: the kernel
// executes it within sendto(2), and sendto returns no error after that
// (netlink_unicast_kernel).
func (s *socket) Send(m netlink.Message) (err error) {
	s.request = m
	for range retries {
		if err = s.send(); err == nil {
			break
		}
	}
	return err
}

func (s *socket) send() error {
	if s.open {
		if err := s.replace(); err != nil {
			return fmt.Errorf("connect again: %w", err)
		}
	}
	m := s.request
	m.Header.PID = s.port
	b, err := m.MarshalBinary()
	if err != nil {
		return err
	}
	s.open = true
	return os.NewSyscallError("sendto", unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
}

// replace opens a new connection in the same network namespace.
func (s *socket) replace() error {
	if s.fd < 0 {
		return os.ErrClosed
	}
	fd, port, err := openLike(s.fd, s.family)
	if err != nil {
		return err
	}
	unix.Close(s.fd)
	s.fd, s.port, s.open = fd, port, false
	return nil
}

// Receive implements netlink.Socket. It returns all messages of the answer, up to the end of a
// dump or the acknowledgement.
func (s *socket) Receive() ([]netlink.Message, error) {
	ms, err := s.answer()
	for n := 0; err != nil && n < retries && s.reads(); n++ {
		if err = s.send(); err == nil {
			ms, err = s.answer()
		}
	}
	return ms, err
}

// ReceiveIter implements netlink.Socket. For netfilter it returns one datagram at a time,
// because the tracked connections are too many to keep in memory.
func (s *socket) ReceiveIter() iter.Seq2[netlink.Message, error] {
	receive := s.Receive
	if s.family == unix.NETLINK_NETFILTER {
		receive = func() ([]netlink.Message, error) { ms, _, err := s.datagram(); return ms, err }
	}
	return func(yield func(netlink.Message, error) bool) {
		ms, err := receive()
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

// errChanged is the error of a dump whose objects changed during the dump: some may be missing
// (NLM_F_DUMP_INTR).
var errChanged = fmt.Errorf("the listed objects changed while they were read: %w", unix.EAGAIN)

// answer receives until the answer's end.
func (s *socket) answer() (all []netlink.Message, err error) {
	for ended := false; !ended; {
		var ms []netlink.Message
		if ms, ended, err = s.datagram(); err != nil {
			return nil, err
		}
		all = append(all, ms...)
	}
	if slices.ContainsFunc(all, func(m netlink.Message) bool { return m.Header.Flags&netlink.DumpInterrupted != 0 }) {
		return nil, errChanged
	}
	return all, nil
}

// datagram receives one datagram. ended means that it is the last one of the answer.
func (s *socket) datagram() (ms []netlink.Message, ended bool, err error) {
	if !s.open {
		return nil, false, errors.New("no answer is awaited")
	}
	buf := buffers.Get().(*[receiveBuffer]byte)
	defer buffers.Put(buf)
	n, _, err := unix.Recvfrom(s.fd, buf[:], unix.MSG_TRUNC)
	for errors.Is(err, unix.EINTR) {
		n, _, err = unix.Recvfrom(s.fd, buf[:], unix.MSG_TRUNC)
	}
	if err != nil {
		return nil, false, os.NewSyscallError("recvfrom", err)
	}
	if n > len(buf) {
		return nil, false, fmt.Errorf("datagram of %d bytes: %w", n, unix.EMSGSIZE)
	}
	if ms, err = parse(buf[:n]); err != nil {
		return nil, false, err
	}
	asked := s.request.Header
	ended = asked.Flags&(netlink.Acknowledge|dump) == 0
	for i := range ms {
		h := &ms[i].Header
		if h.Sequence != asked.Sequence {
			return nil, false, fmt.Errorf("answer to request %d, not %d: %w", h.Sequence, asked.Sequence, unix.EBADMSG)
		}
		if h.PID == s.port {
			h.PID = s.pid
		}
		ended = ended || h.Type == netlink.Error || h.Type == netlink.Done
	}
	if ended {
		s.open = false
	}
	return ms, ended, nil
}

// dump is NLM_F_DUMP. It has two bits; for rtnetlink, either bit makes a request a dump.
const dump = netlink.Root | netlink.Match

// reads reports whether the request changes nothing. In rtnetlink, the message type shows it. In
// other families, a request reads if it is a dump or wants no acknowledgement.
func (s *socket) reads() bool {
	h := s.request.Header
	if s.family == unix.NETLINK_ROUTE {
		return h.Type&3 == 2 // RTM_GET*: rtnl_msgtype_kind in the kernel
	}
	return h.Flags&dump == dump || h.Flags&netlink.Acknowledge == 0
}
