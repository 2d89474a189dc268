// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/pods/podresources"
)

// TestTunnels: a pod and its tunnels are in the lanes file together, and the tunnels follow the pod
// network.
func TestTunnels(t *testing.T) {
	a, w, card := setup(t)
	var now []string
	var hidden error
	asked := 0
	a.Reachable = func(dev string, node, addrs []netip.Addr) ([]string, error) {
		asked++
		if dev != "eth0" || len(node) != 1 || node[0].String() != "192.0.2.1" || len(addrs) == 0 {
			t.Errorf("asked for %s, node %v, pods %v", dev, node, addrs)
		}
		return now, hidden
	}
	file := func(when, want string) {
		t.Helper()
		_, rest, _ := strings.Cut(card.now(), "tunnels:")
		got, _, _ := strings.Cut(rest, "\n")
		if strings.TrimSpace(got) != want {
			t.Errorf("%s: tunnels %q, want %q in\n%s", when, got, want, card.now())
		}
	}
	add := func(name, addr, unit string) {
		t.Helper()
		w.pod(name, addr, "Pending", podresources.Devices{Resource: "niclane.dev/redis", IDs: []string{unit}})
		if got := a.Handle(t.Context(), request(cni.Add, name, addr), early(t, true)); got.Error != "" {
			t.Fatalf("%+v", got)
		}
	}
	add("redis", "10.0.0.2", "redis-0")
	file("native routing", "")
	now = []string{"vxlan:8472"}
	add("second", "10.0.0.3", "redis-1")
	file("a pod in a tunnel", `["vxlan:8472"]`)
	asked = 0
	a.FollowTunnels(t.Context())
	if asked != 1 {
		t.Errorf("asked %d times for pods of one family", asked)
	}
	for _, at := range a.Lanes.Attachments() {
		if !slices.Equal(at.Tunnels, now) {
			t.Errorf("%s is in %v", at.Pod, at.Tunnels)
		}
	}
	now = []string{"geneve:6081", "vxlan:8472"}
	a.FollowTunnels(t.Context())
	file("one more", `["geneve:6081", "vxlan:8472"]`)

	hidden = errors.New("tunl0 hides it")
	for range 2 {
		a.FollowTunnels(t.Context())
	}
	said := slices.DeleteFunc(slices.Clone(w.events), func(e string) bool { return !strings.Contains(e, "tunl0 hides it") })
	if len(said) != 2 {
		t.Errorf("events %q, want one for each pod", w.events)
	}
	file("hidden", `["geneve:6081", "vxlan:8472"]`)
	now, hidden = []string{"vxlan:1"}, nil
	card.refuse("the card compares outer headers")
	a.FollowTunnels(t.Context())
	if last := w.events[len(w.events)-1]; !strings.Contains(last, "the card compares outer headers") {
		t.Errorf("event %q", last)
	}
	card.refuse("")
	now = nil
	a.FollowTunnels(t.Context())
	file("native again", "")
}
