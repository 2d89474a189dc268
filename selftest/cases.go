// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// LaneName is the name of the lane in every case.
const LaneName = "selftest"

// An End is an address of this host and one of the peer, on the path through the device.
type End struct{ Own, Peer netip.Addr }

// family returns the IP version as in the names of kinds: "4" or "6".
func (e End) family() string {
	if e.Own.Is4() {
		return "4"
	}
	return "6"
}

// A kind is one way to match the lane's packets, and the traffic to test it.
type kind struct {
	name string
	end  End
	// udp: the peer sends datagrams. out: this host connects to the peer, not the reverse.
	udp, out bool
	// member has the lane's keys for this match, as lines of the lanes file.
	member string
}

// kinds returns the kinds of rules for the given ends.
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

// around returns a network that contains the address: a /28 or, for IPv6, a /120.
func around(a netip.Addr) netip.Prefix {
	bits := 28
	if a.Is6() {
		bits = 120
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// parts lists the parts of a lane whose alternative mechanisms are forced, one at a time.
var parts = []device.Part{device.PartQueueSet, device.PartClassifier, device.PartMapper, device.PartBandwidth,
	device.PartPoller}

// A Target is the input of the cases.
type Target struct {
	Device   string
	LinkRate string // for the lanes file; "" if the device reports its speed
	// Port is the lane's port. The next port carries the other traffic.
	Port int
	Ends []End // IPv4, IPv6 or both
	// Queues is the number of the lane's queues.
	Queues int
}

// lanes returns the text of the lanes file of a case.
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

// A plannedCase is a case with its kind, which says what traffic it needs.
type plannedCase struct {
	Case
	kind kind
}

// cases returns all cases. First come all kinds, with the mechanisms that the planner chooses; then
// a guarantee and a ceiling. The last cases force, for the first kind, each mechanism that the
// planner did not choose.
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
				more = "    ceiling: 50%\n" // without a ceiling, the lane needs no bandwidth mechanism
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
