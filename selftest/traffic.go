// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/part/memserver"
	"github.com/niclane/niclane/bench/part/ready"
)

// Names of parts of niclane, as bench/agent uses them.
const (
	partLoad   = "load"
	partServer = "server"
	partNoise  = "noise"
)

// The traffic of a case. It has so few requests that a production host is not disturbed, but enough
// to show an interruption.
const (
	connections = 8
	caseRate    = 400      // requests per second over all connections
	caseLength  = 30 * 60  // seconds; the selftest stops them earlier
	lostAfter   = 60 * 1e9 // ns without an answer; longer than a card's reset takes
	datagram    = 200      // bytes of payload
	datagrams   = 640_000  // bit/s of payload: 400 datagrams a second
)

// traffic is the traffic of one case.
type traffic struct {
	lane, others Task // load generators
	more         []Task
}

// request returns the configuration of a generator that sends to an address.
func request(to netip.AddrPort) load.Config {
	return load.Config{
		Address: to.String(), Mode: load.Open, Rate: caseRate, Connections: connections,
		Keys: 100, Prefill: true, Duration: caseLength * 1e9, Timeout: lostAfter, ConnectTimeout: 10e9,
	}
}

// start starts the traffic of a case. It returns when all connections exist.
func (r *runner) start(ctx context.Context, k kind) (t traffic, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, t.end(ctx))
		}
	}()
	port := uint16(r.target.Port)
	own := netip.AddrPortFrom(k.end.Own, port)
	next := netip.AddrPortFrom(k.end.Own, port+1)
	if t.others, err = r.peer.Start(ctx, "others' requests", partLoad, request(next)); err != nil {
		return t, err
	}
	switch {
	case k.udp:
		c := noise.Config{Protocol: noise.UDP, Role: noise.Receive, Address: own.String()}
		if err = t.add(r.own.Start(ctx, "datagrams, receiver", partNoise, c)); err != nil {
			return t, err
		}
		c.Role, c.Rate, c.Datagram = noise.Send, datagrams, datagram
		err = t.add(r.peer.Start(ctx, "datagrams, sender", partNoise, c))
	case k.out:
		there := netip.AddrPortFrom(k.end.Peer, port)
		if err = t.add(r.peer.Start(ctx, "server", partServer, memserver.Config{Address: there.String()})); err != nil {
			return t, err
		}
		if err = reached(ctx, there); err != nil {
			return t, err
		}
		t.lane, err = r.own.Start(ctx, "the lane's requests", partLoad, request(there))
	default:
		t.lane, err = r.peer.Start(ctx, "the lane's requests", partLoad, request(own))
	}
	if err != nil {
		return t, err
	}
	if t.lane != nil {
		if err = t.wait(ctx, k.end.Own, port, k.out); err != nil {
			return t, err
		}
	}
	return t, t.wait(ctx, k.end.Own, port+1, false)
}

// reached waits until a server of the peer answers this host.
func reached(ctx context.Context, at netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, patience/3)
	defer cancel()
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	for {
		err := ready.Ask(ctx, dial, at.String(), ready.Question{Protocol: experiment.ProtocolMemcached})
		if err == nil || sleep(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
}

func (t *traffic) add(x Task, err error) error {
	if err == nil {
		t.more = append(t.more, x)
	}
	return err
}

// wait waits until the connections to a port exist.
func (t *traffic) wait(ctx context.Context, own netip.Addr, port uint16, out bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience,
		fmt.Errorf("no connections to port %d within %v", port, patience))
	defer cancel()
	for {
		n, err := established(own, port, out)
		if err != nil {
			return err
		}
		if n >= connections {
			return nil
		}
		for _, x := range []Task{t.lane, t.others} {
			if x == nil {
				continue
			}
			select {
			case <-x.Done():
				return x.Result(ctx, new(load.Result))
			default:
			}
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// established counts established connections. If out is false, they are those to a port of this
// host; if true, those from this host to that port of the peer.
func established(own netip.Addr, port uint16, out bool) (n int, err error) {
	family := uint8(unix.AF_INET)
	if own.Is6() {
		family = unix.AF_INET6
	}
	all, err := netlink.SocketDiagTCP(family)
	if err != nil {
		return 0, fmt.Errorf("connections of this host: %w", err)
	}
	for _, s := range all {
		at := s.ID.SourcePort
		if out {
			at = s.ID.DestinationPort
		}
		if s.State == netlink.TCP_ESTABLISHED && at == port {
			n++
		}
	}
	return n, nil
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end stops all traffic of a case and discards the results.
func (t *traffic) end(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for _, x := range []Task{t.lane, t.others} {
		if x != nil {
			errs = append(errs, x.Stop(ctx))
		}
	}
	return errors.Join(append(errs, t.rest(ctx))...)
}

// account stops all traffic of a case and returns the results of the connections.
func (t *traffic) account(ctx context.Context) (out []Connections, err error) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), patience,
		errors.New("no results of the connections in time"))
	defer cancel()
	var errs []error
	for _, x := range []struct {
		whose string
		task  Task
	}{{Lanes, t.lane}, {Others, t.others}} {
		if x.task == nil {
			continue
		}
		var l load.Result
		if err := errors.Join(x.task.Stop(ctx), x.task.Result(ctx, &l)); err != nil {
			errs = append(errs, err)
			continue
		}
		c := Connections{
			Whose: x.whose, Asked: connections, Lost: l.ConnectionsLost, Answered: l.Completed,
			Unanswered: l.Unanswered, Error: l.FirstError,
		}
		if l.Uncorrected != nil {
			c.Longest = l.Uncorrected.Max()
		}
		out = append(out, c)
	}
	return out, errors.Join(append(errs, t.rest(ctx))...)
}

// rest stops servers and receivers. Their clients and senders must have stopped before.
func (t *traffic) rest(ctx context.Context) error {
	var errs []error
	for _, x := range slices.Backward(t.more) {
		errs = append(errs, x.Stop(ctx))
	}
	return errors.Join(errs...)
}
