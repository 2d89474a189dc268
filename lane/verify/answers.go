// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// Answered returns the number of packets that the other host has answered.
func (p Probe) Answered() int { return p.Accepted + p.Refused }

// what returns text that describes the packets of a probe.
func (p Probe) what() string {
	if p.Match == nil {
		return "traffic that no lane matches"
	}
	return p.Match.String()
}

// Answers returns an unknown finding for each probe that got no answer. Without an answer, it is
// not known whether the lane's packets arrive in the right place.
func Answers(ps []Probe) []Finding {
	present := map[netip.Addr]bool{}
	for _, p := range ps {
		present[p.Remote.Addr()] = present[p.Remote.Addr()] || p.Answered() > 0
	}
	type group struct {
		at   lanePlace
		to   netip.Addr
		what string // text with verbs for the number of packets
	}
	var sent tally[group]
	names := map[group][]string{}
	for _, p := range ps {
		g := group{at: lanePlace{p.Lane, p.Device}, to: p.Remote.Addr()}
		switch {
		case p.Answered() > 0:
			continue
		case p.Sent == 0:
			g.what = "nothing was sent: " + strings.Join(p.Errors, "; ")
		case p.Awaited == 0:
			g.what = "%s sent; an answer would go to the server, so verify did not wait for it"
		case len(p.Errors) > 0:
			g.what = "no answer to %s: " + strings.ReplaceAll(strings.Join(p.Errors, "; "), "%", "%%")
		case present[g.to]:
			g.what = "no answer to %s, though other packets were answered: these or their answers are lost on the way"
		default:
			g.what = "no answer to %s: there is no such host, or something on the way drops them"
		}
		sent.add(g, p.Sent)
		names[g] = append(names[g], p.what())
	}
	var out []Finding
	for _, g := range sent.keys {
		what := g.what
		if sent.n[g] > 0 {
			what = fmt.Sprintf(what, packets(uint64(sent.n[g])))
		}
		out = append(out, Finding{Severity: Unknown, Lane: g.at.lane, Device: g.at.dev,
			Meaning: fmt.Sprintf("probe of %s to %s: %s", some(names[g]), g.to, what)})
	}
	return out
}

// Unseen finds TCP answers that reached this host but that the watching programs did not count
// for their lane. It writes their number into the lane's first TCP probe, and into the findings
// about the lane's arriving packets. There are two possible reasons. The answer was an ICMP
// message of a firewall (icmp-port-unreachable also refuses a connection). Or the kernel did not
// call the programs: Linux 6.18 in a virtual machine does not call them, and does not count that,
// for packets of an interrupt during a thread of process 1 (seen with tracefs).
func Unseen(ps []Probe, w Watched, fs []Finding) {
	first := map[string]int{}
	answered := map[string]uint64{}
	for i, p := range ps {
		if p.Device != w.Device || p.Protocol != "tcp" {
			continue
		}
		if _, ok := first[p.Lane]; !ok {
			first[p.Lane] = i
		}
		answered[p.Lane] += uint64(p.Answered())
	}
	for lane, n := range answered {
		name := lane
		if lane == intent.DefaultLane {
			name = "" // packets of the default lane match no lane
		}
		// With native XDP, a packet that XDP handed to a processor is not in Received.
		seen := max(total(w.Received, name), total(w.Handed, name))
		if seen >= n {
			continue
		}
		ps[first[lane]].Unseen = int(n - seen)
		for i, f := range fs {
			if f.Lane == lane && f.Device == w.Device && f.Part == device.PartSteering &&
				(f.Key == "" || f.Key == "traffic") {
				fs[i].Meaning += fmt.Sprintf("; %[2]d of %[1]d answers were not seen as the lane's", n, n-seen)
			}
		}
	}
}

// WriteProbes prints, for people, how many packets were sent and answered, by lane and address.
func WriteProbes(w io.Writer, ps []Probe) {
	type group struct {
		at lanePlace
		to netip.Addr
	}
	var sent, answered, accepted tally[group]
	names := map[group][]string{}
	for _, p := range ps {
		g := group{lanePlace{p.Lane, p.Device}, p.Remote.Addr()}
		sent.add(g, p.Sent)
		answered.add(g, p.Answered())
		accepted.add(g, p.Accepted)
		names[g] = append(names[g], p.what())
	}
	for _, g := range sent.keys {
		fmt.Fprintf(w, "%-8s lane %s on %s: %s to %s (%s), %d answered", "probe", g.at.lane, g.at.dev,
			packets(uint64(sent.n[g])), g.to, some(names[g]), answered.n[g])
		if n := accepted.n[g]; n > 0 {
			fmt.Fprintf(w, ", %d of them accepted", n)
		}
		fmt.Fprintln(w)
	}
}
