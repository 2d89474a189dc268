// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// LaneName is the lane's in every case.
const LaneName = "selftest"

// An End is one address of each host, on the way through the device.
type End struct{ Own, Peer netip.Addr }

// family of the end, as kinds are called.
func (e End) family() string {
	if e.Own.Is4() {
		return "4"
	}
	return "6"
}

// A kind is one way to say which packets are the lane's, and the traffic that
// it needs.
type kind struct {
	name string
	end  End
	// udp: datagrams from the peer; out: connections to the peer.
	udp, out bool
	// member are the keys of the lane that say it.
	member string
}

// kinds of rules for the ends that there are.
func kinds(ends []End, port int) []kind {
	var out []kind
	for _, e := range ends {
		f := e.family()
		out = append(out,
			kind{name: "tcp" + f + " port", end: e, member: fmt.Sprintf("    ports: [%d]\n", port)},
			kind{name: "tcp" + f + " address and port", end: e,
				member: fmt.Sprintf("    ports: [%d]\n    addrs: [%q]\n", port, e.Own)},
			kind{name: "tcp" + f + " remote address and port", end: e,
				member: fmt.Sprintf("    ports: [%d]\n    remote-addrs: [%q]\n", port, e.Peer)},
			kind{name: "tcp" + f + " remote prefix and port", end: e,
				member: fmt.Sprintf("    ports: [%d]\n    remote-addrs: [%q]\n", port, around(e.Peer))},
			kind{name: "tcp" + f + " remote port", end: e, out: true,
				member: fmt.Sprintf("    remote-ports: [%d]\n", port)},
			kind{name: "udp" + f + " port", end: e, udp: true,
				member: fmt.Sprintf("    protocol: udp\n    ports: [%d]\n", port)},
		)
	}
	return out
}

// around is a network with the address in it, smaller than any that is usual.
func around(a netip.Addr) netip.Prefix {
	bits := 28
	if a.Is6() {
		bits = 120
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// parts of which alternatives are forced, one at a time.
var parts = []device.Part{device.PartQueueSet, device.PartClassifier, device.PartMapper, device.PartBandwidth,
	device.PartPoller}

// A Target is what the cases are made for.
type Target struct {
	Device   string
	LinkRate string // for the lanes file, "" if the device says its speed
	// Port of the lane; the next one is the others'.
	Port int
	Ends []End // IPv4, IPv6 or both
	// Queues of the lane.
	Queues int
}

// lanes gives the lanes file of a case.
func (t Target) lanes(k kind, force map[string]string, more string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nglobals:\n  dev: %s\n", t.Device)
	if t.LinkRate != "" {
		fmt.Fprintf(&b, "  link-rate: %s\n", t.LinkRate)
	}
	if len(force) > 0 {
		b.WriteString("  force:\n")
		for _, p := range parts {
			if r := force[string(p)]; r != "" {
				fmt.Fprintf(&b, "    %s: %s\n", p, r)
			}
		}
	}
	fmt.Fprintf(&b, "lanes:\n  %s:\n    queues: %d\n%s%s", LaneName, t.Queues, k.member, more)
	return b.String()
}

// A plannedCase is a case with what its traffic needs.
type plannedCase struct {
	Case
	kind kind
}

// cases are all that are tried: every kind of rule with what the planner
// chooses by itself, a share of the link, and then, for the first kind, every mechanism that it
// did not choose.
func (t Target) cases(choices []plan.Choice) []plannedCase {
	all := kinds(t.Ends, t.Port)
	var out []plannedCase
	for _, k := range all {
		out = append(out, plannedCase{Case{Name: k.name, Kind: k.name, Lanes: t.lanes(k, nil, "")}, k})
	}
	for _, more := range []string{"guarantee: 20%", "ceiling: 50%"} {
		name := all[0].name + ", " + strings.ReplaceAll(more, ":", "")
		lanes := t.lanes(all[0], nil, "    "+more+"\n")
		out = append(out, plannedCase{Case{Name: name, Kind: all[0].name, Lanes: lanes}, all[0]})
	}
	for _, part := range parts {
		for _, name := range plan.Mechanisms(part) {
			if chosen(choices, part) == name {
				continue
			}
			more := ""
			if part == device.PartBandwidth {
				more = "    ceiling: 50%\n" // without it a lane asks for none of them
			}
			force := map[string]string{string(part): name}
			out = append(out, plannedCase{Case{
				Name: fmt.Sprintf("%s %s", part, name), Kind: all[0].name, Force: force,
				Lanes: t.lanes(all[0], force, more),
			}, all[0]})
		}
	}
	return out
}

func chosen(choices []plan.Choice, part device.Part) string {
	for _, c := range choices {
		if c.Part == part {
			return c.Mechanism
		}
	}
	return ""
}
