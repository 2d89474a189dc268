// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/live/services"
)

// describe says what the lane's service is and does.
func (c *chooser) describe(l *Lane) string {
	s := l.service
	what := cmp.Or(s.Unit, s.Name)
	if s.Socket != "" {
		what += " (systemd's " + s.Socket + " holds the socket)"
	}
	var in, out services.Rate
	connections, counted, opened := 0, false, 0.0
	for _, e := range l.endpoints {
		connections += e.Connections
		opened += e.Opened
		if e.Traffic != nil {
			counted = true
			in, out = plus(in, e.Traffic.In), plus(out, e.Traffic.Out)
		}
	}
	if !counted || l.requests == 0 {
		return what
	}
	text := fmt.Sprintf("%s: about %s requests per second of %s, answered by %s each", what, number(l.requests),
		size(in.Bytes/l.requests), size(out.Bytes/l.requests))
	if connections > 0 {
		text += fmt.Sprintf(", on %s", times(connections, "connection"))
	}
	if opened >= 1 {
		text += fmt.Sprintf(", %s new ones per second", number(opened))
	}
	return text
}

func plus(a, b services.Rate) services.Rate {
	return services.Rate{Packets: a.Packets + b.Packets, Data: a.Data + b.Data, Bytes: a.Bytes + b.Bytes}
}

// remote says that a service runs on another NUMA node than the device's, "" if not.
func (c *chooser) remote(s *services.Service, d *device.Device) string {
	if d.Node < 0 || len(s.Processes) == 0 {
		return ""
	}
	var nodes []int
	for _, p := range s.Processes {
		for _, cpu := range c.State.CPUs {
			if slices.Contains(p.CPUs, cpu.ID) && !slices.Contains(nodes, cpu.Node) {
				nodes = append(nodes, cpu.Node)
			}
		}
	}
	if len(nodes) != 1 || nodes[0] == d.Node {
		return ""
	}
	return fmt.Sprintf("its processes run on NUMA node %d only, but %s is on node %d (docs/how-to/numa.md)", nodes[0],
		d.Name, d.Node)
}

// neighbours says whose packets arrive in the same receive queues as the lane's, "" if it is not
// known.
func (c *chooser) neighbours(l *Lane) string {
	mine := map[string]bool{}
	for _, e := range l.endpoints {
		mine[e.Of()] = true
	}
	others := map[string]float64{}
	var all, own float64
	var in []int
	var cpus []string
	for _, d := range c.Inventory.Devices {
		if d.Name != c.target.device {
			continue
		}
		for _, q := range d.Queues {
			var here float64
			for _, s := range q.Shares {
				if mine[s.Of] {
					here += s.Packets
				}
			}
			if here < 1 {
				continue
			}
			in, own = append(in, q.ID), own+here
			if q.CPUs != "" && !slices.Contains(cpus, q.CPUs) {
				cpus = append(cpus, q.CPUs)
			}
			for _, s := range q.Shares {
				all += s.Packets
				if !mine[s.Of] {
					others[s.Of] += s.Packets
				}
			}
		}
	}
	if len(in) == 0 {
		return ""
	}
	where := "its packets arrive in receive queue " + device.FormatCPUList(in)
	if len(in) > 1 {
		where = "its packets arrive in receive queues " + device.FormatCPUList(in)
	}
	if len(cpus) > 0 {
		where += " (interrupts on processors " + strings.Join(cpus, ", ") + ")"
	}
	if all-own < all/100 {
		return where + ", which nothing else uses now: the lane keeps it so"
	}
	var names []string
	for of := range others {
		names = append(names, of)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(others[b], others[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, of := range names[:min(len(names), 3)] {
		if share := 100 * others[of] / all; share >= 1 {
			parts = append(parts, fmt.Sprintf("%.0f %% %s", share, c.owner(of)))
		}
	}
	return fmt.Sprintf("%s. Of all packets there, %.0f %% are its own, %s", where, 100*own/all,
		strings.Join(parts, ", "))
}

// owner names the packets of a port: "of nginx (tcp/80)".
func (c *chooser) owner(of string) string {
	for _, s := range c.Inventory.Services {
		for _, e := range s.Endpoints {
			if e.Of() == of {
				return fmt.Sprintf("of %s (%s)", s.Name, of)
			}
		}
	}
	return "of no listener here"
}

// minContention is the part of the link from which other traffic counts as a contender for it.
const minContention = 0.05

// guarantee returns the lane's guarantee in percent of the link: twice what it sends, in steps of 5,
// if other traffic takes a noticeable part of the link. It returns 0 if the lane needs none. All lanes
// together get at most half of the link.
func (c *chooser) guarantee(l *Lane, d *device.Device) (percent int, why string) {
	var lanes, mine float64 // bytes per second
	for i := range c.Lanes {
		for _, e := range c.Lanes[i].endpoints {
			if e.Traffic == nil {
				continue
			}
			lanes += e.Traffic.Out.Bytes
			if c.Lanes[i].Name == l.Name {
				mine += e.Traffic.Out.Bytes
			}
		}
	}
	others, who := c.others(lanes)
	if d.Speed == 0 || others*8 < minContention*float64(d.Speed) {
		return 0, ""
	}
	link := float64(d.Speed)
	percent = int(5 * max(1, math.Ceil(2*mine*8/link*100/5)))
	percent = min(percent, 50/len(c.Lanes))
	return max(percent, 1), fmt.Sprintf("it sends %.2g %% of the link now. Other traffic sends %.0f %%%s, and "+
		"could fill it; in a full link, a lane without a guarantee gets almost nothing", 100*mine*8/link,
		100*others*8/link, who)
}

// others returns what leaves by the device and is not the lanes', in bytes per second, and the largest
// part of it in words.
func (c *chooser) others(lanes float64) (bytes float64, who string) {
	largest := 0.0
	seen := 0.0
	name := func(b float64, text string) {
		seen += b
		if b > largest {
			largest, who = b, text
		}
	}
	suggested := map[*services.Endpoint]bool{}
	for _, l := range c.Lanes {
		for _, e := range l.endpoints {
			suggested[e] = true
		}
	}
	for i := range c.Inventory.Services {
		s := &c.Inventory.Services[i]
		for j := range s.Endpoints {
			if e := &s.Endpoints[j]; e.Traffic != nil && !suggested[e] {
				name(e.Traffic.Out.Bytes, fmt.Sprintf(", most of it %s (%s)", s.Name, e.Of()))
			}
		}
	}
	for _, s := range c.Inventory.Senders {
		name(s.Out, fmt.Sprintf(", most of it %s (process %d) to port %d", s.Process.Name, s.Process.PID, s.RemotePort))
	}
	for _, d := range c.Inventory.Devices {
		if d.Name == c.target.device {
			seen = max(d.Out.Bytes-lanes, 0)
		}
	}
	if largest < seen/2 {
		who = ""
	}
	return seen, who
}

// listening says where ports listen.
func listening(es []*services.Endpoint) string {
	var parts []string
	for _, e := range es {
		text := fmt.Sprintf("%s listens at %s", e.Of(), addrList(e))
		if e.ReusePort {
			text += fmt.Sprintf(", by %d sockets (SO_REUSEPORT)", e.Listeners)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// number writes a rate with two digits at least, and three at most.
func number(x float64) string {
	if x < 100 {
		return fmt.Sprintf("%.0f", x)
	}
	step := math.Pow(10, math.Floor(math.Log10(x))-2)
	return fmt.Sprintf("%.0f", math.Round(x/step)*step)
}

// size writes a number of bytes with a unit of SI.
func size(b float64) string {
	for _, u := range []struct {
		unit string
		of   float64
	}{{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if b >= 10*u.of {
			return number(b/u.of) + " " + u.unit
		}
		if b >= u.of {
			return fmt.Sprintf("%.1f %s", b/u.of, u.unit)
		}
	}
	return number(b) + " bytes"
}

func times(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
