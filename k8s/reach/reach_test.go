// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/vethtest"
)

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

// TestOverlay: a tunnel that carries pods to other nodes hides their addresses.
func TestOverlay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	pod := []netip.Addr{netip.MustParseAddr("10.244.1.5")}
	if err := OnDevice("up0", pod); err != nil {
		t.Fatalf("nothing there: %v", err)
	}
	vethtest.IP(t, `link add up0 type veth peer name up1
		link set up0 up
		link set up1 up
		addr add 192.0.2.1/24 dev up0
		link add flannel.1 type vxlan id 1 dev up0 dstport 8472 nolearning`)
	t.Cleanup(func() { vethtest.IP(t, "link del up0") })
	if err := OnDevice("up0", pod); err != nil {
		t.Errorf("down: %v", err)
	}
	vethtest.IP(t, "link set flannel.1 up")
	if err := OnDevice("up0", pod); err != nil {
		t.Errorf("without a route: %v", err)
	}
	vethtest.IP(t, `addr add 10.244.1.0/32 dev flannel.1
		route add 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink`)
	err := OnDevice("up0", pod)
	if err == nil || !strings.Contains(err.Error(), "flannel.1 (vxlan) carries 10.244.2.0/24") {
		t.Errorf("got %v", err)
	}
	if err := OnDevice("up0", []netip.Addr{netip.MustParseAddr("fd00::5")}); err != nil {
		t.Errorf("of the other family: %v", err)
	}
	vethtest.IP(t, `link del flannel.1
		link add cilium_vxlan type vxlan external dstport 8472
		link set cilium_vxlan up`)
	t.Cleanup(func() { vethtest.IP(t, "link del cilium_vxlan") })
	if err := OnDevice("up0", pod); err == nil || !strings.Contains(err.Error(), "cilium_vxlan") {
		t.Errorf("got %v", err)
	}
}

func TestLimit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	vethtest.IP(t, `link add pod0 type veth peer name pod1
		link set pod0 up
		link set pod1 up`)
	t.Cleanup(func() { vethtest.IP(t, "link del pod0") })
	before := vethtest.Qdiscs(t, "pod0")
	for _, bits := range []uint64{20_000_000, 30_000_000} {
		if err := Limit("pod0", bits); err != nil {
			t.Fatal(err)
		}
	}
	if got := vethtest.Qdiscs(t, "pod0"); !strings.Contains(got, "tbf") || !strings.Contains(got, "rate 30Mbit burst 75000b") && !strings.Contains(got, "rate 30Mbit burst 73") {
		t.Errorf("got %s", got)
	}
	for range 2 {
		if err := Limit("pod0", 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := vethtest.Qdiscs(t, "pod0"); got != before {
		t.Errorf("before %s, after %s", before, got)
	}
	vethtest.TC(t, "qdisc add dev pod0 root handle 7: pfifo")
	if err := Limit("pod0", 1_000_000); err == nil || !strings.Contains(err.Error(), "somebody else's") {
		t.Errorf("got %v", err)
	}
}
