// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/niclane/niclane/k8s/api/params"
	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/pods"
	"github.com/niclane/niclane/k8s/pods/podresources"
)

// nodePort returns a Service whose node port leads to the pod's port 6379.
func nodePort(port uint16) pods.Service {
	return pods.Service{Frontend: pods.Frontend{Ports: params.Ports{Protocol: "tcp", First: port, Last: port}},
		Target: 6379}
}

// TestServices checks that packets for a pod's Services are in its lane, also after the Services
// have changed.
func TestServices(t *testing.T) {
	a, w, c := setup(t)
	lead := map[string][]pods.Service{"redis": {nodePort(30379)}}
	a.Services = func(p *corev1.Pod) []pods.Service { return lead[p.Name] }
	p := w.pod("redis", "10.0.0.2", "Pending",
		podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-0"}})
	if got := a.Handle(t.Context(), request(cni.Add, "redis", "10.0.0.2"), early(t, true)); got.Error != "" {
		t.Fatalf("%+v", got)
	}
	has := func(ports ...string) {
		t.Helper()
		for _, port := range []string{"30379", "30380"} {
			want := len(ports) > 0 && ports[0] == port
			if got := strings.Contains(c.now(), `ports: ["`+port+`"]`); got != want {
				t.Errorf("port %s: %v\n%s", port, got, c.now())
			}
		}
		if !strings.Contains(c.now(), "10.0.0.2") {
			t.Errorf("the pod's own address has gone:\n%s", c.now())
		}
	}
	has("30379")
	for _, port := range []uint16{30380, 30379} {
		lead["redis"] = []pods.Service{nodePort(port)}
		a.FollowServices(t.Context(), w.pods)
		has(map[uint16]string{30379: "30379", 30380: "30380"}[port])
	}
	p.UID = "u-another" // a new pod with the same name
	lead["redis"] = nil
	a.FollowServices(t.Context(), w.pods)
	has("30379")
	p.UID = "u-redis"
	a.FollowServices(t.Context(), w.pods)
	has()
	if len(w.events) != 0 {
		t.Errorf("events %q", w.events)
	}
}

// TestServicesThatCannotBe tests a Service that leads to pods in two lanes. Both pods get their
// lane. The Service's packets go to the first pod's lane. An event about the second pod says so.
func TestServicesThatCannotBe(t *testing.T) {
	a, w, c := setup(t)
	lead := map[string][]pods.Service{"one": {nodePort(30379)}, "two": {nodePort(30379)}}
	a.Services = func(p *corev1.Pod) []pods.Service { return lead[p.Name] }
	for i, name := range []string{"one", "two"} {
		addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(2 + i)}).String()
		w.pod(name, addr, "Running",
			podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{"redis-" + string(rune('0'+i))}})
		if got := a.Handle(t.Context(), request(cni.Add, name, addr), early(t, true)); got != (cni.Answer{Lane: true}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if text := c.now(); !strings.Contains(text, "10.0.0.2") || !strings.Contains(text, "10.0.0.3") ||
		strings.Count(text, "30379") != 1 {
		t.Errorf("lanes:\n%s", text)
	}
	said := func(n int) {
		t.Helper()
		if len(w.events) != n || !strings.Contains(w.events[n-1],
			"two ServiceNotInLane packets for the pod's Services do not go to its lane: tcp port 30379 of 192.0.2.1 "+
				"leads to lane redis-0, with pod default/one") {
			t.Errorf("events %q", w.events)
		}
	}
	said(1)
	a.FollowServices(t.Context(), w.pods)
	said(2)
	// Pod two first gets a Service of its own, and then again one that leads to two lanes. Packets for
	// its own Service must then no longer go to its lane.
	lead["two"] = []pods.Service{nodePort(30380)}
	a.FollowServices(t.Context(), w.pods)
	if text := c.now(); strings.Count(text, "30380") != 1 {
		t.Errorf("lanes:\n%s", text)
	}
	lead["two"] = []pods.Service{nodePort(30379)}
	a.FollowServices(t.Context(), w.pods)
	said(3)
	if text := c.now(); strings.Contains(text, "30380") || strings.Count(text, "30379") != 1 ||
		!strings.Contains(text, "10.0.0.3") {
		t.Errorf("lanes:\n%s", text)
	}
	// The Service no longer leads to pod one, so its packets can go to the lane of pod two.
	lead["one"] = nil
	a.FollowServices(t.Context(), w.pods)
	a.FollowServices(t.Context(), w.pods)
	if text := c.now(); strings.Count(text, "30379") != 1 || len(w.events) != 3 {
		t.Errorf("lanes:\n%s\nevents %q", text, w.events)
	}
	for _, at := range a.Lanes.Attachments() {
		if (at.Pod == "two") != (len(at.Services) == 1) {
			t.Errorf("%s has %v", at.Pod, at.Services)
		}
	}
}
