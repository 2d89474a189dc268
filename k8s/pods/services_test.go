// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// service returns a Service that selects app=redis, has one node port and is modified by change.
func service(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{}
	s.Namespace, s.Name = "default", "s"
	s.Spec.Type, s.Spec.Selector = corev1.ServiceTypeNodePort, map[string]string{"app": "redis"}
	s.Spec.Ports = []corev1.ServicePort{{Port: 6379, NodePort: 30379}}
	change(s)
	return s
}

func TestServices(t *testing.T) {
	p := pod(nil, with("a", "6379/TCP", "53/UDP"))
	p.Namespace, p.Labels = "default", map[string]string{"app": "redis", "tier": "1"}
	p.Spec.Containers[0].Ports[0].Name, p.Spec.Containers[0].Ports[1].Name = "redis", "dns"
	vip, proxy := corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy
	for name, c := range map[string]struct {
		service *corev1.Service
		want    string
	}{
		"node port": {service(func(*corev1.Service) {}), "30379/tcp>6379"},
		"load balancer": {service(func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"},
				{IP: "2001:db8::7", IPMode: &vip}, {IP: "203.0.113.9", IPMode: &proxy}, {Hostname: "x.example"}}
		}), "30379/tcp>6379 203.0.113.7:6379/tcp>6379 2001:db8::7:6379/tcp>6379"},
		"external addresses": {service(func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeClusterIP,
				[]string{"198.51.100.2", "0.0.0.0", "nonsense"}
			s.Spec.Ports[0].NodePort = 0
		}), "198.51.100.2:6379/tcp>6379"},
		"of the cluster alone": {service(func(s *corev1.Service) {
			s.Spec.Ports[0].NodePort, s.Spec.ClusterIP = 0, "10.96.0.9"
		}), ""},
		"another port of the pod's": {service(func(s *corev1.Service) {
			s.Spec.Ports = []corev1.ServicePort{{Port: 80, NodePort: 30080, TargetPort: intstr.FromInt32(8080)}}
		}), "30080/tcp>8080"},
		"ports by name": {service(func(s *corev1.Service) {
			s.Spec.Ports = []corev1.ServicePort{
				{Port: 80, NodePort: 30080, TargetPort: intstr.FromString("redis"), Protocol: corev1.ProtocolTCP},
				{Port: 53, NodePort: 30053, TargetPort: intstr.FromString("dns"), Protocol: corev1.ProtocolUDP},
				{Port: 54, NodePort: 30054, TargetPort: intstr.FromString("dns")}, // dns is UDP, this port TCP
				{Port: 55, NodePort: 30055, TargetPort: intstr.FromString("none")},
			}
		}), "30080/tcp>6379 30053/udp>53"},
		"SCTP":              {service(func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolSCTP }), ""},
		"another namespace": {service(func(s *corev1.Service) { s.Namespace = "other" }), ""},
		"another label":     {service(func(s *corev1.Service) { s.Spec.Selector["tier"] = "2" }), ""},
		"no such label":     {service(func(s *corev1.Service) { s.Spec.Selector["absent"] = "" }), ""},
		"no selector":       {service(func(s *corev1.Service) { s.Spec.Selector = nil }), ""},
		"a name outside":    {service(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }), ""},
	} {
		got := ""
		for _, s := range Services(p, []*corev1.Service{c.service, c.service}) {
			if got != "" {
				got += " "
			}
			if s.Frontend.Addr.IsValid() {
				got += s.Frontend.Addr.String() + ":"
			}
			got += fmt.Sprintf("%d/%s>%d", s.Frontend.Ports.First, s.Frontend.Ports.Protocol, s.Target)
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	p.Spec.HostNetwork = true
	if got := Services(p, []*corev1.Service{service(func(*corev1.Service) {})}); got != nil {
		t.Errorf("a pod of the host's network: %v", got)
	}
}

// TestServiceMembers checks which packets for a Service belong to a lane: those that lead to the
// lane's ports, and no others.
func TestServiceMembers(t *testing.T) {
	p := pod(nil, with("a", "6379/TCP"), with("b", "9100/TCP"))
	p.Namespace, p.Labels = "default", map[string]string{"app": "redis"}
	s := service(func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{{Port: 6379, NodePort: 30379}, {Port: 9100, NodePort: 30100}}
	})
	ms, err := Members(p, Where{Addrs: both[:1], Node: node[:1], Services: Services(p, []*corev1.Service{s})},
		[]Grant{grant("a", "l")})
	if err != nil {
		t.Fatal(err)
	}
	want := "l tcp own [6379] remote [] [] addrs [10.0.0.5/32]\nl tcp own [30379] remote [] [] addrs [192.0.2.1/32]\n"
	if diff := cmp.Diff(want, text(ms)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
