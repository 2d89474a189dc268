// SPDX-License-Identifier: Apache-2.0

// Package roundtrip samples TCP's smoothed round trip times of services' connections. They have what
// the programs of package waits cannot see: the answer's time in the card, where a host has no
// transmit completions, and in the network, and the peer's time until it acknowledges. A peer that
// waits before its next request may delay the acknowledgement up to 40 ms, and then so may be the time
// (RFC 1122, 4.2.3.2). A sample counts as often as the connection has received a segment since the
// last one. So the times are those of requests, as in package waits: a connection with many requests
// counts more than one with few. It reads sockets by package sockiter and changes nothing.
package roundtrip

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/niclane/niclane/app/sockiter"
	"github.com/niclane/niclane/live/waits"
)

// Sockets are listed every period, or so seldom that listing takes at most a 20th of the time.
const (
	period   = 25 * time.Millisecond
	leastOff = 19
)

// A Service is the connections at local ports.
type Service struct {
	Name  string
	Ports []uint16
	Addrs []netip.Prefix // local addresses; none: all
}

// A Sampler samples until it is closed.
type Sampler struct {
	services []Service
	reader   *sockiter.Reader
	stop     context.CancelFunc
	done     sync.WaitGroup

	mu     sync.Mutex
	times  map[string]*waits.Histogram
	failed error
}

// Open begins to sample in the calling thread's network namespace. It needs CAP_BPF and CAP_PERFMON,
// and Linux 5.9 with BTF.
func Open(ctx context.Context, services []Service) (*Sampler, error) {
	var ports []uint16
	for _, s := range services {
		ports = append(ports, s.Ports...)
	}
	r, err := sockiter.Open(sockiter.Filter{Ports: ports, Connections: true})
	if err != nil {
		return nil, err
	}
	s := &Sampler{services: services, reader: r, times: map[string]*waits.Histogram{}}
	for _, x := range services {
		s.times[x.Name] = &waits.Histogram{}
	}
	// The namespace is that of the thread that opens the iterator's file, so the first list is made here.
	received, err := s.sample(nil)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	ctx, s.stop = context.WithCancel(ctx)
	s.done.Go(func() { s.run(ctx, received) })
	return s, nil
}

func (s *Sampler) run(ctx context.Context, received map[uint64]uint32) {
	for {
		began := time.Now()
		now, err := s.sample(received)
		if err != nil {
			s.mu.Lock()
			s.failed = err
			s.mu.Unlock()
			return
		}
		received = now
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(period, leastOff*time.Since(began))):
		}
	}
}

// sample records the round trip time of each connection that has received a segment since the last
// sample; others have no new time. It returns the numbers of received segments, by the socket's cookie.
func (s *Sampler) sample(before map[uint64]uint32) (map[uint64]uint32, error) {
	socks, err := s.reader.Sockets()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := make(map[uint64]uint32, len(socks))
	for _, c := range socks {
		if c.RTT == 0 {
			continue
		}
		now[c.Cookie] = c.Received
		last, known := before[c.Cookie]
		if !known || last == c.Received {
			continue
		}
		for _, x := range s.services {
			if slices.Contains(x.Ports, c.Local.Port()) && (len(x.Addrs) == 0 ||
				slices.ContainsFunc(x.Addrs, func(p netip.Prefix) bool { return p.Contains(c.Local.Addr()) })) {
				s.times[x.Name].RecordN(int64(c.RTT), uint64(c.Received-last)) // modulo 2^32, as the kernel counts
				break
			}
		}
	}
	return now, nil
}

// Times returns the round trip times of each service since Open, by its name.
func (s *Sampler) Times() (map[string]*waits.Histogram, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return nil, s.failed
	}
	out := make(map[string]*waits.Histogram, len(s.times))
	for name, h := range s.times {
		out[name] = waits.Merge(h)
	}
	return out, nil
}

// Close ends the sampling.
func (s *Sampler) Close() error {
	s.stop()
	s.done.Wait()
	return s.reader.Close()
}
