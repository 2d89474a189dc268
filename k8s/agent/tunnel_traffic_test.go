// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/k8s/agent/applier"
	"github.com/niclane/niclane/k8s/agent/attach"
	"github.com/niclane/niclane/k8s/agent/attach/attachtest"
	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/networks/reach"
	"github.com/niclane/niclane/lane/observe"
)

// TestTunnelTraffic sends packets of pods to another node through VXLAN, as flannel does, and checks by
// counters that they leave in the pod's lane, inside the tunnel. The tunnel is made when the pod already
// is in its lane. A pod without a lane sends a VXLAN packet that it makes up.
func TestTunnelTraffic(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	vethtest.IP(t, `link set lo up
		link add up0 numtxqueues 8 numrxqueues 8 type veth peer name wire0 numtxqueues 8 numrxqueues 8
		netns add wire
		link set wire0 netns wire
		link set up0 up
		addr add 192.0.2.1/24 dev up0
		-n wire link set lo up
		-n wire link set wire0 up
		-n wire addr add 192.0.2.2/24 dev wire0`)
	t.Cleanup(func() { vethtest.IP(t, "link del up0\nnetns del wire") })
	for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		if err := os.WriteFile(file, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	for i, pod := range []string{"redis", "plain"} {
		vethtest.IP(t, fmt.Sprintf(`netns add %[1]s
			link add veth%[1]s type veth peer name eth0 netns %[1]s
			link set veth%[1]s up
			addr add 10.244.0.1/32 dev veth%[1]s
			addr add fd00::1/128 dev veth%[1]s nodad
			-n %[1]s link set eth0 up
			-n %[1]s addr add 10.244.0.%[2]d/32 dev eth0
			-n %[1]s addr add fd00::%[2]d/128 dev eth0 nodad
			-n %[1]s route add 10.244.0.1 dev eth0
			-n %[1]s route add default via 10.244.0.1
			-n %[1]s route add fd00::1 dev eth0
			-n %[1]s route add default via fd00::1
			route add 10.244.0.%[2]d dev veth%[1]s
			route add fd00::%[2]d dev veth%[1]s`, pod, i+5))
		t.Cleanup(func() { vethtest.IP(t, "link del veth"+pod+"\nnetns del "+pod) })
	}
	before := vethtest.Qdiscs(t, "up0")

	dir := t.TempDir()
	c := applier.New(filepath.Join(dir, "state"), filepath.Join(dir, "run"), filepath.Join(dir, "k.yaml"))
	if err := os.Mkdir(c.Engine.RunDir, 0o700); err != nil {
		t.Fatal(err)
	}
	n, err := lanes.New(lanes.Options{
		Name: "n", Path: filepath.Join(dir, "state.json"), RunDir: dir, Config: c.Config, Boot: "b", Applier: c,
		Device: func() (string, error) { return applier.DeviceOf("192.0.2.1") },
		Log:    slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { n.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
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
		-n wire route add 10.244.0.0/24 via 10.250.0.1
		-n wire route add fd00::/64 via fd50::1`)
	t.Cleanup(func() { vethtest.IP(t, "link del flannel.1") })
	const count = 50
	sent := func() map[string]uint64 {
		now, err := observe.Counters("up0")
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]uint64{}
		for _, l := range n.Lanes() {
			for _, cl := range now.Classes {
				if cl.ID == l.Class {
					out[l.Name] = cl.Packets
				}
			}
		}
		return out
	}
	expect := func(what, lane string, send func()) {
		t.Helper()
		before := sent()
		send()
		var after map[string]uint64
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if after = sent(); after[lane]-before[lane] >= count || time.Now().After(deadline) {
				break
			}
		}
		for name := range after {
			got := after[name] - before[name]
			if name == lane && got < count || name != lane && got >= count/2 {
				t.Errorf("%s: %d of %d packets in lane %s, want them in %s", what, got, count, name, lane)
			}
		}
	}
	from := func(pod, local, remote string) func() {
		return func() { within(t, pod, func() error { return send(local, remote, count) }) }
	}
	expect("before the agent has seen the tunnel", "default", from("redis", "10.244.0.5:5000", "10.244.1.9:9"))
	a.FollowTunnels(t.Context())
	if at := n.Attachments(); len(at) != 1 || !slices.Equal(at[0].Tunnels, []string{"vxlan:8472"}) {
		t.Errorf("attached %+v", at)
	}
	expect("inside the tunnel", "redis-0", from("redis", "10.244.0.5:5000", "10.244.1.9:9"))
	expect("IPv6 inside the tunnel", "redis-0", from("redis", "[fd00::5]:5000", "[fd00:1::9]:9"))
	expect("another port", "default", from("redis", "10.244.0.5:5001", "10.244.1.9:9"))
	expect("not in the tunnel", "redis-0", from("redis", "10.244.0.5:5000", "192.0.2.2:9"))
	expect("a pod without a lane", "default", from("plain", "10.244.0.6:5000", "10.244.1.9:9"))
	expect("what a pod without a lane makes up", "default", func() {
		within(t, "plain", func() error { return forge("10.244.0.6:40000", "192.0.2.2:8472", count) })
	})

	if got := a.Handle(t.Context(), &cni.Request{Version: cni.Version, Command: cni.Del, Sandbox: "sb",
		IfName: "eth0"}, func() {}); got.Error != "" {
		t.Fatalf("%+v", got)
	}
	if text, err := os.ReadFile(c.Config); err != nil || strings.Contains(string(text), "tunnels") {
		t.Errorf("after the pod's end: %v, %s", err, text)
	}
	expect("after the pod's end", "default", from("redis", "10.244.0.5:5000", "10.244.1.9:9"))
	n.SetPolicy(t.Context(), nil, nil)
	if after := vethtest.Qdiscs(t, "up0"); after != before {
		t.Errorf("before %s, after %s", before, after)
	}
}

// forge sends VXLAN packets whose inner source is port 5000 of the pod redis.
func forge(from, to string, n int) error {
	local, err := net.ResolveUDPAddr("udp", from)
	if err != nil {
		return err
	}
	remote, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		return err
	}
	c, err := net.DialUDP("udp", local, remote)
	if err != nil {
		return err
	}
	defer c.Close()
	packet := slices.Concat([]byte{8, 0, 0, 0, 0, 0, 1, 0}, make([]byte, 12), []byte{8, 0},
		[]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 244, 0, 5, 10, 244, 1, 9},
		[]byte{0x13, 0x88, 0, 9, 0, 8, 0, 0})
	for range n {
		if _, err := c.Write(packet); err != nil {
			return err
		}
	}
	return nil
}
