// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/k8s/agent/attach"
	"github.com/niclane/niclane/k8s/agent/attach/attachtest"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/networks/reach"
)

// TestTunnelTraffic sends packets of pods to another node through VXLAN, as flannel does, and checks by
// counters that they leave in the pod's lane, inside the tunnel. The tunnel is made when the pod already
// is in its lane. A pod without a lane sends a VXLAN packet that it makes up.
func TestTunnelTraffic(t *testing.T) {
	vethtest.NeedRoot(t)
	podNetwork(t)
	before := vethtest.Qdiscs(t, "up0")

	n, file := manager(t)
	p := &v1alpha1.LanePolicy{}
	p.Name = "p"
	p.Spec.Uplink.LinkRate = "1G"
	p.Spec.Classes = []v1alpha1.Class{{Name: "redis", OfferedAs: v1alpha1.OfferedAsResource, Queues: 1,
		Tuning: v1alpha1.Tuning{Rank: 1, Poller: "Interrupt"}}}
	n.SetPolicy(t.Context(), p, nil)
	addrs := []netip.Addr{netip.MustParseAddr("10.244.0.5"), netip.MustParseAddr("fd00::5")}
	g := attachtest.NewGiven()
	g.Run("redis", "redis", "redis-0", 5000, addrs...)
	a := &attach.Attacher{Lanes: n, Addrs: func() []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	}, Kubelet: g, Pods: g, Reachable: new(reach.Links).OnDevice, Event: func(_, _, _, _, message string) {
		t.Error(message)
	}, Log: slog.New(slog.DiscardHandler)}
	if got := a.Handle(t.Context(), &cni.Request{Version: cni.Version, Command: cni.Add, Sandbox: "sb", IfName: "eth0",
		HostIf: "vethredis", Namespace: "default", Pod: "redis", UID: "u-redis", Addrs: addrs}, func() {}); got.Error != "" {
		t.Fatalf("%+v", got)
	}

	vethtest.IP(t, `link add flannel.1 type vxlan id 1 local 192.0.2.1 remote 192.0.2.2 dev up0 dstport 8472
		link set flannel.1 up
		addr add 10.250.0.1/24 dev flannel.1
		addr add fd50::1/64 dev flannel.1 nodad
		route add 10.244.1.0/24 via 10.250.0.2
		route add fd00:1::/64 via fd50::2
		-n wire link add flannel.1 type vxlan id 1 local 192.0.2.2 remote 192.0.2.1 dev wire0 dstport 8472
		-n wire link set flannel.1 up
		-n wire addr add 10.250.0.2/24 dev flannel.1
		-n wire addr add fd50::2/64 dev flannel.1 nodad
		-n wire addr add 10.244.1.9/32 dev lo
		-n wire addr add fd00:1::9/128 dev lo nodad
		-n wire route replace 10.244.0.0/24 via 10.250.0.1
		-n wire route replace fd00::/64 via fd50::1`)
	t.Cleanup(func() { vethtest.IP(t, "link del flannel.1") })
	sends := func(what, lane string, send func()) {
		t.Helper()
		expect(t, n, what, lane, send)
	}
	from := func(pod, local, remote string) func() {
		return func() { within(t, pod, func() error { return send(local, remote, burst) }) }
	}
	sends("before the agent has seen the tunnel", "default", from("redis", "10.244.0.5:5000", "10.244.1.9:9"))
	a.FollowTunnels(t.Context())
	if at := n.Attachments(); len(at) != 1 || !slices.Equal(at[0].Tunnels, []string{"vxlan:8472"}) {
		t.Errorf("attached %+v", at)
	}
	sends("inside the tunnel", "redis-0", from("redis", "10.244.0.5:5000", "10.244.1.9:9"))
	sends("IPv6 inside the tunnel", "redis-0", from("redis", "[fd00::5]:5000", "[fd00:1::9]:9"))
	sends("another port", "default", from("redis", "10.244.0.5:5001", "10.244.1.9:9"))
	sends("not in the tunnel", "redis-0", from("redis", "10.244.0.5:5000", "192.0.2.2:9"))
	sends("a pod without a lane", "default", from("plain", "10.244.0.6:5000", "10.244.1.9:9"))
	sends("what a pod without a lane makes up", "default", func() {
		within(t, "plain", func() error { return sendEach("10.244.0.6:40000", "192.0.2.2:8472", burst, forged) })
	})

	if got := a.Handle(t.Context(), &cni.Request{Version: cni.Version, Command: cni.Del, Sandbox: "sb",
		IfName: "eth0"}, func() {}); got.Error != "" {
		t.Fatalf("%+v", got)
	}
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "tunnels") {
		t.Errorf("after the pod's end: %v, %s", err, text)
	}
	sends("after the pod's end", "default", from("redis", "10.244.0.5:5000", "10.244.1.9:9"))
	n.SetPolicy(t.Context(), nil, nil)
	if after := vethtest.Qdiscs(t, "up0"); after != before {
		t.Errorf("before %s, after %s", before, after)
	}
}

// forged is a VXLAN packet whose inner source is port 5000 of the pod redis.
var forged = slices.Concat([]byte{8, 0, 0, 0, 0, 0, 1, 0}, make([]byte, 12), []byte{8, 0},
	[]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 244, 0, 5, 10, 244, 1, 9},
	[]byte{0x13, 0x88, 0, 9, 0, 8, 0, 0})
