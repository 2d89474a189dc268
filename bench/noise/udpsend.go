// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/part/sock"
	"github.com/niclane/niclane/bench/part/thread"
)

const (
	// least is the least time between two sends, ns. Datagrams that become due between them leave
	// together: 8 datagrams of 1472 bytes at 1 Gbit/s.
	least = 100e3
	// late is the largest delay, in ns, that a sender makes up for. It does not send older datagrams.
	late = 2e6
	// echoEvery is the time between two echo datagrams, over all flows, ns.
	echoEvery = 1e6
	// again is the time between two attempts of a handshake, ns. goodbye limits the handshake at the
	// end, ns.
	again   = 20e6
	goodbye = 1e9
)

// A sender is a run that sends datagrams.
type sender struct {
	*run
	self   uint64 // identity of its own clock, see clockIdentity
	id     uint64 // random number of this run, for its headers
	flows  []*outgoing
	out    *volley
	in     *batch
	gap    float64 // time between two datagrams, ns
	due    float64 // when the next datagram is due
	turn   int     // index of the flow that sends next
	echoed int64   // when the last echo datagram was sent
}

// outgoing is one flow at the sender. fd is -1 after the flow has ended.
type outgoing struct {
	fd   int
	flow uint16
	sent uint64
}

func (r *run) sendDatagrams(self uint64) error {
	s := &sender{
		run: r, self: self, id: rand.Uint64() | 1, out: newVolley(r.cfg.Datagram), in: newBatch(),
		gap: float64(r.cfg.Datagram) * 8e9 / float64(r.cfg.Rate),
	}
	defer func() {
		for _, f := range s.flows {
			f.close()
		}
	}()
	for i := range r.cfg.Flows {
		if err := s.open(uint16(i)); err != nil {
			return err
		}
	}
	r.begin()
	s.due = float64(r.start)
	cpu := thread.CPUTime()
	if err := s.loop(); err != nil {
		return err
	}
	if n := r.res.Forgone; n > 0 {
		r.warn("%d datagrams were due and not sent: there was no time, or no room in the socket", n)
	}
	r.total(cpu, r.clock.Now())
	return s.leave()
}

func (f *outgoing) close() {
	if f.fd >= 0 {
		unix.Close(f.fd)
		f.fd = -1
	}
}

// open connects a flow. It repeats hello until the receiver answers welcome, because the receiver
// may start later.
func (s *sender) open(flow uint16) error {
	fd, err := sock.DialUDP(s.addr)
	if err != nil {
		return err
	}
	f := &outgoing{fd: fd, flow: flow}
	s.flows = append(s.flows, f)
	mtu, name, value := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	if s.addr.Addr().Unmap().Is6() {
		mtu, name, value = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
	}
	if err := unix.SetsockoptInt(fd, mtu, name, value); err != nil {
		return fmt.Errorf("forbid fragments: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("set SO_TIMESTAMPNS: %w", err)
	}
	if s.cfg.SendBuffer > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, s.cfg.SendBuffer); err != nil {
			return fmt.Errorf("set SO_SNDBUF %d: %w", s.cfg.SendBuffer, err)
		}
	}
	deadline := s.clock.Now() + s.cfg.ConnectTimeout
	for {
		err := s.say(f, hello)
		for until := s.clock.Now() + again; ; {
			if ended, perr := s.poll(f.fd, until); perr != nil {
				return perr
			} else if ended {
				return s.early()
			}
			came, rerr := s.heard(f, welcome)
			if came {
				s.res.Flows++
				return s.watch(fd, unix.EPOLLIN)
			}
			if rerr != nil {
				err = rerr
			}
			if s.clock.Now() >= until {
				break
			}
		}
		if s.clock.Now() >= deadline {
			if err == nil {
				err = errors.New("no receiver answers")
			}
			return fmt.Errorf("flow %d to %s: %w", flow, s.addr, err)
		}
	}
}

// say sends a header without payload. Its error may be an ICMP error (nothing listens) for an
// earlier datagram of the flow.
func (s *sender) say(f *outgoing, k kind) error {
	var b [headerBytes]byte
	h := header{kind: k, flow: f.flow, run: s.id, clock: s.self, seq: f.sent, stamp: thread.Monotonic()}
	h.put(b[:])
	_, err := unix.Write(f.fd, b[:])
	if err == unix.EAGAIN || err == unix.EINTR {
		return nil
	}
	return err
}

// poll waits until fd is readable or until has come. It reports whether ctx has ended.
func (s *sender) poll(fd int, until int64) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(s.wake), Events: unix.POLLIN}, {Fd: int32(fd), Events: unix.POLLIN}}
	ts := unix.NsecToTimespec(max(until-s.clock.Now(), 0))
	if _, err := unix.Ppoll(fds, &ts, nil); err != nil && err != unix.EINTR {
		return false, fmt.Errorf("ppoll: %w", err)
	}
	return fds[0].Revents != 0, nil
}

// heard reads the receiver's datagrams for f and reports whether one of them is of kind k.
func (s *sender) heard(f *outgoing, k kind) (came bool, err error) {
	n, errno := s.in.receive(f.fd)
	if errno != 0 {
		if errno != unix.EAGAIN && errno != unix.EINTR {
			err = errno
		}
		return false, err
	}
	offset := realOffset()
	for i := range n {
		h, err := s.in.header(i)
		if err != nil || h.run != s.id || h.flow != f.flow {
			continue
		}
		came = came || h.kind == k
		if h.kind != reply || !s.started {
			continue
		}
		at := s.in.arrived(i) - offset
		if at <= 0 {
			at = thread.Monotonic()
		}
		s.latency.add(at - h.stamp)
		s.res.Latency.Record(at - h.stamp)
		s.res.LatencyOf = RoundTrip
	}
	return came, nil
}

func (s *sender) loop() error {
	var events [batchSize]unix.EpollEvent
	for {
		now := s.clock.Now()
		if now >= s.next {
			s.tick(now)
		}
		if s.cfg.Duration > 0 && now >= s.start+s.cfg.Duration {
			return nil
		}
		if err := s.send(now); err != nil {
			return err
		}
		if !slices.ContainsFunc(s.flows, func(f *outgoing) bool { return f.fd >= 0 }) {
			return nil
		}
		until := min(s.next, max(int64(s.due), now+least))
		if s.cfg.Duration > 0 {
			until = min(until, s.start+s.cfg.Duration)
		}
		ended, err := s.poll(s.epfd, until)
		if err != nil {
			return err
		}
		n, err := unix.EpollWait(s.epfd, events[:], 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		s.res.Wakeups++
		for _, e := range events[:max(n, 0)] {
			for _, f := range s.flows {
				if f.fd == int(e.Fd) {
					if _, err := s.heard(f, reply); err != nil {
						s.drop(f, err)
					}
				}
			}
		}
		if ended {
			return nil
		}
	}
}

// send sends the datagrams that are due at time now. Flows take turns.
func (s *sender) send(now int64) error {
	if over := float64(now-late) - s.due; over > 0 {
		n := int64(over/s.gap) + 1
		s.res.Forgone += n
		s.due += float64(n) * s.gap
	}
	k := int((float64(now)-s.due)/s.gap) + 1
	if float64(now) < s.due {
		return nil
	}
	flows, sent := len(s.flows), 0
	for j := range min(k, flows) {
		f := s.flows[(s.turn+j)%flows]
		n, err := s.some(f, (k-j+flows-1)/flows)
		if err != nil {
			return err
		}
		sent += n
	}
	s.turn = (s.turn + k) % flows
	s.due += float64(sent) * s.gap
	return nil
}

// some sends up to n datagrams of f and returns how many it sent.
func (s *sender) some(f *outgoing, n int) (sent int, err error) {
	for sent < n && f.fd >= 0 {
		m := min(n-sent, batchSize)
		h := header{kind: data, flow: f.flow, run: s.id, clock: s.self, stamp: thread.Monotonic()}
		for i := range m {
			h.seq = f.sent + uint64(i)
			if h.kind = data; h.stamp-s.echoed >= echoEvery {
				h.kind, s.echoed = echo, h.stamp
			}
			h.put(s.out.heads[i][:])
		}
		took, errno := s.out.send(f.fd, m)
		switch errno {
		case 0:
		case unix.EINTR:
			continue
		case unix.EAGAIN, unix.ENOBUFS: // no room in the socket: the rest stays due
			return sent, nil
		case unix.EMSGSIZE:
			return sent, fmt.Errorf("datagramBytes %d: longer than the path carries without fragments", s.cfg.Datagram)
		default:
			s.drop(f, errno)
			return sent, nil
		}
		f.sent += uint64(took)
		sent += took
		s.bytes += int64(took) * int64(s.cfg.Datagram)
		s.res.Datagrams += int64(took)
		if took < m {
			return sent, nil
		}
	}
	return sent, nil
}

// drop ends a flow with an error.
func (s *sender) drop(f *outgoing, err error) {
	f.close()
	s.warn("a flow ended early: %v", err)
}

// leave tells the receiver how many datagrams of each flow were sent, until it answers. If the
// receiver no longer listens, that is no error: it has ended.
func (s *sender) leave() error {
	left := slices.DeleteFunc(slices.Clone(s.flows), func(f *outgoing) bool { return f.fd < 0 })
	for deadline := s.clock.Now() + goodbye; len(left) > 0 && s.clock.Now() < deadline; {
		left = slices.DeleteFunc(left, func(f *outgoing) bool { return s.say(f, end) != nil })
		for until := s.clock.Now() + again; len(left) > 0 && s.clock.Now() < until; {
			var fds []unix.PollFd
			for _, f := range left {
				fds = append(fds, unix.PollFd{Fd: int32(f.fd), Events: unix.POLLIN})
			}
			ts := unix.NsecToTimespec(max(until-s.clock.Now(), 0))
			if _, err := unix.Ppoll(fds, &ts, nil); err != nil && err != unix.EINTR {
				return fmt.Errorf("ppoll: %w", err)
			}
			left = slices.DeleteFunc(left, func(f *outgoing) bool {
				came, err := s.heard(f, ended)
				return came || err != nil
			})
		}
	}
	return nil
}
