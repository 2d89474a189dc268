// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
)

// A Connection is a TCP connection of this host that has received packets while it was watched.
// The other fields are what its socket says about the last packet.
type Connection struct {
	Local, Remote netip.AddrPort
	// NAPI is the socket's SO_INCOMING_NAPI_ID, 0 for none. CPU is its SO_INCOMING_CPU.
	NAPI uint32
	CPU  int
	// Thread is the ID of the thread that serves the connection, 0 if not known or not looked for.
	// Process is the name of the thread's process.
	Thread  int
	Process string
}

// Sockets checks, for each lane on a device, whether the lane's NAPIs served the lane's
// connections. The sockets of the connections show that. If XDP hands the lane's packets to
// processors, it checks the processors instead. If an application places its threads by NAPI ID,
// it also checks whether each thread has connections of only one NAPI. A lane whose connections
// received nothing has no finding.
func Sockets(a Applied, now *device.State, dev string, conns []Connection) []Finding {
	d := now.Device(dev)
	if d == nil {
		return nil
	}
	matches, handed := Matches(a, dev), len(CPULanes(a, dev)) > 0
	var out []Finding
	for _, l := range a.Lanes {
		if l.Device != dev || l.Name == intent.DefaultLane {
			continue
		}
		in := connectionCount{lane: l, handed: handed, napis: napisOf(d, l)}
		if !handed && len(in.napis) == 0 {
			continue // the NAPIs of its queues are not known
		}
		own := slices.DeleteFunc(slices.Clone(conns), func(c Connection) bool {
			return !slices.ContainsFunc(matches[l.Name], c.is)
		})
		if len(own) == 0 {
			continue
		}
		for _, c := range own {
			in.add(c)
		}
		out = append(out, in.finding())
		if l.Aligned && !handed {
			out = append(out, threadsOf(l, own))
		}
	}
	return out
}

func napisOf(d *device.Device, l plan.FittedLane) []uint32 {
	var ids []uint32
	for _, n := range d.NAPIs {
		if n.Config.Queue >= 0 && slices.Contains(l.Queues, n.Config.Queue) {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// is reports whether the connection's packets match m.
func (c Connection) is(m device.Match) bool {
	if m.Protocol != "tcp" || (m.Family == 4) != c.Local.Addr().Is4() {
		return false
	}
	in := func(prefix string, a netip.Addr) bool {
		if prefix == "" {
			return true
		}
		p, err := netip.ParsePrefix(prefix)
		return err == nil && p.Contains(a)
	}
	return in(m.Local, c.Local.Addr()) && in(m.Remote, c.Remote.Addr()) &&
		device.SamePort(m.LocalPort, m.LocalPortBits, c.Local.Port(), 0) &&
		device.SamePort(m.RemotePort, m.RemotePortBits, c.Remote.Port(), 0)
}

// connectionCount counts the connections of a lane, and those of them that were not served by the
// lane's NAPIs or processors.
type connectionCount struct {
	lane           plan.FittedLane
	handed         bool
	napis          []uint32
	all, elsewhere int
	cpus           []int
	strayed        []string
}

func (s *connectionCount) add(c Connection) {
	s.all++
	if !slices.Contains(s.cpus, c.CPU) {
		s.cpus = append(s.cpus, c.CPU)
	}
	at := fmt.Sprintf("NAPI %d", c.NAPI)
	inside := slices.Contains(s.napis, c.NAPI)
	if s.handed {
		at, inside = fmt.Sprintf("processor %d", c.CPU), slices.Contains(s.lane.CPUs, c.CPU)
	}
	if inside {
		return
	}
	s.elsewhere++
	if !slices.Contains(s.strayed, at) && len(s.strayed) < 4 {
		s.strayed = append(s.strayed, at)
	}
}

func (s *connectionCount) finding() Finding {
	slices.Sort(s.cpus)
	where := "the lane's NAPIs on processors " + device.FormatCPUList(s.cpus)
	if s.handed {
		where = "the lane's processors " + device.FormatCPUList(s.lane.CPUs)
	}
	f := Finding{Severity: OK, Lane: s.lane.Name, Device: s.lane.Device, Part: device.PartSteering, Key: "sockets"}
	if s.elsewhere == 0 {
		f.Meaning = fmt.Sprintf("%s of the lane served by %s, according to the sockets", connections(s.all), where)
		return f
	}
	f.Severity = Drift
	f.Want = "the lane's connections served by " + where
	if !s.handed {
		f.Want = "the lane's connections served by the NAPIs of queues " + device.FormatCPUList(s.lane.Queues)
	}
	f.Found = fmt.Sprintf("%d of %s served by %s", s.elsewhere, connections(s.all), strings.Join(s.strayed, ", "))
	f.Meaning = "threads that busy-poll or are placed by NAPI ID look for them in the wrong place"
	f.Repair = "look at the steering findings; a connection from this host itself has no NAPI of the card"
	return f
}

func connections(n int) string {
	if n == 1 {
		return "1 connection"
	}
	return fmt.Sprintf("%d connections", n)
}
