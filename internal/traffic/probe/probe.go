// SPDX-License-Identifier: Apache-2.0

// Package probe sends a remote host first packets of connections that nobody
// wants, from local addresses and ports of the caller's choice, also ports that
// a server listens on, and says what was answered. The kernel makes the
// packets, and refuses those of a connection that exists, so that none is
// disturbed. It sends to the given addresses only, a packet a millisecond, none
// of TCP twice. It needs CAP_NET_ADMIN for a given local port of TCP, and
// CAP_NET_RAW for one of UDP.
package probe

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// An Attempt is one packet to send: a SYN, or an empty datagram.
type Attempt struct {
	// Protocol is "tcp" or "udp".
	Protocol string
	// Local is an address of this host; port 0 is a free one, which nobody
	// else gets until the answer has come.
	Local netip.AddrPort
	// Remote is where to; port 0 is one that hardly anybody listens on.
	Remote netip.AddrPort
	// Connect makes the connection, and resets it. Without it the remote
	// application learns of nothing: its kernel's SYN-ACK is the end.
	Connect bool
}

// An Answer is what became of an attempt.
type Answer int

// The answers.
const (
	None        Answer = iota // within 0.7 seconds
	Accepted                  // a SYN-ACK; of UDP, a datagram
	Refused                   // a reset, or the ICMP message for a closed port
	Unreachable               // another ICMP message, or no neighbour
	Unawaited                 // from a given local port of UDP: who listens there gets it
)

// A Result is what one attempt came to.
type Result struct {
	// Local and Remote are with the ports that were chosen.
	Local, Remote netip.AddrPort
	Answer        Answer
	// Err says why nothing was sent, or more of Unreachable.
	Err error
}

// Sent reports whether a packet was given to the kernel.
func (r Result) Sent() bool { return r.Err == nil || r.Answer == Unreachable }

// Errors of an attempt.
var (
	ErrInUse = errors.New("a connection has these addresses and ports")
	ErrUnfit = errors.New("no fitting port is free")
)

const (
	pace = time.Millisecond
	// answerTime leaves a busy host time before the second after which the
	// kernel sends a SYN again (TCP_TIMEOUT_INIT, net/tcp.h).
	answerTime = 700 * time.Millisecond
	tries      = 16 // of ports
)

// Remote ports to choose from: above those that Linux gives to clients
// (ip_local_port_range), and hardly used by servers.
const firstPort, ports = 61000, 1<<16 - 61000

// Send makes the attempts in order, from the network namespace of the calling
// thread, and returns when all were answered or none can be expected to be any
// more. fit says of ports that were chosen whether the i-th attempt may have
// them. A missing privilege is EPERM, before anything is sent. When ctx ends,
// what was not sent by then has its error.
func Send(ctx context.Context, attempts []Attempt, fit func(i int, local, remote netip.AddrPort) bool) ([]Result,
	error) {
	if err := able(attempts); err != nil {
		return nil, err
	}
	r := &round{attempts: attempts, fit: fit, results: make([]Result, len(attempts)), ports: rand.Perm(ports)}
	defer r.close()
	for i := range attempts {
		if err := ctx.Err(); err != nil {
			r.results[i] = Result{Local: attempts[i].Local, Remote: attempts[i].Remote, Err: err}
			continue
		}
		r.start(i)
		time.Sleep(pace)
		r.collect()
	}
	for len(r.pending) > 0 && ctx.Err() == nil {
		time.Sleep(pace)
		r.collect()
	}
	return r.results, nil
}

// round is one run of Send.
type round struct {
	attempts []Attempt
	fit      func(i int, local, remote netip.AddrPort) bool
	results  []Result
	ports    []int // to choose from, in turn
	next     int
	pending  []pending
}

// pending is an attempt that was sent, and not answered yet.
type pending struct {
	i   int
	s   *socket
	end time.Time
}

// start sends the i-th attempt's packet, from ports that fit.
func (r *round) start(i int) {
	a := r.attempts[i]
	res := &r.results[i]
	for range tries {
		*res = Result{Local: a.Local, Remote: a.Remote}
		s, err := open(a)
		if err != nil {
			res.Err = err
			return
		}
		if a.Local.Port() == 0 {
			res.Local = netip.AddrPortFrom(a.Local.Addr(), s.port)
		}
		if a.Remote.Port() == 0 {
			res.Remote = netip.AddrPortFrom(a.Remote.Addr(), r.port())
		}
		if r.fit != nil && !r.fit(i, res.Local, res.Remote) {
			res.Err = ErrUnfit
			s.close()
		} else if res.Err = s.send(res.Local, res.Remote); res.Err == nil && !s.awaits {
			res.Answer = Unawaited
			s.close()
			return
		} else if res.Err == nil {
			r.pending = append(r.pending, pending{i: i, s: s, end: time.Now().Add(answerTime)})
			return
		} else {
			s.close()
		}
		if a.Local.Port() != 0 && a.Remote.Port() != 0 || !errors.Is(res.Err, ErrInUse) &&
			!errors.Is(res.Err, ErrUnfit) {
			return
		}
	}
}

// port chooses a remote port, each once before any comes again.
func (r *round) port() uint16 {
	p := r.ports[r.next%len(r.ports)]
	r.next++
	return uint16(firstPort + p)
}

// collect takes the answers that have come, and gives up what has waited long
// enough.
func (r *round) collect() {
	now := time.Now()
	left := r.pending[:0]
	for _, p := range r.pending {
		answer, err := p.s.answer()
		if answer == None && now.Before(p.end) {
			left = append(left, p)
			continue
		}
		r.results[p.i].Answer, r.results[p.i].Err = answer, err
		p.s.close()
	}
	r.pending = left
}

func (r *round) close() {
	for _, p := range r.pending {
		p.s.close()
	}
}

// able reports what privilege is missing.
func able(attempts []Attempt) error {
	done := map[string]bool{}
	for _, a := range attempts {
		if a.Local.Port() == 0 || done[a.Protocol] {
			continue
		}
		done[a.Protocol] = true
		s, err := unbound(a)
		if errors.Is(err, unix.EPERM) {
			return err
		}
		if err == nil {
			s.close()
		}
	}
	return nil
}
