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

// retries is how often a request is made again that could not be sent, or that
// reads and whose answer was lost or changed while it was read.
const retries = 10

// A socket implements netlink.Socket: one request, and all of its answer.
type socket struct {
	family int
	fd     int    // -1 when it is closed
	port   uint32 // of fd
	pid    uint32 // what netlink.Conn takes the port to be: that of the first
	// request is the last one, open whether its answer was not seen to end.
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

// SendMessages implements netlink.Socket: of one message.
func (s *socket) SendMessages(ms []netlink.Message) error {
	if len(ms) != 1 {
		return fmt.Errorf("%d requests at once: %w", len(ms), errors.ErrUnsupported)
	}
	return s.Send(ms[0])
}

// Send implements netlink.Socket. A request that could not be sent was not made:
// the kernel does what it asks for within sendto(2), and from then on has no
// errors to return (netlink_unicast_kernel).
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

// replace connects again, in the same network namespace.
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

// Receive implements netlink.Socket: all messages of the answer, up to the end
// of a dump or the acknowledgement.
func (s *socket) Receive() ([]netlink.Message, error) {
	ms, err := s.answer()
	for n := 0; err != nil && n < retries && s.reads(); n++ {
		if err = s.send(); err == nil {
			ms, err = s.answer()
		}
	}
	return ms, err
}

// ReceiveIter implements netlink.Socket. Connections that netfilter tracks are
// too many to be kept until the last is there.
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

// errChanged is a dump of what was changed meanwhile: some may be missing
// (NLM_F_DUMP_INTR).
var errChanged = fmt.Errorf("what it lists changed while it was read: %w", unix.EAGAIN)

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

// datagram receives one; ended says that nothing more is to come.
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

// dump is both bits of NLM_F_DUMP, either of which is enough.
const dump = netlink.Root | netlink.Match

// reads reports whether the request changes nothing. Generic netlink does not
// say: there it is what asks for an answer and for no acknowledgement.
func (s *socket) reads() bool {
	h := s.request.Header
	if s.family == unix.NETLINK_ROUTE {
		return h.Type&3 == 2 // RTM_GET*: rtnl_msgtype_kind in the kernel
	}
	return h.Flags&dump == dump || h.Flags&netlink.Acknowledge == 0
}
