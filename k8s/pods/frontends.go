// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/niclane/niclane/k8s/api/params"
)

// A Frontend is an address and a port that the node translates to a pod's.
type Frontend struct {
	// Addr is the zero Addr if the frontend has the node's own addresses.
	Addr netip.Addr
	// Ports is one port of one protocol.
	Ports params.Ports
}

// frontends returns the packets of a grant that the card sees under a frontend's address,
// because the node translates it to the pod's address and back. These are the hostPorts and
// the Services that lead to the lane's ports (own). A pod cannot name others: it could name
// the ports of the node and the addresses of other pods.
func frontends(pod *corev1.Pod, at Where, g Grant, own []packetSet) ([]packetSet, error) {
	all, err := hostPorts(pod, at.Node, g.Container, own)
	if err != nil {
		return nil, err
	}
	for _, s := range at.Services {
		if has(own, s.Frontend.Ports.Protocol, int32(s.Target)) {
			all = append(all, s.Frontend)
		}
	}
	var out []packetSet
	for _, f := range all {
		addrs := []netip.Addr{f.Addr}
		if !f.Addr.IsValid() {
			if addrs = at.Node; len(addrs) == 0 {
				return nil, fmt.Errorf("container %q: port %d of the node leads to the pod, but the node's addresses "+
					"are not known", g.Container, f.Ports.First)
			}
		}
		for _, m := range own {
			if m.protocol != f.Ports.Protocol {
				continue
			}
			for _, a := range addrs {
				out = append(out, packetSet{
					grant: g, protocol: m.protocol, ports: []params.Ports{f.Ports}, remotePorts: m.remotePorts,
					remotes: m.remotes, front: a.Unmap(),
				})
			}
		}
	}
	return out, nil
}

// hostPorts returns the container's hostPorts that lead to the lane's ports. It returns none
// for a pod of the host's network: its ports are the node's. It refuses a hostIP that is not
// an address of the node, which no CNI plugin translates.
func hostPorts(pod *corev1.Pod, node []netip.Addr, name string, own []packetSet) (out []Frontend, err error) {
	if pod.Spec.HostNetwork {
		return nil, nil
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if name != "" && c.Name != name {
			continue
		}
		for _, p := range c.Ports {
			protocol := strings.ToLower(string(p.Protocol))
			if protocol == "" {
				protocol = "tcp"
			}
			if p.HostPort < 1 || p.HostPort > 65535 || !has(own, protocol, p.ContainerPort) {
				continue
			}
			f := Frontend{Ports: params.Ports{Protocol: protocol, First: uint16(p.HostPort),
				Last: uint16(p.HostPort)}}
			if p.HostIP != "" {
				addr, err := netip.ParseAddr(p.HostIP)
				if err != nil {
					return nil, fmt.Errorf("container %s: hostIP %q is no address", c.Name, p.HostIP)
				}
				if f.Addr = addr.Unmap(); addr.IsUnspecified() {
					f.Addr = netip.Addr{}
				} else if !slices.Contains(node, f.Addr) {
					return nil, fmt.Errorf("container %s: hostIP %s is not an address of the node (%v)", c.Name, addr,
						node)
				}
			}
			out = append(out, f)
		}
	}
	return out, nil
}

// has reports whether the packet sets contain a port.
func has(own []packetSet, protocol string, port int32) bool {
	return slices.ContainsFunc(own, func(m packetSet) bool {
		return m.protocol == protocol && (len(m.ports) == 0 || slices.ContainsFunc(m.ports, func(r params.Ports) bool {
			return int32(r.First) <= port && port <= int32(r.Last)
		}))
	})
}

// FrontendPrefix is the beginning of the names of members that are frontends.
const FrontendPrefix = "frontend-"

// frontendName returns the name of a frontend's member. All pods behind the frontend get the same
// name, so that they become one member.
func frontendName(key string) string {
	sum := sha256.Sum256([]byte(key))
	return FrontendPrefix + hex.EncodeToString(sum[:8])
}
