// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/niclane/niclane/live/services"
)

// A kind is what a port does.
type kind int

// The kinds of ports.
const (
	unknown kind = iota // its traffic was not counted
	idle                // fewer than minRequests
	bulk                // few large transfers
	request             // many small requests and answers
)

// The borders between the kinds.
const (
	// minRequests per second: with fewer, an interval of a few seconds cannot tell a service from
	// health checks.
	minRequests = 50
	// maxExchange is the payload of a request and its answer, in bytes. Above, the time on the link and
	// in the window decides, not the wait in a queue: 64 KiB are one GSO packet.
	maxExchange = 64 << 10
	// minBulk is the payload per second of a transfer, in bytes.
	minBulk = 1 << 20
	// full is the part of a full segment above which segments count as full.
	full = 0.8
	// headers are those of a segment with timestamps (IPv4), in bytes.
	headers = 52
	// minDatagram is the payload of a full datagram of QUIC, in bytes (RFC 9000: at least 1200).
	minDatagram = 1000
)

// requests returns the estimated number of requests per second. A request and its answer take at
// least one packet with data each, so it is the smaller number of the two.
func requests(e *services.Endpoint) float64 {
	return min(e.Traffic.In.Data, e.Traffic.Out.Data)
}

// kindOf returns what a port does. mtu is the device's.
func kindOf(e *services.Endpoint, mtu float64) kind {
	if e.Traffic == nil {
		return unknown
	}
	in, out, n := e.Traffic.In, e.Traffic.Out, requests(e)
	bytes := in.Bytes + out.Bytes
	switch {
	case bytes >= minBulk && bytes >= n*maxExchange:
		return bulk
	case n < minRequests:
		return idle
	case e.Protocol == "tcp" && mean(in) >= full*(mtu-headers) && mean(out) >= full*(mtu-headers):
		return bulk // full segments both ways: a copy or a tunnel
	case e.Protocol == "udp" && bytes >= minBulk && stream(in, out):
		return bulk
	}
	return request
}

// stream reports whether datagrams are a stream with acknowledgements, as QUIC's are: full ones one
// way, and clearly fewer the other way.
func stream(in, out services.Rate) bool {
	if in.Bytes > out.Bytes {
		in, out = out, in
	}
	return mean(out) >= minDatagram && out.Data >= 1.5*in.Data
}

func mean(r services.Rate) float64 {
	if r.Data == 0 {
		return 0
	}
	return r.Bytes / r.Data
}

// A candidate is a port that can have a lane.
type candidate struct {
	service  *services.Service
	endpoint *services.Endpoint
	requests float64
	doubt    string // why it looks not worth a lane, but was asked for
}

// judgeAll sorts the ports into worth and Left.
func (c *chooser) judgeAll() {
	for i := range c.Inventory.Services {
		s := &c.Inventory.Services[i]
		for j := range s.Endpoints {
			e := &s.Endpoints[j]
			if c.Selected != nil && !c.Selected(s, e) {
				continue
			}
			why, never := c.against(s, e)
			if why != "" && (never || c.Selected == nil) {
				c.leave(s, e, why)
				continue
			}
			x := candidate{service: s, endpoint: e, doubt: why}
			if e.Traffic != nil {
				x.requests = requests(e)
			}
			c.worth = append(c.worth, x)
		}
	}
}

// leave notes a port without a lane.
func (c *chooser) leave(s *services.Service, e *services.Endpoint, why string) {
	c.left(s.Name, why, e.Of())
}

// left notes ports without a lane. Ports of services with the same name and the same reason are one note.
func (c *chooser) left(service, why string, ports ...string) {
	i := slices.IndexFunc(c.Left, func(l Left) bool { return l.Service == service && l.Why == why })
	if i < 0 {
		i = len(c.Left)
		c.Left = append(c.Left, Left{Service: service, Why: why})
	}
	for _, of := range ports {
		if l := &c.Left[i]; !slices.Contains(l.Of, of) {
			l.Of = append(l.Of, of)
		}
	}
}

// against returns the reason why a port should have no lane, "" if there is none. never says that it
// cannot have one.
func (c *chooser) against(s *services.Service, e *services.Endpoint) (why string, never bool) {
	if len(e.Devices) == 0 {
		return fmt.Sprintf("only this host reaches it, by %s: its packets pass no card", addrList(e)), true
	}
	if !c.target.among(e.Devices) {
		return fmt.Sprintf("it is reached by %s, not by %s", strings.Join(e.Devices, ", "), c.target.name()), true
	}
	if name, file := c.applied(e); name != "" {
		return fmt.Sprintf("it has the lane %s of %s already", name, file), false
	}
	if s.Carries != "" {
		return "it carries " + s.Carries + ": a change of its queues could end it", false
	}
	if e.Protocol == "udp" && s.Name == services.Kernel {
		return "the socket is the kernel's own, as that of a tunnel: the packets inside belong to other services", false
	}
	if e.Protocol == "udp" && e.Ephemeral {
		return "the port is one that the kernel gives to clients, so this is rather a client's socket", false
	}
	switch kindOf(e, c.mtu(c.target)) {
	case unknown:
		return "its traffic is not known", false
	case idle:
		if e.Traffic.In.Data+e.Traffic.Out.Data == 0 && e.Local > 0 {
			return fmt.Sprintf("its %d connections are from this host: their packets pass no card", e.Local), false
		}
		return fmt.Sprintf("idle: fewer than %d requests per second", minRequests), false
	case bulk:
		return fmt.Sprintf("bulk: %s in and %s out per second in large pieces, which a lane does not make faster",
			size(e.Traffic.In.Bytes), size(e.Traffic.Out.Bytes)), false
	}
	return "", false
}

// applied returns the lane that has a port now, and its file.
func (c *chooser) applied(e *services.Endpoint) (lane, file string) {
	for _, a := range c.Applied {
		if !c.target.among(a.Devices) {
			continue
		}
		for _, l := range a.Intent.Lanes {
			for _, m := range l.Members {
				if m.Protocol == e.Protocol && slices.Contains(m.Ports, e.Port) {
					return l.Name, a.File
				}
			}
		}
	}
	return "", ""
}

func addrList(e *services.Endpoint) string {
	var out []string
	for _, a := range e.Addrs {
		out = append(out, a.String())
	}
	return strings.Join(out, " and ")
}
