// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"net/netip"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// Addresses of the card and of the host at the other end of the wire, in VLAN 7.
var (
	taggedAddr = netip.MustParseAddr("10.7.0.1")
	taggedPeer = netip.MustParseAddr("10.7.0.2")
)

// tag makes VLAN 7 on dev, which leads to the card, and at the other end of the wire.
func tag(t *testing.T, dev string) {
	t.Helper()
	for _, line := range []string{
		"ip link add link " + dev + " name tagged7 type vlan id 7",
		"ip addr add 10.7.0.1/24 dev tagged7",
		"ip link set tagged7 up",
		"ip neigh replace 10.7.0.2 lladdr 02:6e:6c:00:00:02 dev tagged7",
		"ip netns exec wire ip link add link wire0 name tagged7 type vlan id 7",
		"ip netns exec wire ip addr add 10.7.0.2/24 dev tagged7",
		"ip netns exec wire ip link set tagged7 up",
		"ip netns exec wire ip neigh replace 10.7.0.1 lladdr 02:6e:6c:00:00:01 dev tagged7",
	} {
		bed.Sh(t, line)
	}
	t.Cleanup(func() { bed.Sh(t, "ip link del tagged7") })
}

// tagged returns n flows in VLAN 7 to a port of the card.
func tagged(port uint16, n int) (flows []bed.Flow) {
	for i := range n {
		flows = append(flows, bed.Flow{Src: netip.AddrPortFrom(taggedPeer, uint16(2000+7*i)),
			Dst: netip.AddrPortFrom(taggedAddr, port)})
	}
	return flows
}

// leaveTagged is like leave, but in VLAN 7.
func leaveTagged(t *testing.T, port uint16, queues []int) {
	t.Helper()
	sink := netip.AddrPortFrom(taggedPeer, 4000)
	bed.Listen(t, sink)
	c := bed.Flow{Src: netip.AddrPortFrom(taggedAddr, port), Dst: sink}.Dial(t)
	defer c.Close()
	leaveBy(t, c, queues)
}

// TestVLANs checks that a lane with a VLAN gets the VLAN's packets, but no other packets for the
// same port. A lane without a VLAN must get both.
func TestVLANs(t *testing.T) {
	const web = "lanes: {web: {queues: 2, protocol: udp, ports: [80]}}\n"
	for _, c := range []struct {
		name   string
		params []string
	}{
		{"classes", ice},
		{"contexts", []string{"queues=8", "channels=6", "rules=16", "rx_classes=0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := plug(t, "globals: {dev: sim0, queues: 4, vlans: [7]}\n"+web, c.params...)
			tag(t, bed.Dev)
			before := bed.Dump(t)
			h.applied()
			arrive(t, []int{4, 5}, tagged(80, 4)...)
			arrive(t, []int{0, 1, 2, 3}, append(tagged(81, 4), flowsTo(80, 4)...)...)
			if c.name == "classes" { // only classes work without a received packet before
				leaveTagged(t, 80, []int{4, 5})
				bed.Sink(t, 4000)
				leave(t, 80, []int{0, 1, 2, 3})
			}
			bed.Says(t, h.niclane(0, "verify", "--for", "50ms"), "0 drift")
			h.restored(before)
		})
	}
}

// TestVLANOnBond checks that packets of a VLAN on a bond arrive in the lanes on the bond's slaves.
func TestVLANOnBond(t *testing.T) {
	h := plug(t, "globals: {bond: bond9, queues: 4, vlans: [7]}\nlanes: {web: {queues: 2, protocol: udp, ports: "+
		"[80]}}\n",
		"queues=8", "channels=6", "rules=16", "rx_classes=0")
	bed.Sh(t, "ip link add bond9 type bond mode balance-xor miimon 100")
	t.Cleanup(func() { bed.Sh(t, "ip link del bond9") })
	bed.Sh(t, "ip link set sim0 down")
	before := bed.Dump(t)
	bed.Sh(t, "ip link set sim0 master bond9")
	bed.Sh(t, "ip link set bond9 up")
	tag(t, "bond9")
	bed.Until(t, "the bond", func() bool { return bed.Read(t, "/sys/class/net/bond9/carrier") == "1" })
	h.applied("dst-port 80")
	arrive(t, []int{4, 5}, tagged(80, 4)...)
	arrive(t, []int{0, 1, 2, 3}, tagged(81, 4)...)
	h.niclane(0, "rollback")
	bed.Sh(t, "ip link set sim0 nomaster")
	bed.Sh(t, "ip link set sim0 down")
	same(t, "after rollback", before)
}
