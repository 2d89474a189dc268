// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/intent"
)

func (r *reader) checkGlobals() {
	dev, bond := r.Given("globals.dev"), r.Given("globals.bond")
	switch {
	case dev && bond:
		r.Failf("globals.bond", "found beside dev (line %d), want one of the two", r.Line("globals.dev"))
	case !dev && !bond:
		r.Failf("globals", "dev is missing, want %s; or bond", netdevs().Want)
	}
	if everyAddress(r.in.Group.Unshaped) && len(r.in.Group.Unshaped) > 0 {
		r.Failf("globals.unshaped", "found a network of every address, want some of them: no packet would leave in a "+
			"lane")
	}
}

// check reports contradictions in the file that are wrong on every device.
func (r *reader) check() {
	in := &r.in
	patterns := 0
	r.checkLane(&in.Default)
	for i := range in.Lanes {
		l := &in.Lanes[i]
		inherit(&l.Moderation, in.Default.Moderation)
		r.checkLane(l)
		r.checkMembers(l)
		for j := range l.Members {
			patterns += l.Members[j].Patterns()
		}
		if patterns > maxPatterns {
			r.Failf(l.Path, "brings the file to %d combinations of own and remote port and address, want at most %d",
				patterns, maxPatterns)
			return
		}
	}
	r.checkSum()
	r.checkCgroups()
	r.checkOverlaps()
}

// inherit copies an interrupt moderation setting from globals if the lane does not have it.
// adqsetup's files have settings for all applications in globals.
func inherit(m *intent.Moderation, from intent.Moderation) {
	m.RxAdapt = cmp.Or(m.RxAdapt, from.RxAdapt)
	m.TxAdapt = cmp.Or(m.TxAdapt, from.TxAdapt)
	m.RxUsecs = cmp.Or(m.RxUsecs, from.RxUsecs)
	m.TxUsecs = cmp.Or(m.TxUsecs, from.TxUsecs)
}

func (r *reader) checkLane(l *intent.Lane) {
	path := func(name string) string { return l.Path + "." + name }
	p := l.Poller
	if p.Count > l.Queues && l.Queues > 0 {
		r.Failf(path("pollers"), "found %d, want at most one per queue: %d", p.Count, l.Queues)
	}
	if r.Given(path("poller-priority")) && r.Given(path("poller-nice")) {
		r.Failf(path("poller-nice"),
			"found beside poller-priority (line %d), want one of the two: nice means nothing to SCHED_FIFO",
			r.Line(path("poller-priority")))
	}
	if p.Kind == intent.PollerInterrupt || p.Kind == intent.PollerApplication {
		for _, name := range []string{"pollers", "poller-priority", "poller-nice"} {
			if r.Given(path(name)) {
				r.Failf(path(name), "found with poller: %s, which has no threads of niclane's; want it left out",
					p.Kind)
			}
		}
	}
	threads := cmp.Or(p.Count, l.Queues)
	if p.Kind == intent.PollerThread && threads < l.Queues {
		r.Failf(path("pollers"), "found %d with poller: %s, which is a kernel thread per queue; "+
			"want %d, or it left out",
			p.Count, p.Kind, l.Queues)
	}
	if p.Kind == intent.PollerBusy && len(l.CPUs) > 0 && len(l.CPUs) < threads {
		r.Failf(path("cpus"), "found %s for %s, want at least one for each: a busy poller does not share its processor",
			count(len(l.CPUs), "processor"), count(threads, "busy poller"))
	}
	r.checkBandwidth(l)
}

// link returns the link's rate in bit/s, the upper limit for rates in bit/s. It returns 0 if the
// file does not give it, and for a bond, whose rate depends on the number of slaves.
func (r *reader) link() uint64 {
	if r.in.Group.Bond != "" {
		return 0
	}
	return r.in.Group.LinkRate
}

func (r *reader) checkBandwidth(l *intent.Lane) {
	g, c, link := l.Bandwidth.Guarantee, l.Bandwidth.Ceiling, r.link()
	if more(g, c, link) {
		r.Failf(l.Path+".guarantee", "found %s, want at most the ceiling of %s", rateText(g), rateText(c))
	}
	if link > 0 && c.BitsPerSecond > link {
		r.Failf(l.Path+".ceiling", "found %s, want at most the link-rate of %s", rateText(c), strictyaml.BitsText(link))
	}
}

// more reports whether a is certainly higher than b. If one of them is a share and the other is
// in bit/s, the link's rate must be known; otherwise more returns false.
func more(a, b intent.Rate, link uint64) bool {
	switch {
	case a.IsZero() || b.IsZero():
		return false
	case a.Permille > 0 && b.Permille > 0:
		return a.Permille > b.Permille
	case a.Permille == 0 && b.Permille == 0:
		return a.BitsPerSecond > b.BitsPerSecond
	}
	return link > 0 && a.Of(link) > b.Of(link)
}

// checkSum refuses guarantees that add up to more than the link's rate.
func (r *reader) checkSum() {
	permille, bits, link := 0, uint64(0), r.link()
	for i := -1; i < len(r.in.Lanes); i++ {
		l := &r.in.Default
		if i >= 0 {
			l = &r.in.Lanes[i]
		}
		g := l.Bandwidth.Guarantee
		if g.IsZero() {
			continue
		}
		permille += g.Permille
		bits += g.Of(link)
		if permille > 1000 {
			r.Failf(l.Path+".guarantee", "found %s, which brings the guarantees to %s, want at most 100%%",
				rateText(g), rateText(intent.Rate{Permille: permille}))
			return
		}
		if link > 0 && bits > link {
			r.Failf(l.Path+".guarantee",
				"found %s, which brings the guarantees to %s, want at most the link-rate of %s",
				rateText(g), strictyaml.BitsText(bits), strictyaml.BitsText(link))
			return
		}
	}
}

func (r *reader) checkMembers(l *intent.Lane) {
	if l.Mode == intent.Exclusive && (len(l.Members) > 1 || r.empty[l.Path+"."+listName]) {
		r.Failf(l.Path+"."+listName, "found %s in an exclusive lane, want one, or mode: shared",
			count(len(l.Members), "member"))
	}
	for i := range l.Members {
		m := &l.Members[i]
		if r.unsure[m.Path] {
			continue // the missing key may be one that was refused
		}
		every := len(m.Ports)+len(m.RemotePorts) == 0 && everyAddress(m.Addrs) && everyAddress(m.RemoteAddrs)
		switch {
		case every && m.Cgroup != "" && len(m.Addrs)+len(m.RemoteAddrs) == 0:
			r.Failf(m.Path, "matches every %s packet, want ports, addrs, remote-ports or remote-addrs: the device "+
				"cannot identify a control group's packets", m.Protocol)
		case every:
			r.Failf(m.Path, "matches every %s packet, want ports, addrs, remote-ports or remote-addrs that say "+
				"which packets are the lane's", m.Protocol)
		case !oneFamily(m.Addrs, m.RemoteAddrs):
			r.Failf(m.Path+".remote-addrs",
				"found no address of the same family (IPv4, IPv6) as in addrs (line %d), so no packet matches",
				r.Line(m.Path+".addrs"))
		}
		if every { // checkOverlaps skips it: it overlaps every other member
			r.unsure[m.Path] = true
		}
	}
}

// everyAddress reports whether a list matches all addresses of IPv4 or of IPv6.
func everyAddress(ps []netip.Prefix) bool {
	return len(ps) == 0 || slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Bits() == 0 })
}

// oneFamily reports whether the two lists have an address family in common.
func oneFamily(a, b []netip.Prefix) bool {
	return slices.ContainsFunc([]bool{true, false},
		func(four bool) bool { return inFamily(a, four) && inFamily(b, four) })
}

func inFamily(ps []netip.Prefix, four bool) bool {
	return len(ps) == 0 || slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Addr().Is4() == four })
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func rateText(r intent.Rate) string { return strictyaml.Rate(r).String() }
