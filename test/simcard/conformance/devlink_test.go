// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// TestPollers tests devlink's parameters of traffic classes. With one of them, one NAPI polls
// several queues. With another, a connection is received on the queue on which it last sent.
func TestPollers(t *testing.T) {
	bed.Plug(t, "queues=8", "channels=8")
	bed.Sh(t, "ethtool -K sim0 hw-tc-offload on")
	bed.Sh(t, "tc qdisc add dev sim0 root mqprio num_tc 2 map 0 1 queues 4@0 4@4 hw 1 mode channel")
	bed.Sh(t, "tc qdisc add dev sim0 clsact")
	bed.Sh(t, "tc filter add dev sim0 protocol ip ingress prio 1 flower ip_proto udp dst_port 100 skip_sw hw_tc 1")
	set := "devlink dev param set platform/simcard.0 cmode runtime "
	bed.Sh(t, set+"name tc1_qps_per_poller value 2")
	bed.Sh(t, set+"name tc1_poller_timeout value 500")
	bed.Refused(t, set+"name tc1_poller_timeout value 0")
	bed.Refused(t, set+"name tc16_inline_fd value true")
	bed.Says(t, bed.Sh(t, "devlink dev param show platform/simcard.0 name tc1_poller_timeout"), "500")
	bed.PolledInPairs(t, 100, 4, 7)

	// The connection sends on queue 6, so it must receive on queue 6, whatever its hash is.
	bed.Sh(t, "tc filter add dev sim0 egress protocol ip flower ip_proto udp src_port 100 action skbedit "+
		"queue_mapping 6")
	bed.Sh(t, set+"name tc1_inline_fd value true")
	f := bed.In(1000, 100)
	far := bed.Listen(t, f.Src)
	c := f.Back().Dial(t)
	defer c.Close()
	if _, err := c.Write([]byte("to be learned from")); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	far.Close()
	only(t, 8, f, 6)
	bed.Sh(t, fmt.Sprintf("tc qdisc del dev %s root", bed.Dev))
}

// TestPrivateFlags checks that the private flags can be set and read. They have the names of
// Intel's driver.
func TestPrivateFlags(t *testing.T) {
	bed.Plug(t)
	bed.Sh(t, "ethtool --set-priv-flags sim0 channel-inline-flow-director on fw-lldp-agent on")
	out := bed.Sh(t, "ethtool --show-priv-flags sim0")
	for _, want := range []string{"channel-inline-flow-director: on", "fw-lldp-agent               : on",
		"link-down-on-close          : off"} {
		if !strings.Contains(strings.ReplaceAll(out, " ", ""), strings.ReplaceAll(want, " ", "")) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	bed.Refused(t, "ethtool --set-priv-flags sim0 nonsense on")
}
