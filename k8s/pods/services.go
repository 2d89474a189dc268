// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/niclane/niclane/k8s/api/params"
)

// A Service is one address and port of a Kubernetes Service (the frontend), and the pod's port to
// which the node sends packets for it.
type Service struct {
	Frontend Frontend `json:"frontend"`
	// Target is the pod's port. Its protocol is the frontend's.
	Target uint16 `json:"target"`
}

// Services returns the frontends by which packets from outside the cluster reach a pod: node ports,
// external addresses, and load balancer addresses that packets still have at the node. It returns
// none for a pod in the host's network: its ports are the node's ports.
func Services(pod *corev1.Pod, all []*corev1.Service) (out []Service) {
	if pod.Spec.HostNetwork {
		return nil
	}
	for _, s := range all {
		if !selects(s, pod) {
			continue
		}
		addrs := outside(s)
		for _, p := range s.Spec.Ports {
			protocol := strings.ToLower(string(cmp.Or(p.Protocol, corev1.ProtocolTCP)))
			target := target(pod, p)
			if protocol != "tcp" && protocol != "udp" || target == 0 {
				continue
			}
			add := func(addr netip.Addr, port int32) {
				if port > 0 && port <= 65535 {
					f := Frontend{Addr: addr,
						Ports: params.Ports{Protocol: protocol, First: uint16(port), Last: uint16(port)}}
					out = append(out, Service{f, target})
				}
			}
			add(netip.Addr{}, p.NodePort)
			for _, a := range addrs {
				add(a, p.Port)
			}
		}
	}
	slices.SortFunc(out, func(a, b Service) int {
		return cmp.Or(a.Frontend.Addr.Compare(b.Frontend.Addr),
			cmp.Compare(a.Frontend.Ports.Protocol, b.Frontend.Ports.Protocol),
			cmp.Compare(a.Frontend.Ports.First, b.Frontend.Ports.First), cmp.Compare(a.Target, b.Target))
	})
	return slices.Compact(out)
}

func selects(s *corev1.Service, pod *corev1.Pod) bool {
	if s.Namespace != pod.Namespace || len(s.Spec.Selector) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName {
		return false
	}
	for k, v := range s.Spec.Selector {
		if has, ok := pod.Labels[k]; !ok || has != v {
			return false
		}
	}
	return true
}

// outside returns a Service's external and load balancer addresses, by which packets for it arrive
// at the node's card.
func outside(s *corev1.Service) (out []netip.Addr) {
	texts := slices.Clone(s.Spec.ExternalIPs)
	for _, i := range s.Status.LoadBalancer.Ingress {
		// A load balancer with IPMode Proxy sends packets to the node port, not to its own address.
		if i.IPMode == nil || *i.IPMode == corev1.LoadBalancerIPModeVIP {
			texts = append(texts, i.IP)
		}
	}
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil && !a.IsUnspecified() && a.Zone() == "" {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// target returns the pod's port to which a Service's port leads. It returns 0 if the Service names
// a port that the pod does not have.
func target(pod *corev1.Pod, p corev1.ServicePort) uint16 {
	port := p.TargetPort.IntVal
	switch {
	case p.TargetPort.Type == intstr.String && p.TargetPort.StrVal != "":
		port = 0
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			for _, own := range c.Ports {
				if own.Name == p.TargetPort.StrVal &&
					cmp.Or(own.Protocol, corev1.ProtocolTCP) == cmp.Or(p.Protocol, corev1.ProtocolTCP) {
					port = own.ContainerPort
				}
			}
		}
	case port == 0:
		port = p.Port
	}
	if port < 1 || port > 65535 {
		return 0
	}
	return uint16(port)
}
