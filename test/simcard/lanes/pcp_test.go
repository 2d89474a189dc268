// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/niclane/niclane/test/simcard/bed"
)

// TestPCP: datagrams of a lane leave by a VLAN device with the lane's PCP, and verify proves it. Without
// the classifier, they have that of the VLAN device, and verify says so.
func TestPCP(t *testing.T) {
	h := plug(t, "globals: {dev: sim0, vlans: [7]}\n"+
		"lanes: {voice: {queues: 2, pcp: 5, poller: interrupt, protocol: udp, ports: [5004]}}\n", "queues=8", "channels=8")
	bed.Sh(t, "ip link add link sim0 name sim0.7 type vlan id 7 egress-qos-map 0:3")
	bed.Sh(t, "ip addr add 10.8.0.1/24 dev sim0.7")
	bed.Sh(t, "ip link set sim0.7 up")
	bed.Sh(t, "ip neigh replace 10.8.0.2 lladdr 02:6e:6c:00:00:02 dev sim0.7")
	before := bed.Dump(t)
	h.applied("packets of lane voice, with PCP 5")
	var done sync.WaitGroup
	end := make(chan struct{})
	done.Go(func() {
		c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.8.0.1:5004")),
			net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.8.0.2:5004")))
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for {
			select {
			case <-end:
				return
			case <-time.After(time.Millisecond):
				_, _ = c.Write([]byte("a datagram of the lane"))
			}
		}
	})
	_, out := h.run("verify", "--for", "1s")
	bed.Says(t, out, "packets of the lane left with PCP 5, none with another")
	bed.Sh(t, "tc filter del dev sim0 egress")
	bed.Says(t, h.niclane(3, "verify", "--for", "1s"), "the lane's packets leave with PCP 5", "packets with 3")
	h.niclane(0, "apply", h.lanes)
	_, out = h.run("verify", "--for", "1s")
	bed.Says(t, out, "packets of the lane left with PCP 5, none with another")
	close(end)
	done.Wait()
	h.restored(before)
}
