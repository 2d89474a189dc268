// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lab"
)

// labMTU is the default of lab.Config.MTU.
const labMTU = 1500

// noiseEnds returns the configurations of the sender and the receiver of one noise to address. link
// is the link's rate in bit/s, mtu the MTU of the path. The configurations name no processors.
func noiseEnds(n experiment.Noise, address string, link int64, mtu int) (send, receive noise.Config) {
	bits := int64(n.BitsPerSecond)
	if bits == 0 {
		bits = int64(n.Share) * link / 1000
	}
	at, _ := netip.ParseAddrPort(address) // package noise reports a wrong address
	ipv6 := at.Addr().Is6() && !at.Addr().Is4In6()
	receive = noise.Config{Role: noise.Receive, Protocol: n.Protocol, Address: address, Flows: n.Flows}
	send = receive
	send.Role = noise.Send
	if n.Protocol == noise.UDP {
		send.Datagram = cmp.Or(n.Segment, largestDatagram(mtu, ipv6))
		send.Rate = noise.DatagramRate(bits, send.Datagram, ipv6)
	} else {
		send.MSS, send.Congestion = n.Segment, n.Congestion
		send.Rate = noise.PayloadRate(bits, mtu, ipv6)
	}
	return send, receive
}

// largestDatagram returns the largest payload that fits the MTU without fragmentation.
func largestDatagram(mtu int, ipv6 bool) int {
	if ipv6 {
		return mtu - 40 - 8
	}
	return mtu - 20 - 8
}

// A flow is one running noise: its sender and its receiver.
type flow struct {
	direction        string
	asked            int64
	from, to         string
	sender, receiver task
}

// startNoise starts the noise of a window that lasts for window ns. With several addresses of the SUT,
// each has its share of each noise, from or to the noise host's address with the same number.
func (m *measurement) startNoise(ctx context.Context, all []experiment.Noise, window int64) ([]flow, error) {
	var out []flow
	interval := noiseInterval(window)
	ends := map[string][]string{lab.SUT: m.on.addresses(), lab.Noise: m.noiseAddresses()}
	links := len(ends[lab.SUT])
	for i, n := range all {
		n.BitsPerSecond /= uint64(links)
		for card := range links {
			x := flow{direction: n.Direction, from: lab.Noise, to: lab.SUT}
			if n.Direction == experiment.FromSUT {
				x.from, x.to = x.to, x.from
			}
			rate, mtu := m.on.link()
			address := net.JoinHostPort(ends[x.to][card], strconv.Itoa(n.Port))
			send, receive := noiseEnds(n, address, rate/int64(links), mtu)
			send.Interval, receive.Interval = interval, interval
			send.Setup, receive.Setup = m.noiseThread(x.from), m.noiseThread(x.to)
			x.asked = send.Rate
			// Sender and receiver run until they are asked to end, so that the noise lasts as long as
			// the window.
			var err error
			what := fmt.Sprintf("noise %d %s", i+1, n.Direction)
			if links > 1 {
				what += fmt.Sprintf(", card %d", card+1)
			}
			if x.receiver, err = m.on.launch(ctx, noiseEnd(what+", receiver", x.to, receive)); err != nil {
				return out, err
			}
			if x.sender, err = m.on.launch(ctx, noiseEnd(what+", sender", x.from, send)); err != nil {
				return out, errors.Join(err, x.receiver.stop())
			}
			out = append(out, x)
		}
	}
	return out, nil
}

// noiseAddresses returns the noise host's addresses: as many as the SUT's.
func (m *measurement) noiseAddresses() []string {
	if h := m.e.Hosts; h != nil && h.Noise != nil {
		return h.Noise.Addresses()
	}
	return []string{m.on.addressOf(lab.Noise)}
}

// noiseInterval returns the length of the intervals in which noise is counted, ns. Ten or more of
// them fit into a window.
func noiseInterval(window int64) int64 {
	return min(max(window/10, noise.LeastInterval), int64(100*time.Millisecond))
}

func noiseEnd(what, host string, c noise.Config) launch {
	return launch{what: what, host: host, part: "noise", config: c, Place: experiment.Place{CPUs: c.CPUs, FIFO: c.FIFO}}
}

func (m *measurement) noiseThread(host string) thread.Setup {
	p := m.e.Placement.Noise
	if host == lab.SUT {
		p = m.e.Placement.SUTNoise
	}
	return thread.Setup{CPUs: p.CPUs, FIFO: p.FIFO}
}

// collect ends the noise and returns what arrived while latency was counted.
func (x *flow) collect(ctx context.Context, l load.Result, a axis) (result.Noise, error) {
	n := result.Noise{Direction: x.direction, Asked: x.asked}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the noise did not end in time"))
	defer cancel()
	// If one end has stopped by itself, its error is the cause. The other end stops because of
	// that.
	if err := cmp.Or(x.receiver.ended(), x.sender.ended()); err != nil {
		return n, err
	}
	if err := x.sender.stop(); err != nil {
		return n, err
	}
	if err := x.sender.result(ctx, &n.Sender); err != nil {
		return n, err
	}
	// Without senders the receiver ends by itself.
	if err := x.receiver.result(ctx, &n.Receiver); err != nil {
		return n, err
	}
	n.Sender.StartMono -= a.ahead[x.from]
	n.Receiver.StartMono -= a.ahead[x.to]
	var ok bool
	if n.Achieved, ok = n.Receiver.Over(l.StartMono, l.StartMono+l.Duration); !ok {
		return n, fmt.Errorf("%s: no noise in the time in which latency was counted", x.receiver.name())
	}
	return n, nil
}

// abandon ends sender and receiver if they still run.
func (x *flow) abandon() {
	_ = x.sender.stop()
	_ = x.receiver.stop()
}
