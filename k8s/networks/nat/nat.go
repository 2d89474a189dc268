// SPDX-License-Identifier: Apache-2.0

// Package nat finds packets of pods that are outside their lane because the node translates
// addresses: at the card, the packets do not have the address that the lane knows. These are sent
// packets that the node masquerades, and received packets for a node port or a load balancer's
// address. The package reads the kernel's table of connections, not the rules. It cannot see
// translation without connection tracking (Cilium's eBPF masquerading). It changes nothing.
package nat

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/pods"
)

// A Finding is a set of a pod's packets that are outside their lane.
type Finding struct {
	Namespace, Pod, UID string
	// Container is the name of the container that has the lane, "" for a claim.
	Container string
	Lane      string
	// Frontend is the address and port to which clients send, and which the lane does not know. The
	// zero AddrPort means that the node masquerades the pod's own connections.
	Frontend netip.AddrPort
	// Protocol is "tcp" or "udp".
	Protocol string
	// Remote is the other end of one of the connections.
	Remote netip.Addr
	// Sent says that the sent packets are in the lane, and only the received ones are outside.
	Sent bool
}

// key returns the finding without Remote. Findings with the same key are the same problem.
func (f Finding) key() Finding { f.Remote = netip.Addr{}; return f }

// Find returns the findings for the pods in lanes (in), without duplicates. flows lists the node's
// translated connections. uplink reports whether an address is reached through the card.
func Find(flows func(func(Flow)) error, in []lanes.Attachment, uplink func(netip.Addr) bool) ([]Finding, error) {
	byAddr := map[netip.Addr]*lanes.Attachment{}
	for i := range in {
		for _, a := range in[i].Addrs {
			byAddr[a] = &in[i]
		}
	}
	var out []Finding
	seen := map[Finding]bool{}
	if len(byAddr) == 0 {
		return nil, nil
	}
	err := flows(func(f Flow) {
		found, ok := left(f, byAddr)
		if ok && !seen[found.key()] && uplink(found.Remote) {
			seen[found.key()] = true
			out = append(out, found)
		}
	})
	slices.SortFunc(out, func(a, b Finding) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return out, err
}

// Outside returns the findings whose packets are really outside their lane. sees says that the
// transmit classifier sees addresses before the node translates them, so that sent packets are in
// the lane. steered says that received packets are steered to lanes.
func Outside(found []Finding, sees, steered bool) []Finding {
	if !sees {
		return found
	}
	if !steered {
		return nil
	}
	out := slices.Clone(found)
	for i := range out {
		out[i].Sent = true
	}
	return out
}

// left returns a finding if packets of a flow are outside the lane that they belong to.
func left(f Flow, byAddr map[netip.Addr]*lanes.Attachment) (Finding, bool) {
	if at := byAddr[f.Src.Addr()]; at != nil && f.ReplyDst != f.Src {
		// The pod opened this connection. Its other end is the source of the answers.
		if lane := laneOf(at, f.Protocol, f.Src, f.ReplySrc); lane != "" &&
			laneOf(at, f.Protocol, f.ReplyDst, f.ReplySrc) != lane {
			return finding(at, lane, f.Protocol, netip.AddrPort{}, f.ReplySrc.Addr()), true
		}
	}
	if at := byAddr[f.ReplySrc.Addr()]; at != nil && f.ReplySrc != f.Dst {
		if lane := laneOf(at, f.Protocol, f.ReplySrc, f.Src); lane != "" &&
			laneOf(at, f.Protocol, f.Dst, f.Src) != lane {
			return finding(at, lane, f.Protocol, f.Dst, f.Src.Addr()), true
		}
	}
	return Finding{}, false
}

// laneOf returns the pod's lane to which packets with these addresses belong, "" if there is none.
func laneOf(at *lanes.Attachment, protocol string, own, remote netip.AddrPort) string {
	for i := range at.Members {
		if m := &at.Members[i]; m.Has(protocol, own, remote) {
			return m.Lane
		}
	}
	return ""
}

func finding(at *lanes.Attachment, lane, protocol string, frontend netip.AddrPort, remote netip.Addr) Finding {
	f := Finding{Namespace: at.Namespace, Pod: at.Pod, UID: at.UID, Lane: lane, Protocol: protocol,
		Frontend: frontend, Remote: remote}
	if i := slices.IndexFunc(at.Grants, func(g pods.Grant) bool { return g.Lane == lane }); i >= 0 {
		f.Container = at.Grants[i].Container
	}
	return f
}

// Message returns the problem and what helps. services says that the agent reads Services.
func (f *Finding) Message(services bool) string {
	const masquerade = "Connections to the pod are not affected. Exempt the destination from masquerading in the " +
		"pod network's configuration, or put the pod into the host's network"
	switch {
	case !f.Frontend.IsValid() && f.Sent:
		return fmt.Sprintf("the pod's packets to %s are in its lane %s, but the answers of %[1]s are not. They come "+
			"to the node's address, because the node masquerades the pod's, and the card cannot tell them "+
			"from other packets of the node. %s", f.Remote, f.Lane, masquerade)
	case !f.Frontend.IsValid():
		return fmt.Sprintf("the pod's packets to %s leave with the node's address, because the node masquerades "+
			"them: neither lane %s nor the card can tell them from other packets of the node. %s", f.Remote,
			f.Lane, masquerade)
	}
	advice := "set services.enabled=true in niclane's chart, then the lane also has the frontends of the Services " +
		"that select the pod"
	if services {
		advice = "the lane has the frontends of Services that select the pod and lead to the lane's ports, and " +
			"no others"
	}
	what := "they are not in its lane"
	if f.Sent {
		what = "only their answers are in its lane"
	}
	return fmt.Sprintf("connections to %s/%s come to the pod, but %s %s, because the node translates them behind the "+
		"card: %s", f.Frontend, strings.ToUpper(f.Protocol), what, f.Lane, advice)
}

// Remembered is how long a finding stays valid after its last connection was seen.
const Remembered = 10 * time.Minute

// A Memory has the findings of the last minutes (Remembered).
type Memory struct{ seen map[Finding]memory }

type memory struct {
	Finding
	at time.Time
}

// Add adds findings and drops those that are too old. fresh are the findings that the Memory did
// not have. changed says that the result of String has changed.
func (m *Memory) Add(now time.Time, found []Finding) (fresh []Finding, changed bool) {
	if m.seen == nil {
		m.seen = map[Finding]memory{}
	}
	for _, f := range found {
		old, known := m.seen[f.key()]
		if !known {
			fresh, old.Finding = append(fresh, f), f
		}
		old.at = now
		m.seen[f.key()] = old
	}
	changed = len(fresh) > 0
	for key, f := range m.seen {
		if now.Sub(f.at) > Remembered {
			delete(m.seen, key)
			changed = true
		}
	}
	return fresh, changed
}

// String names the pods and their packets outside lanes, "" if there are none.
func (m *Memory) String() string {
	var out []string
	for _, f := range m.seen {
		what := "its packets are masqueraded"
		if f.Sent {
			what = "answers to its packets, which are masqueraded"
		}
		if f.Frontend.IsValid() {
			what = fmt.Sprintf("frontend %s/%s", f.Frontend, f.Protocol)
		}
		out = append(out, fmt.Sprintf("pod %s/%s, lane %s: %s", f.Namespace, f.Pod, f.Lane, what))
	}
	slices.Sort(out)
	out = slices.Compact(out)
	const most = 10
	if n := len(out); n > most {
		out = append(out[:most], fmt.Sprintf("and %d more", n-most))
	}
	return strings.Join(out, "; ")
}
