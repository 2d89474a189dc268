// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/niclane/niclane/k8s/test/cluster"
)

// TestCilium runs pods with lanes on a node whose pod network is Cilium, with Cilium's eBPF programs
// at the node's device and at the pods' interfaces. Cilium's agent starts with its chart's default for
// other CNI plugins. Later it starts again, with its host firewall, which looks at packets that leave.
func TestCilium(t *testing.T) {
	needsCilium(t)
	node := cluster.Shape{Cilium: cluster.CiliumNative}
	s := &suite{Cluster: cluster.Start(t, cluster.Releases[0], node), image: buildImage(t)}
	t.Run("pod without niclane", func(t *testing.T) {
		text := pod("before", "", "")
		s.remove(t, text)
		s.echo(t, s.running(t, text, "before"), 1<<10)
	})
	s.before.objects, s.before.files = s.objects(t), s.files(t)
	if programs := fmt.Sprint(s.programs(t)); programs != "[TCXIngress cil_from_netdev]" {
		t.Errorf("programs at the device: %s, want Cilium's for received packets", programs)
	}
	must(t, s.Import(s.image))
	s.typed(t, "kubectl apply --server-side -f k8s/dist/manifests/niclane.yaml")
	s.agentPod(t)
	t.Run("with Cilium's default", func(t *testing.T) { s.nodeSays(t, "NotChained", "cni.exclusive") })
	must(t, s.Stop("cilium"))
	must(t, s.StartCilium("--cni-exclusive=false"))
	s.untilChained(t)
	must(t, s.Apply(policy))
	s.condition(t, "Applied", "True", "")
	s.condition(t, "Healthy", "True", "")
	s.untilAllocatable(t, "redis", 2)
	t.Run("pod without a lane", s.plain)
	t.Run("pod with a lane", s.lane)
	t.Run("Cilium restarted", func(t *testing.T) {
		text := pod("rides", limits("redis"), "")
		s.remove(t, text)
		p := s.running(t, text, "rides")
		must(t, s.Stop("cilium"))
		must(t, s.StartCilium("--cni-exclusive=false", "--enable-host-firewall=true"))
		// A filter at clsact would not run after Cilium's program: niclane's goes before it, to TCX.
		want := "[TCXIngress cil_from_netdev TCXEgress niclane_egress TCXEgress cil_to_netdev]"
		until(t, time.Minute, "niclane's program is before Cilium's", func() (bool, string) {
			programs := fmt.Sprint(s.programs(t))
			return programs == want, programs
		})
		t.Run("another pod with a lane", s.lane)
		s.untilInLane(t, "rides", "redis")
		s.condition(t, "Healthy", "True", "")
		s.echo(t, p, 1<<10)
	})
	t.Run("removed", s.removed)
	if programs := fmt.Sprint(s.programs(t)); programs != "[TCXIngress cil_from_netdev TCXEgress cil_to_netdev]" {
		t.Errorf("programs at the device: %s, want Cilium's", programs)
	}
}

// TestCiliumOverlay runs a pod with a lane on a node of Cilium, and connects to it from another node. Its
// packets are inside VXLAN on the uplink, as by Cilium's default.
func TestCiliumOverlay(t *testing.T) {
	needsCilium(t)
	node := cluster.Shape{Cilium: append(slices.Clone(cluster.CiliumVXLAN), "--cni-exclusive=false")}
	s := &suite{Cluster: cluster.Start(t, cluster.Releases[0], node, node), image: buildImage(t)}
	s.before.objects, s.before.files = s.objects(t), s.files(t)
	must(t, s.Import(s.image))
	s.typed(t, "kubectl apply --server-side -f k8s/dist/manifests/niclane.yaml")
	must(t, s.Apply(policy))
	s.policyCondition(t, "test", "Ready", "True", "is applied on 2 of 2 nodes")
	s.untilAllocatable(t, "redis", 2)
	t.Run("pod with a lane", func(t *testing.T) {
		text := bind(pod("inside", limits("redis"), ""), s.Nodes[0])
		s.remove(t, text)
		p := s.running(t, text, "inside")
		const bytes = 1 << 20
		before := s.redisBytes(t)
		s.echoFrom(t, s.Nodes[1].Machine, p, "7", bytes)
		if sent, want := s.redisBytes(t)-before, float64(bytes*len(p.Status.PodIPs)); sent < want {
			t.Errorf("the lane has sent %.0f bytes, want at least the %.0f that the pod has", sent, want)
		}
	})
	t.Run("removed", s.removed)
}

func needsCilium(t *testing.T) {
	if os.Getenv("NICLANE_TEST_CILIUM") == "" {
		t.Skip("make test-cilium builds Cilium: it takes minutes")
	}
}

// programs returns the eBPF programs at the node's device, in the order in which they run.
func (s *suite) programs(t *testing.T) (names []string) {
	must(t, s.Node.InNetNS(func() error {
		dev, err := netlink.LinkByName(cluster.Uplink)
		if err != nil {
			return err
		}
		for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			found, err := link.QueryPrograms(link.QueryOptions{Target: dev.Attrs().Index, Attach: at})
			if err != nil {
				return err
			}
			for _, f := range found.Programs {
				p, err := ebpf.NewProgramFromID(f.ID)
				if err != nil {
					return err
				}
				info, err := p.Info()
				if err := errors.Join(err, p.Close()); err != nil {
					return err
				}
				names = append(names, fmt.Sprint(at, " ", info.Name))
			}
		}
		return nil
	}))
	return names
}
