// SPDX-License-Identifier: Apache-2.0

// Package pods decides which of a pod's packets belong to which lane. The input is the lanes
// of the pod's containers, the ports that they declare, and the pod's annotations or claim
// parameters. It is pure. If it cannot tell two lanes' packets apart, it returns an error.
package pods

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/niclane/niclane/k8s/api/params"
	"github.com/niclane/niclane/k8s/policy"
)

// Annotation limits the lanes of a pod's containers to some packets. Its value is a JSON
// object from container names to params.Parameters.
const Annotation = "niclane.dev/lanes"

// A Grant is a lane that a container of the pod was given.
type Grant struct {
	// Container is the container's name, "" for a claim. A claim's lane gets all packets of the pod,
	// unless Parameters limit them.
	Container string `json:"container,omitempty"`
	Class     string `json:"class"`
	// Units are the IDs of the container's units. Only an exclusive class gives more than one.
	Units []string `json:"units"`
	// Lane is the name of the lane that has the units.
	Lane string `json:"lane"`
	// Parameters of the claim, nil if there are none.
	Parameters *params.Parameters `json:"parameters,omitempty"`
}

// Where has the addresses, Services and control groups by which a pod's packets are recognised.
type Where struct {
	// Addrs are the pod's addresses.
	Addrs []netip.Addr
	// Node are the node's addresses. A frontend without an address stands for all of them.
	Node []netip.Addr
	// Services are the ways from Kubernetes Services to the pod.
	Services []Service
	// Cgroup returns the control group of the named container. It is nil unless the pod uses the
	// host's network.
	Cgroup func(container string) string
}

// Members returns the pod's packets as members of the granted lanes. It returns an error if packets
// would belong to two lanes, or if the pod has no address.
func Members(pod *corev1.Pod, at Where, grants []Grant) ([]policy.Member, error) {
	narrowed, err := annotated(pod)
	if err != nil {
		return nil, err
	}
	if len(at.Addrs) == 0 {
		return nil, errors.New("the pod has no address by which its packets can be recognised")
	}
	for _, a := range at.Addrs {
		if !pod.Spec.HostNetwork && slices.Contains(at.Node, a.Unmap()) {
			return nil, fmt.Errorf("the pod has the node's address %s: its lane would get the node's packets", a)
		}
	}
	var all []packetSet
	var errs []error
	for _, g := range grants {
		ms, err := matches(pod, g, narrowed)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fronts, err := frontends(pod, at, g, ms)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(append(all, ms...), fronts...)
	}
	errs = append(errs, apart(all))
	if n := patterns(all, len(at.Addrs)); n > maxPatterns {
		errs = append(errs, fmt.Errorf("the pod's addresses and ports make %d patterns, want at most %d: each is a "+
			"rule of the card, and the node's pods share these", n, maxPatterns))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return members(pod, at, all), nil
}

// maxPatterns is the most patterns that one pod may have. No pod can so take all rules of the
// card from the others.
const maxPatterns = 256

// patterns returns the number of combinations of address, port, remote address and remote
// port in the packet sets of a pod with this many addresses.
func patterns(all []packetSet, addrs int) (n int) {
	for _, s := range all {
		of := max(1, len(s.ports)) * max(1, len(s.remotePorts)) * max(1, len(s.remotes))
		if !s.front.IsValid() {
			of *= addrs
		}
		n += of
	}
	return n
}

// annotated reads the pod's annotation: niclane's or Intel's.
func annotated(pod *corev1.Pod) (map[string]params.Parameters, error) {
	out := map[string]params.Parameters{}
	if text := annotation(pod, Annotation); text != "" {
		if err := params.Strict([]byte(text), &out); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", Annotation, err)
		}
		for _, name := range slices.Sorted(maps.Keys(out)) {
			p := out[name]
			if err := p.Check(); err != nil {
				return nil, fmt.Errorf("annotation %s: %s: %w", Annotation, name, err)
			}
			if container(pod, name) == nil {
				return nil, fmt.Errorf("annotation %s: the pod has no container %q (has: %s)", Annotation, name,
					names(pod))
			}
		}
	}
	if text := annotation(pod, IntelAnnotation); text != "" {
		if len(out) > 0 {
			return nil, fmt.Errorf("found both annotations %s and %s, want one of the two", Annotation, IntelAnnotation)
		}
		return intel(pod, text)
	}
	return out, nil
}

// annotation returns the value of an annotation. Templates write an empty value for none, so
// "" means that there is no annotation.
func annotation(pod *corev1.Pod, key string) string { return strings.TrimSpace(pod.Annotations[key]) }

// Annotated reports whether the pod has niclane's or Intel's annotation.
func Annotated(pod *corev1.Pod) bool {
	return annotation(pod, Annotation) != "" || annotation(pod, IntelAnnotation) != ""
}

// packetSet is a set of packets of one protocol that belong to a grant's lane.
type packetSet struct {
	grant       Grant
	protocol    string
	ports       []params.Ports // empty means any port
	remotePorts []params.Ports
	remotes     []netip.Prefix
	// front is the address of a frontend, or the zero Addr for the pod's own addresses.
	front netip.Addr
}

// parameters returns the parameters of the grant's claim. If there are none, it returns the
// annotation's parameters for the grant's container.
func parameters(g Grant, narrowed map[string]params.Parameters) params.Parameters {
	if g.Parameters != nil {
		return *g.Parameters
	}
	if g.Container == "" {
		return params.Parameters{}
	}
	return narrowed[g.Container]
}

// matches returns the packets of a grant at the pod's own addresses, one set for each protocol.
func matches(pod *corev1.Pod, g Grant, narrowed map[string]params.Parameters) ([]packetSet, error) {
	p := parameters(g, narrowed)
	own, err := parse(p.Ports)
	if err != nil {
		return nil, err
	}
	remote, err := parse(p.RemotePorts)
	if err != nil {
		return nil, err
	}
	if len(p.Ports) == 0 && len(p.RemotePorts) == 0 && len(p.RemoteAddrs) == 0 {
		if own, err = declared(pod, g.Container); err != nil {
			return nil, err
		}
	}
	var out []packetSet
	for _, protocol := range []string{"tcp", "udp"} {
		m := packetSet{grant: g, protocol: protocol, remotes: p.Remotes()}
		var some [2]bool
		m.ports, some[0] = of(own, protocol)
		m.remotePorts, some[1] = of(remote, protocol)
		if !some[0] && len(own) > 0 || !some[1] && len(remote) > 0 {
			continue // a port list has no port of this protocol, so no packet matches
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("container %q: its ports and remotePorts have no protocol in common, so no "+
			"packet belongs to the lane", g.Container)
	}
	return out, nil
}

// of returns the port ranges of a protocol. some reports whether there is at least one. If one of
// them means all ports, out is empty, which also means all ports.
func of(ports []params.Ports, protocol string) (out []params.Ports, some bool) {
	all := false
	for _, p := range ports {
		if p.Protocol != protocol {
			continue
		}
		some = true
		if p.First == 0 {
			all = true
		}
		out = append(out, p)
	}
	if all {
		out = nil
	}
	return out, some
}

func parse(texts []string) (out []params.Ports, err error) {
	for _, s := range texts {
		ps, perr := params.ParsePorts(s)
		err = errors.Join(err, perr)
		out = append(out, ps...)
	}
	return out, err
}

// declared returns the ports that a container declares. If name is "", it returns the ports of all
// containers. If no port is declared, it returns all ports of TCP and UDP.
func declared(pod *corev1.Pod, name string) ([]params.Ports, error) {
	var out []params.Ports
	var others []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if name != "" && c.Name != name {
			continue
		}
		for _, p := range c.Ports {
			protocol := strings.ToLower(string(p.Protocol))
			switch {
			case p.ContainerPort < 1 || p.ContainerPort > 65535:
				return nil, fmt.Errorf("container %s: containerPort %d, want 1 to 65535", c.Name, p.ContainerPort)
			case protocol == "":
				protocol = "tcp"
			case protocol != "tcp" && protocol != "udp":
				others = append(others, fmt.Sprintf("%d/%s", p.ContainerPort, p.Protocol))
				continue
			}
			out = append(out, params.Ports{Protocol: protocol, First: uint16(p.ContainerPort),
				Last: uint16(p.ContainerPort)})
		}
	}
	if len(out) == 0 && len(others) > 0 {
		return nil, fmt.Errorf("container %s declares %s only: lanes know TCP and UDP", name,
			strings.Join(others, ", "))
	}
	if len(out) == 0 {
		out = []params.Ports{{Protocol: "tcp"}, {Protocol: "udp"}}
	}
	return out, nil
}

func container(pod *corev1.Pod, name string) *corev1.Container {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

func names(pod *corev1.Pod) string {
	var out []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		out = append(out, c.Name)
	}
	return strings.Join(out, ", ")
}

// apart returns an error if a packet would belong to two lanes. The containers of a pod share its
// address, so only ports and remote addresses separate their packets.
func apart(all []packetSet) error {
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.grant.Lane == b.grant.Lane || a.protocol != b.protocol || a.front != b.front {
				continue
			}
			port, ok := meet(a.ports, b.ports)
			if !ok {
				continue
			}
			if _, ok := meet(a.remotePorts, b.remotePorts); !ok || !meetAddrs(a.remotes, b.remotes) {
				continue
			}
			return fmt.Errorf("%s and %s are in different lanes (%s, %s) and both have %s %s: containers of a pod "+
				"share its address; give each its own ports (containerPorts, the annotation %s, or the claim's "+
				"parameters)",
				who(a.grant), who(b.grant), a.grant.Lane, b.grant.Lane, a.protocol, port, Annotation)
		}
	}
	return nil
}

func who(g Grant) string {
	if g.Container == "" {
		return "a claim for class " + g.Class
	}
	return "container " + g.Container
}

// meet reports whether two port lists overlap, and returns a common port as text. An empty list
// means all ports.
func meet(a, b []params.Ports) (string, bool) {
	if len(a) == 0 && len(b) == 0 {
		return "all ports", true
	}
	every := []params.Ports{{First: 1, Last: 65535}}
	if len(a) == 0 {
		a = every
	}
	if len(b) == 0 {
		b = every
	}
	for _, x := range a {
		for _, y := range b {
			if first := max(x.First, y.First); first <= min(x.Last, y.Last) {
				return fmt.Sprintf("port %d", first), true
			}
		}
	}
	return "", false
}

func meetAddrs(a, b []netip.Prefix) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	return slices.ContainsFunc(a, func(x netip.Prefix) bool { return slices.ContainsFunc(b, x.Overlaps) })
}

// members converts the packet sets to members, without duplicates.
func members(pod *corev1.Pod, at Where, all []packetSet) []policy.Member {
	prefixes := make([]netip.Prefix, len(at.Addrs))
	for i, a := range at.Addrs {
		prefixes[i] = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
	}
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	var out []policy.Member
	seen := map[string]bool{}
	for _, m := range all {
		member := policy.Member{
			Lane: m.grant.Lane, Protocol: m.protocol, Addrs: prefixes, RemoteAddrs: m.remotes,
			Ports: ranges(m.ports), RemotePorts: ranges(m.remotePorts),
		}
		if at.Cgroup != nil {
			member.Cgroup = at.Cgroup(m.grant.Container)
		}
		if m.front.IsValid() {
			member.Addrs = []netip.Prefix{netip.PrefixFrom(m.front, m.front.BitLen())}
		}
		key := fmt.Sprintf("%+v", member)
		if seen[key] {
			continue
		}
		seen[key] = true
		if member.Name = memberName(pod, key); m.front.IsValid() {
			member.Name = frontendName(key)
		}
		out = append(out, member)
	}
	return out
}

// ranges returns ports as lanes.yaml writes them: "80" or "8000-8010". It joins overlapping ranges,
// because lanes.yaml does not allow a port twice.
func ranges(ports []params.Ports) []string {
	sorted := slices.SortedFunc(slices.Values(ports), func(a, b params.Ports) int {
		return int(a.First) - int(b.First)
	})
	var joined []params.Ports
	for _, p := range sorted {
		if n := len(joined); n > 0 && p.First <= joined[n-1].Last {
			joined[n-1].Last = max(joined[n-1].Last, p.Last)
			continue
		}
		joined = append(joined, p)
	}
	var out []string
	for _, p := range joined {
		if p.First == p.Last {
			out = append(out, fmt.Sprint(p.First))
			continue
		}
		out = append(out, fmt.Sprintf("%d-%d", p.First, p.Last))
	}
	return out
}

// memberName returns a name for a member. It begins with the pod's name, at most 21 characters of
// it, because lanes.yaml limits the length of names.
func memberName(pod *corev1.Pod, key string) string {
	sum := sha256.Sum256([]byte(string(pod.UID) + key))
	name := strings.ReplaceAll(pod.Name, ".", "-")
	if len(name) > 21 {
		name = name[:21]
	}
	return strings.ToLower(name) + "-" + hex.EncodeToString(sum[:5])
}
