// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/bench/experiment"
	y "github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lane/intent"
)

// What the notes say of keys that are left out.
const (
	processorNote = "not simulated, because work takes no time: processors, pollers and interrupts"
	ringNote      = "not simulated: rings of the host's card"
	arpNote       = "not simulated: the lab needs no ARP"
	forceNote     = "the lab chooses mechanisms by itself"
	remoteNote    = "the lab's client stands for these addresses"
	markNote      = "not simulated: no switch of the lab looks at DSCP or PCP"
	outsideNote   = "not simulated: the lab has no tunnels, and no other networks"
	groupNote     = "left out: the servers of all lanes are in one control group, which one member can name"
)

// lanes returns the text of the lanes file for the lab, in which experiment.Expand replaces names.
func (m *mapper) lanes() (string, error) {
	m.leftOut()
	var b text
	b.line(0, "version: 1")
	b.line(0, "globals:")
	b.line(1, "dev: $$device")
	b.line(1, "link-rate: $$link   # a port of \"card: none\" does not report it")
	if m.htb {
		b.line(1, "force: {bandwidth: htb}")
	}
	own := m.s.Lanes[len(m.s.Lanes)-1]
	if m.in.Default.Queues > 0 {
		b.line(1, "queues: %d", own.Queues)
	}
	if m.in.Default.Rank > 0 {
		b.line(1, "rank: %d", own.Rank)
	}
	b.optional(1, "guarantee", own.Guarantee)
	b.optional(1, "ceiling", own.Ceiling)
	if len(m.in.Lanes) == 0 {
		b.line(0, "lanes: {}")
		return b.String(), nil
	}
	b.line(0, "lanes:")
	for i := range m.in.Lanes {
		l, out := &m.in.Lanes[i], &m.s.Lanes[i]
		m.ask(l, out)
		b.line(1, "%s:", l.Name)
		b.line(2, "queues: %d", out.Queues)
		b.line(2, "rank: %d", out.Rank)
		b.optional(2, "guarantee", out.Guarantee)
		b.optional(2, "ceiling", out.Ceiling)
		if l.Mode != intent.Shared {
			m.member(&b, 2, "", &l.Members[0])
			continue
		}
		b.line(2, "mode: shared")
		if len(l.Members) == 0 {
			b.line(2, "members: []")
			continue
		}
		b.line(2, "members:")
		for j := range l.Members {
			m.member(&b, 4, "      - ", &l.Members[j])
		}
	}
	return b.String(), nil
}

// member writes a member's keys. first replaces the indentation of the first line; "": it does not.
func (m *mapper) member(b *text, depth int, first string, x *intent.Member) {
	line := func(format string, args ...any) {
		if first != "" {
			fmt.Fprintf(b, first+format+"\n", args...)
			first = ""
			return
		}
		b.line(depth, format, args...)
	}
	line("protocol: %s", x.Protocol)
	if x.Name != "" {
		line("name: %s", x.Name)
	}
	for _, k := range []struct {
		key   string
		items []string
	}{
		{"ports", ranges(x.Ports)}, {"addrs", prefixes(x.Addrs)},
		{"remote-ports", ranges(x.RemotePorts)}, {"remote-addrs", prefixes(m.remote(x))},
	} {
		if len(k.items) > 0 {
			line("%s: [%s]", k.key, strings.Join(k.items, ", "))
		}
	}
	if x.Cgroup == "" {
		return
	}
	if len(x.CgroupCPUs) > 0 {
		m.note(processorNote, x.Path+".cgroup-cpus")
	}
	if len(x.CgroupMems) > 0 {
		m.note(processorNote, x.Path+".cgroup-mems")
	}
	if m.cgroups++; m.cgroups > 1 {
		m.note(groupNote, x.Path+".cgroup")
		return
	}
	line("cgroup: $cgroup")
}

// ranges returns ports in the form of a file, runs of them as ranges.
func ranges(ports []uint16) (out []string) {
	ports = slices.Sorted(slices.Values(ports))
	for i := 0; i < len(ports); {
		j := i
		for j+1 < len(ports) && ports[j+1] == ports[j]+1 {
			j++
		}
		text := strconv.Itoa(int(ports[i]))
		if j > i {
			text += "-" + strconv.Itoa(int(ports[j]))
		}
		out = append(out, text)
		i = j + 1
	}
	return out
}

func prefixes(all []netip.Prefix) (out []string) {
	for _, p := range all {
		if p.IsSingleIP() {
			out = append(out, y.Quote(p.Addr().String()))
			continue
		}
		out = append(out, y.Quote(p.String()))
	}
	return out
}

// remote returns the member's remote addresses in the lab.
func (m *mapper) remote(x *intent.Member) []netip.Prefix {
	if len(x.RemoteAddrs) == 0 || !local(x) || len(x.RemotePorts) > 0 {
		return x.RemoteAddrs
	}
	m.note(remoteNote, x.Path+".remote-addrs")
	var c lab.Config
	out := slices.Clone(x.RemoteAddrs)
	for _, a := range []netip.Addr{c.IPv4(lab.Client), c.IPv6(lab.Client)} {
		inside := slices.ContainsFunc(out, func(p netip.Prefix) bool { return p.Contains(a) })
		is := func(p netip.Prefix) bool { return p.Addr().Is4() == a.Is4() }
		if slices.ContainsFunc(out, is) && !inside {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// local reports whether a member is told apart by this host's end.
func local(x *intent.Member) bool { return len(x.Ports) > 0 || len(x.Addrs) > 0 }

// ask finds where the lane's requests go: to its first member that a server of the lab can be.
func (m *mapper) ask(l *intent.Lane, out *Lane) {
	out.Missing = "the lane has no member"
	for i := range l.Members {
		at, why := m.place(l, &l.Members[i])
		out.Missing = why
		if why != "" {
			continue
		}
		address := at.Addr().String()
		p := experiment.Probe{Name: l.Name, Port: int(at.Port()), Bulk: m.o.Bulk, Address: address}
		if at.Addr() == (lab.Config{}).IPv4(lab.SUT) {
			p.Address = ""
		} else if !slices.Contains(m.addresses, address) {
			m.addresses = append(m.addresses, address)
		}
		m.probes = append(m.probes, p)
		out.At = at.String()
		return
	}
}

// place returns the address and port on which a member's server listens, or why there is none.
func (m *mapper) place(l *intent.Lane, x *intent.Member) (netip.AddrPort, string) {
	none := netip.AddrPort{}
	switch {
	case x.Protocol != "tcp":
		return none, "its members use " + x.Protocol + ", and the requests are TCP"
	case !local(x):
		return none, "its members open connections, and no part of the lab does that"
	case len(x.RemotePorts) > 0:
		return none, "its members are told apart by remote ports, which the generators do not choose"
	}
	address := (lab.Config{}).IPv4(lab.SUT)
	if len(x.Addrs) > 0 {
		p := x.Addrs[0].Masked()
		if address = p.Addr(); !p.IsSingleIP() {
			address = address.Next()
		}
		if c := (lab.Config{}); address != c.IPv4(lab.SUT) && !c.Further(address) {
			return none, fmt.Sprintf("the lab's host cannot have its address %v", address)
		}
	}
	if len(x.Ports) > 0 {
		return netip.AddrPortFrom(address, x.Ports[0]), m.ambiguous(l, address, x.Ports[0])
	}
	for port := firstPort; port < lastPort; port++ {
		at := netip.AddrPortFrom(address, port)
		if m.ambiguous(l, address, port) == "" && !m.taken(at) {
			return at, ""
		}
	}
	return none, "no port of its address is free"
}

// ambiguous says whether another lane has the same address and port, for other remote addresses.
func (m *mapper) ambiguous(l *intent.Lane, address netip.Addr, port uint16) string {
	for i := range m.in.Lanes {
		o := &m.in.Lanes[i]
		if o.Name != l.Name && slices.ContainsFunc(o.Members, func(x intent.Member) bool {
			return local(&x) && matches(&x, address, port)
		}) {
			return "lane " + o.Name + " has the same port, and only remote addresses tell them apart"
		}
	}
	return ""
}

func (m *mapper) taken(at netip.AddrPort) bool {
	return slices.ContainsFunc(m.s.Lanes, func(l Lane) bool { return l.At == at.String() })
}

// matches reports whether packets by TCP to the address and port can be the member's.
func matches(x *intent.Member, address netip.Addr, port uint16) bool {
	return x.Protocol == "tcp" && (len(x.Ports) == 0 || slices.Contains(x.Ports, port)) &&
		(len(x.Addrs) == 0 || slices.ContainsFunc(x.Addrs, func(p netip.Prefix) bool { return p.Contains(address) }))
}

// Free ports are below those that the kernel gives to connections.
const (
	firstPort uint16 = 7001
	lastPort  uint16 = 32000
)

// freePorts returns n ports of the lab's own addresses that belong to no lane, at this or the other
// end. They are for the default lane and for noise.
func (m *mapper) freePorts(n int) ([]int, error) {
	own := (lab.Config{}).IPv4(lab.SUT)
	var out []int
	var by string
	for port := firstPort; port < lastPort && len(out) < n; port++ {
		free := true
		for _, l := range m.in.Lanes {
			for _, x := range l.Members {
				if local(&x) && len(x.RemotePorts) == 0 && matches(&x, own, port) || x.Protocol == "tcp" &&
					slices.Contains(x.RemotePorts, port) {
					free, by = false, x.Path
				}
			}
		}
		if free {
			out = append(out, int(port))
		}
	}
	if len(out) < n {
		return nil, fmt.Errorf("%s: this member has all traffic of the lab's address %v, which leaves none for the "+
			"default lane; want ports, or addresses outside 10.77.0.0/24", by, own)
	}
	return out, nil
}

// leftOut notes the keys that the lab's lanes do not have.
func (m *mapper) leftOut() {
	g := m.in.Group
	note := func(given bool, text, key string) {
		if given {
			m.note(text, key)
		}
	}
	note(g.BusyPoll != nil, processorNote, "globals.busypoll")
	note(g.BusyRead != nil, processorNote, "globals.busyread")
	note(g.Optimize != nil, processorNote, "globals.optimize")
	note(g.ARPFilter != nil, arpNote, "globals.arpfilter")
	note(len(g.Tunnels) > 0, outsideNote, "globals.tunnels")
	note(len(g.Unshaped) > 0, outsideNote, "globals.unshaped")
	note(len(g.Force) > 0, forceNote, "globals.force")
	for _, l := range append(lanesOf(m.in), &m.in.Default) {
		at := pathOf(l) + "."
		note(l.Rings.Rx != nil, ringNote, at+"rxring")
		note(l.Rings.Tx != nil, ringNote, at+"txring")
		note(l.DSCP != "", markNote, at+"dscp")
		note(l.PCP != "", markNote, at+"pcp")
		note(len(l.CPUs) > 0, processorNote, at+"cpus")
		usual := intent.NUMALocal
		if l == &m.in.Default {
			usual = intent.NUMAAll
		}
		note(cmp.Or(l.NUMA, usual) != usual, processorNote, at+"numa")
		note(l.Poller.Kind != "", processorNote, at+"poller")
		note(l.Poller.Count > 0, processorNote, at+"pollers")
		note(l.Poller.TimeoutUsecs > 0, processorNote, at+"poller-timeout")
		note(l.Poller.Priority > 0, processorNote, at+"poller-priority")
		note(l.Poller.Policy == intent.PolicyOther, processorNote, at+"poller-nice")
		x, d := l.Moderation, m.in.Default.Moderation // a lane has what globals has, unless it has its own
		all := l.Path == "" || l == &m.in.Default
		note(differs(x.RxAdapt, d.RxAdapt, all), processorNote, at+"rxadapt")
		note(differs(x.TxAdapt, d.TxAdapt, all), processorNote, at+"txadapt")
		note(differs(x.RxUsecs, d.RxUsecs, all), processorNote, at+"rxusecs")
		note(differs(x.TxUsecs, d.TxUsecs, all), processorNote, at+"txusecs")
		for _, member := range l.Members {
			note(member.Aligned, processorNote, member.Path+".aligned")
		}
	}
}

// differs reports whether a setting is given and is not that of globals; all: whether it is given.
func differs[T comparable](x, globals *T, all bool) bool {
	return x != nil && (all || globals == nil || *x != *globals)
}

// A text is a file that is being written.
type text struct{ strings.Builder }

func (b *text) line(depth int, format string, args ...any) {
	b.WriteString(strings.Repeat("  ", depth))
	fmt.Fprintf(b, strings.ReplaceAll(format, "$$", "$")+"\n", args...)
}

func (b *text) optional(depth int, key, value string) {
	if value != "" {
		b.line(depth, "%s: %s", key, value)
	}
}
