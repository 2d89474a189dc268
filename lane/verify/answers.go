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

// Answered is how many packets the other host answered.
func (p Probe) Answered() int { return p.Accepted + p.Refused }

// what names the packets of a probe.
func (p Probe) what() string {
	if p.Match == nil {
		return "what no lane matches"
	}
	return p.Match.String()
}

// Answers says unknown of probes that were not answered: that their lane's
// packets arrive where they should is not shown by them.
func Answers(ps []Probe) []Finding {
	present := map[netip.Addr]bool{}
	for _, p := range ps {
		present[p.Remote.Addr()] = present[p.Remote.Addr()] || p.Answered() > 0
	}
	type group struct {
		at   lanePlace
		to   netip.Addr
		what string // with place for the matches and the packets
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
			g.what = "%s sent; an answer would be the server's and was not waited for"
		case len(p.Errors) > 0:
			g.what = "no answer to %s: " + strings.ReplaceAll(strings.Join(p.Errors, "; "), "%", "%%")
		case present[g.to]:
			g.what = "no answer to %s, though others' were answered: they or their answers are lost on the way"
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

// Unseen notes, in the probes of a device and in what was found out about where
// the lanes' packets arrive, how many TCP answers came to this host that the
// watching programs have not counted as their lane's. That is an ICMP
// message of a firewall's (icmp-port-unreachable refuses a connection too), or a
// packet for which the kernel has not called them. One does so, and counts it
// nowhere: Linux 6.18 of the virtual machine that niclane is developed on, for
// what arrives in an interrupt of a thread of process 1, as the tracepoint itself
// shows (tracefs). What is said of the lane is said of the packets that were seen.
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
			name = "" // by no match
		}
		// In native mode of XDP what is handed over was never received.
		seen := max(total(w.Received, name), total(w.Handed, name))
		if seen >= n {
			continue
		}
		ps[first[lane]].Unseen = int(n - seen)
		for i, f := range fs {
			if f.Lane == lane && f.Device == w.Device && f.Part == device.PartSteering &&
				(f.Key == "" || f.Key == "traffic") {
				fs[i].Meaning += fmt.Sprintf("; of %d answers %d were not seen as the lane's", n, n-seen)
			}
		}
	}
}

// WriteProbes prints for people what was sent and answered, by lane and
// address.
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
