// SPDX-License-Identifier: Apache-2.0

// Package probe sends the first packet of connections to a remote host and reports the answers.
// The caller chooses the local addresses and ports, also ports on which a server listens. The
// kernel makes the packets. It refuses the addresses and ports of an existing connection, so
// that no connection is disturbed. The package sends only to the given addresses, one packet
// per millisecond, and no TCP packet twice. It needs CAP_NET_ADMIN for a given local TCP port,
// and CAP_NET_RAW for a given local UDP port.
package probe

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// An Attempt is one packet to send: a SYN, or an empty UDP datagram.
type Attempt struct {
	// Protocol is "tcp" or "udp".
	Protocol string
	// Local is an address of this host. Port 0 means a free port, which no other socket gets
	// until the answer has come.
	Local netip.AddrPort
	// Remote is the destination. Port 0 means a port that servers hardly use.
	Remote netip.AddrPort
	// Connect completes the connection and then resets it. Without Connect, the remote
	// application notices nothing: the exchange ends with the remote kernel's SYN-ACK.
	Connect bool
}

// An Answer is the answer to an attempt.
type Answer int

// The answers.
const (
	None        Answer = iota // no answer within 0.7 seconds
	Accepted                  // a SYN-ACK; for UDP, a datagram
	Refused                   // a reset, or the ICMP message for a closed port
	Unreachable               // another ICMP message, or no neighbour
	Unawaited                 // UDP from a given local port: the server on that port gets the answer
)

// A Result is the result of one attempt.
type Result struct {
	// Local and Remote include the chosen ports.
	Local, Remote netip.AddrPort
	Answer        Answer
	// Err is the reason if nothing was sent, or a detail of Unreachable.
	Err error
}

// Sent reports whether the kernel accepted the packet.
func (r Result) Sent() bool { return r.Err == nil || r.Answer == Unreachable }

// Errors of an attempt.
var (
	ErrInUse = errors.New("a connection has these addresses and ports")
	ErrUnfit = errors.New("no fitting port is free")
)

const (
	pace = time.Millisecond
	// answerTime is how long Send waits for an answer. The kernel repeats a SYN after one second
	// (TCP_TIMEOUT_INIT, net/tcp.h). The rest of that second is a margin for a busy host.
	answerTime = 700 * time.Millisecond
	tries      = 16 // attempts to find ports
)

// Remote ports to choose from: above Linux's ports for clients (ip_local_port_range), and
// hardly used by servers.
const firstPort, ports = 61000, 1<<16 - 61000

// Send makes the attempts in order, from the network namespace of the calling thread. It
// returns when all have an answer, or no more answers can be expected. fit reports whether the
// i-th attempt may use the chosen ports. A missing privilege gives EPERM before anything is
// sent. If ctx ends, attempts not yet sent have its error.
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

// pending is an attempt that was sent and has no answer yet.
type pending struct {
	i   int
	s   *socket
	end time.Time
}

// start sends the packet of the i-th attempt, from ports that fit.
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

// port returns a remote port. It repeats a port only after it has returned all others.
func (r *round) port() uint16 {
	p := r.ports[r.next%len(r.ports)]
	r.next++
	return uint16(firstPort + p)
}

// collect takes the answers that have come, and gives up attempts that have waited too long.
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

// able returns an error if a privilege is missing.
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
