// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// toeplitz computes the hash as in Microsoft's RSS specification. For each bit of the input that is
// set, from the left, it XORs the hash with the 32 bits of the key from the bit's position on.
func toeplitz(key, input []byte) uint32 {
	bit := func(b []byte, i int) bool { return b[i/8]&(0x80>>(i%8)) != 0 }
	var hash uint32
	for i := range len(input) * 8 {
		if !bit(input, i) {
			continue
		}
		var window uint32
		for k := range 32 {
			window <<= 1
			if bit(key, i+k) {
				window |= 1
			}
		}
		hash ^= window
	}
	return hash
}

func tuple(f bed.Flow) []byte {
	b := append(f.Src.Addr().AsSlice(), f.Dst.Addr().AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, f.Src.Port())
	return binary.BigEndian.AppendUint16(b, f.Dst.Port())
}

// msKey and the two hashes in TestToeplitz are from the examples in the specification.
const msKey = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"

func TestToeplitz(t *testing.T) {
	key, _ := hex.DecodeString(msKey)
	for _, c := range []struct {
		src, dst string
		want     uint32
	}{
		{"66.9.149.187:2794", "161.142.100.80:1766", 0x51ccc178},
		{"[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766", 0x40207d3d},
	} {
		f := bed.Flow{Src: netip.MustParseAddrPort(c.src), Dst: netip.MustParseAddrPort(c.dst)}
		if got := toeplitz(key, tuple(f)); got != c.want {
			t.Errorf("%v: %#x, want %#x", f, got, c.want)
		}
	}
}

// colons formats a key as ethtool does; the card's keys have 52 bytes.
func colons(key []byte) string {
	var parts []string
	for _, b := range key {
		parts = append(parts, fmt.Sprintf("%02x", b))
	}
	return strings.Join(parts, ":")
}

// counts sends one datagram of a flow and returns how many packets each queue received.
func counts(t *testing.T, queues int, f bed.Flow) []uint64 {
	t.Helper()
	before := bed.Stats(t)
	bed.Send(t, 1, f)
	return bed.PerQueue(t, before, "rx_queue_%d_packets", queues)
}

// only fails unless the datagrams of the flow arrive on one of the queues in want.
func only(t *testing.T, queues int, f bed.Flow, want ...int) {
	t.Helper()
	for i, c := range counts(t, queues, f) {
		if c > 0 && !slices.Contains(want, i) {
			t.Errorf("%v: queue %d, want %v", f, i, want)
		}
	}
}

// nowhere fails unless the card drops the flow.
func nowhere(t *testing.T, queues int, f bed.Flow) {
	t.Helper()
	if n := bed.Sum(counts(t, queues, f)); n != 0 {
		t.Errorf("%v: received, want it dropped", f)
	}
}

// TestHash computes each flow's queue from the key and the table. The flow must arrive on this
// queue.
func TestHash(t *testing.T) {
	bed.Plug(t, "queues=8", "channels=8", "indir=64")
	key := make([]byte, 52)
	ms, _ := hex.DecodeString(msKey)
	copy(key, ms)
	copy(key[40:], "anything at all")
	bed.Sh(t, "ethtool -X sim0 hkey "+colons(key)+" weight 1 0 2 0 3 0 1 1")
	table := indirection(t, bed.Sh(t, "ethtool -x sim0"))
	if len(table) != 64 {
		t.Fatalf("%d entries, want 64", len(table))
	}
	for i := range uint16(24) {
		for _, f := range []bed.Flow{bed.In(3000+i*7, 9+i), bed.In6(4000+i*3, 9+i)} {
			only(t, 8, f, table[toeplitz(key, tuple(f))%64])
		}
	}
	// The hash now uses only the addresses. So all flows between two addresses have the same hash.
	bed.Sh(t, "ethtool -N sim0 rx-flow-hash udp4 sd")
	for i := range uint16(8) {
		f := bed.In(3000+i, 9)
		only(t, 8, f, table[toeplitz(key, tuple(f)[:8])%64])
	}
}

// indirection returns the table in the output of ethtool -x.
func indirection(t *testing.T, text string) (table []int) {
	t.Helper()
	for line := range strings.Lines(text) {
		var first int
		rest, ok := "", false
		if n, _ := fmt.Sscanf(line, "%d:", &first); n == 1 {
			_, rest, ok = strings.Cut(line, ":")
		}
		if !ok || first != len(table) {
			continue
		}
		for _, f := range strings.Fields(rest) {
			var q int
			if _, err := fmt.Sscan(f, &q); err != nil {
				t.Fatalf("%q in %q", f, line)
			}
			table = append(table, q)
		}
	}
	return table
}

// TestTableFollowsChannels checks that the default table uses all channels until a user sets a
// table.
func TestTableFollowsChannels(t *testing.T) {
	bed.Plug(t, "queues=8", "channels=2")
	if got := slices.Max(indirection(t, bed.Sh(t, "ethtool -x sim0"))); got != 1 {
		t.Errorf("largest queue %d of 2 channels", got)
	}
	bed.Sh(t, "ethtool -L sim0 combined 6")
	if got := slices.Max(indirection(t, bed.Sh(t, "ethtool -x sim0"))); got != 5 {
		t.Errorf("largest queue %d of 6 channels", got)
	}
	bed.Sh(t, "ethtool -X sim0 equal 3")
	bed.Sh(t, "ethtool -L sim0 combined 8")
	if got := slices.Max(indirection(t, bed.Sh(t, "ethtool -x sim0"))); got != 2 {
		t.Errorf("largest queue %d of a table set to 3", got)
	}
}

// TestRules tests each kind of match, with a queue and with drop as the action. If two rules match,
// the one with the lower location must win.
func TestRules(t *testing.T) {
	bed.Plug(t, "queues=8", "channels=8", "rules=32")
	bed.Sh(t, "ethtool -X sim0 equal 2")
	for _, rule := range []string{
		"flow-type udp4 dst-port 100 action 7 loc 10",
		"flow-type udp4 dst-port 100 src-port 55 action 6 loc 9",
		"flow-type udp4 dst-port 101 action -1 loc 11",
		"flow-type udp6 dst-port 102 action 5 loc 12",
		"flow-type ip4 src-ip 10.9.0.2 l4proto 17 action 4 loc 20",
		"flow-type udp4 dst-port 0x200 m 0xff action 3 loc 13",
	} {
		bed.Sh(t, "ethtool -N sim0 "+rule)
	}
	only(t, 8, bed.In(1, 100), 7)
	only(t, 8, bed.In(55, 100), 6)
	nowhere(t, 8, bed.In(1, 101))
	only(t, 8, bed.In6(1, 102), 5)
	only(t, 8, bed.In6(1, 103), 0, 1)
	only(t, 8, bed.In(1, 0x234), 3)
	only(t, 8, bed.In(1, 0x334), 4)
	bed.Sh(t, "ethtool -N sim0 delete 9")
	only(t, 8, bed.In(55, 100), 7)
	bed.Sh(t, "ethtool -N sim0 flow-type udp4 dst-port 100 action 2 loc 10")
	only(t, 8, bed.In(55, 100), 2)
	bed.Says(t, bed.Sh(t, "ethtool -n sim0"), "Total 5 rules")
	bed.Refused(t, "ethtool -N sim0 flow-type udp4 dst-port 9 action 8 loc 1")
	bed.Refused(t, "ethtool -N sim0 flow-type udp4 dst-port 9 action 1 loc 32")
	bed.Refused(t, "ethtool -N sim0 flow-type udp4 dst-port 100 action 1 loc 2") // another rule has this match already
	bed.Refused(t, "ethtool -N sim0 delete 1")
	for i := range 27 {
		bed.Sh(t, fmt.Sprintf("ethtool -N sim0 flow-type udp4 dst-port %d action 1", 1000+i))
	}
	bed.Refused(t, "ethtool -N sim0 flow-type udp4 dst-port 9 action 1")
	bed.Sh(t, "ethtool -K sim0 ntuple off")
	bed.Says(t, bed.Sh(t, "ethtool -n sim0"), "Total 0 rules")
}

// TestRuleQuirks tests properties of rules that only some cards have.
func TestRuleQuirks(t *testing.T) {
	t.Run("the card picks locations", func(t *testing.T) {
		bed.Plug(t, "queues=4", "channels=4", "any_location=1", "rules=2")
		bed.Refused(t, "ethtool -N sim0 flow-type udp4 dst-port 100 action 3 loc 1")
		bed.Sh(t, "ethtool -N sim0 flow-type udp4 dst-port 100 action 3")
		bed.Sh(t, "ethtool -N sim0 flow-type udp4 dst-port 101 action 2")
		bed.Refused(t, "ethtool -N sim0 flow-type udp4 dst-port 102 action 2")
		only(t, 4, bed.In(1, 100), 3)
		only(t, 4, bed.In(1, 101), 2)
	})
	t.Run("no IPv6", func(t *testing.T) {
		bed.Plug(t, "rules_v4_only=1")
		bed.Sh(t, "ethtool -N sim0 flow-type udp4 dst-port 100 action 1")
		bed.Refused(t, "ethtool -N sim0 flow-type udp6 dst-port 100 action 1")
	})
	t.Run("none", func(t *testing.T) {
		bed.Plug(t, "rules=0", "contexts=1")
		bed.Refused(t, "ethtool -N sim0 flow-type udp4 dst-port 100 action 1")
		bed.Refused(t, "ethtool -X sim0 context new")
	})
}

// TestContexts tests a rule that leads to a context. The context must spread flows by its own
// table.
func TestContexts(t *testing.T) {
	bed.Plug(t, "queues=8", "channels=8", "contexts=3")
	bed.Sh(t, "ethtool -X sim0 equal 2")
	bed.Says(t, bed.Sh(t, "ethtool -X sim0 context new start 4 equal 3"), "New RSS context is 1")
	bed.Sh(t, "ethtool -N sim0 flow-type udp4 dst-port 100 context 1 loc 0")
	bed.Sh(t, "ethtool -X sim0 context new start 7 equal 1")
	bed.Refused(t, "ethtool -X sim0 context new")
	bed.Sh(t, "ethtool -N sim0 flow-type udp4 dst-port 101 context 2 loc 1")
	seen := map[int]bool{}
	for i := range uint16(24) {
		only(t, 8, bed.In(1000+i, 100), 4, 5, 6)
		only(t, 8, bed.In(1000+i, 102), 0, 1)
		for q, c := range counts(t, 8, bed.In(1000+i, 100)) {
			if c > 0 {
				seen[q] = true
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("24 flows went to queues %v, want all of 4 to 6", seen)
	}
	only(t, 8, bed.In(1, 101), 7)
	bed.Sh(t, "ethtool -X sim0 context 1 start 2 equal 1")
	only(t, 8, bed.In(1, 100), 2)
	if got := indirection(t, bed.Sh(t, "ethtool -x sim0 context 1")); slices.Max(got) != 2 {
		t.Errorf("context 1: %v", got)
	}
	bed.Refused(t, "ethtool -X sim0 context 2 delete") // refused, because a rule uses it
	bed.Sh(t, "ethtool -N sim0 delete 1")
	bed.Sh(t, "ethtool -X sim0 context 2 delete")
	bed.Refused(t, "ethtool -N sim0 flow-type udp4 dst-port 103 context 2")
	bed.Refused(t, "ethtool -L sim0 combined 2")
}

// TestHwTC runs the commands of the papers. The classes of mqprio own queues, flower filters lead
// to classes, and the default table uses only the queues of class 0.
func TestHwTC(t *testing.T) {
	bed.Plug(t, "queues=8", "channels=8")
	bed.Sh(t, "tc qdisc add dev sim0 root mqprio num_tc 3 map 0 1 2 queues 2@0 4@2 2@6 hw 1 mode channel")
	bed.Sh(t, "tc qdisc add dev sim0 clsact")
	flower := "tc filter add dev sim0 protocol ip ingress prio 1 flower dst_ip 10.9.0.1/32 ip_proto udp dst_port "
	bed.Says(t, bed.Refused(t, flower+"100 skip_sw hw_tc 1"), "hw-tc-offload")
	bed.Sh(t, "ethtool -K sim0 hw-tc-offload on")
	bed.Sh(t, flower+"100 skip_sw hw_tc 1")
	bed.Sh(t, flower+"101 skip_sw hw_tc 2")
	bed.Refused(t, flower+"102 skip_sw hw_tc 3")
	bed.Refused(t, flower+"102 skip_sw hw_tc 0")
	bed.Sh(t, "tc filter add dev sim0 protocol ipv6 ingress prio 2 flower src_ip fd09::/16 ip_proto udp dst_port "+
		"103 skip_sw hw_tc 2")
	bed.Sh(t, "tc filter add dev sim0 protocol ip ingress prio 3 flower ip_proto udp dst_port 104 skip_sw action drop")
	if out := bed.Sh(t, "tc filter show dev sim0 ingress"); strings.Count(out, "in_hw_count") != 4 {
		t.Error(out)
	}
	bed.Says(t, bed.Sh(t, "tc qdisc show dev sim0"), "queues:(0:1) (2:5) (6:7)")
	for i := range uint16(12) {
		only(t, 8, bed.In(1000+i, 100), 2, 3, 4, 5)
		only(t, 8, bed.In(1000+i, 101), 6, 7)
		only(t, 8, bed.In(1000+i, 9), 0, 1)
		only(t, 8, bed.In6(1000+i, 103), 6, 7)
	}
	nowhere(t, 8, bed.In(1, 104))
	// ice refuses these, too.
	bed.Refused(t, "ethtool -L sim0 combined 4")
	bed.Refused(t, "ethtool -X sim0 equal 2")
	bed.Refused(t, "ethtool -K sim0 hw-tc-offload off")
	// A rule to a single queue works while the card has classes.
	bed.Sh(t, "ethtool -N sim0 flow-type udp4 dst-port 105 action 3")
	only(t, 8, bed.In(1, 105), 3)
	bed.Sh(t, "tc qdisc del dev sim0 root")
	bed.Sh(t, "tc qdisc del dev sim0 clsact")
	bed.Sh(t, "ethtool -K sim0 hw-tc-offload on") // needed, because the kernel stored the refused setting as wanted
	bed.Sh(t, "ethtool -K sim0 hw-tc-offload off")
	bed.Sh(t, "ethtool -X sim0 equal 1")
	only(t, 8, bed.In(1, 100), 0)
}

// TestVLAN tests a filter on the VLAN tag. The card removes the tag from frames.
func TestVLAN(t *testing.T) {
	bed.Plug(t, "queues=4", "channels=4")
	bed.Sh(t, "ethtool -K sim0 hw-tc-offload on")
	bed.Sh(t, "tc qdisc add dev sim0 root mqprio num_tc 2 map 0 1 queues 2@0 2@2 hw 1 mode channel")
	bed.Sh(t, "tc qdisc add dev sim0 clsact")
	bed.Sh(t, "ip netns exec wire ip link add link wire0 name tagged type vlan id 7")
	bed.Sh(t, "ip netns exec wire ip addr add 10.10.0.2/24 dev tagged")
	bed.Sh(t, "ip netns exec wire ip link set tagged up")
	bed.Sh(t, "ip netns exec wire ip neigh replace 10.10.0.1 lladdr 02:6e:6c:00:00:01 dev tagged")
	bed.Sh(t, "tc filter add dev sim0 protocol 802.1q ingress prio 1 flower vlan_id 7 vlan_ethtype ip ip_proto udp "+
		"dst_port 100 skip_sw hw_tc 1")
	tagged := bed.Flow{Src: netip.MustParseAddrPort("10.10.0.2:1"), Dst: netip.MustParseAddrPort("10.10.0.1:100")}
	for _, offload := range []string{"on", "off"} {
		bed.Sh(t, "ethtool -K sim0 rxvlan "+offload)
		only(t, 4, tagged, 2, 3)
		only(t, 4, bed.In(1, 100), 0, 1)
	}
}

// TestFlowerToQueue tests the action skbedit on ingress, which Linux 6.1 lacks.
func TestFlowerToQueue(t *testing.T) {
	bed.Plug(t, "queues=4", "channels=4")
	bed.Sh(t, "ethtool -K sim0 hw-tc-offload on")
	bed.Sh(t, "tc qdisc add dev sim0 clsact")
	add := func(queue string) string {
		return "tc filter add dev sim0 protocol ip ingress prio 1 flower ip_proto udp dst_port 100 skip_sw action " +
			"skbedit queue_mapping " + queue + " skip_sw"
	}
	if strings.HasPrefix(bed.Read(t, "/proc/sys/kernel/osrelease"), "6.1.") {
		bed.Refused(t, add("3"))
		t.Skip("not in this kernel")
	}
	bed.Refused(t, add("4"))
	bed.Sh(t, add("3"))
	only(t, 4, bed.In(1, 100), 3)
}

// TestModeChannelIsDCB tests a card that accepts mode channel but makes DCB classes. The qdisc must
// show the classes that the card made.
func TestModeChannelIsDCB(t *testing.T) {
	bed.Plug(t, "queues=8", "channels=8", "channel_is_dcb=1")
	bed.Sh(t, "ethtool -K sim0 hw-tc-offload on")
	bed.Sh(t, "tc qdisc add dev sim0 root mqprio num_tc 2 map 0 1 queues 2@0 6@2 hw 1 mode channel")
	bed.Says(t, bed.Sh(t, "tc qdisc show dev sim0"), "queues:(0:3) (4:7)")
	bed.Sh(t, "tc qdisc add dev sim0 clsact")
	bed.Refused(t, "tc filter add dev sim0 protocol ip ingress prio 1 flower ip_proto udp dst_port 100 skip_sw hw_tc 1")
}

// TestMqprioRefusals checks settings that ice refuses. The card must refuse them, too, and change
// nothing.
func TestMqprioRefusals(t *testing.T) {
	bed.Plug(t, "queues=16", "channels=16", "pow2=1", "speed=1000")
	mqprio := "tc qdisc add dev sim0 root mqprio num_tc 2 map 0 1 "
	bed.Refused(t, mqprio+"queues 8@0 16@8 hw 1 mode channel")
	bed.Refused(t, mqprio+"queues 4@0 4@8 hw 1 mode channel")
	bed.Refused(t, mqprio+"queues 3@0 5@3 hw 1 mode channel")
	bed.Refused(t, mqprio+"queues 3@0 4@3 hw 1 mode channel")
	bed.Refused(t, mqprio+"queues 4@0 4@4 hw 1 mode channel shaper bw_rlimit max_rate 1Gbit 2Gbit")
	bed.Refused(t, mqprio+"queues 4@0 4@4 hw 1 mode channel shaper bw_rlimit min_rate 600Mbit 600Mbit")
	if out := bed.Sh(t, "tc qdisc show dev sim0"); strings.Contains(out, "mqprio") {
		t.Error(out)
	}
	bed.Sh(t, mqprio+"queues 2@0 6@2 hw 1 mode channel")
}

// TestMqprioResizes tests a card that, like ice, does not restore the number of channels after
// mqprio.
func TestMqprioResizes(t *testing.T) {
	bed.Plug(t, "queues=8", "channels=8", "mqprio_resizes=1", "mqprio_takes_rules=1")
	combined := func(want string) {
		t.Helper()
		out := bed.Sh(t, "ethtool -l sim0")
		if got := strings.TrimSpace(out[strings.LastIndex(out, "Combined:")+9:]); got != want {
			t.Errorf("%s channels, want %s", got, want)
		}
	}
	bed.Sh(t, "ethtool -N sim0 flow-type udp4 dst-port 105 action 1")
	bed.Sh(t, "tc qdisc add dev sim0 root mqprio num_tc 2 map 0 1 queues 2@0 4@2 hw 1 mode channel")
	combined("6")
	bed.Sh(t, "tc qdisc del dev sim0 root")
	combined("2") // as many as the guest has processors
	bed.Says(t, bed.Sh(t, "ethtool -n sim0"), "Total 0 rules")
	bed.Send(t, 10, bed.In(1, 9))
}

// TestForgets tests a card that loses its settings when its link goes down.
func TestForgets(t *testing.T) {
	bed.Plug(t, "queues=4", "channels=4", "forgets=1")
	bed.Sh(t, "ethtool -X sim0 equal 1")
	bed.Sh(t, "ethtool -X sim0 context new equal 2")
	bed.Sh(t, "ethtool -N sim0 flow-type udp4 dst-port 100 action 3 loc 5")
	bed.Sh(t, "ethtool -N sim0 flow-type udp4 dst-port 101 context 1 loc 6")
	only(t, 4, bed.In(1, 100), 3)
	bed.Sh(t, "ip netns exec wire ip link set wire0 down")
	bed.Sh(t, "ip netns exec wire ip link set wire0 up")
	bed.Sh(t, "ip netns exec wire ip neigh replace 10.9.0.1 lladdr 02:6e:6c:00:00:01 dev wire0")
	bed.Until(t, "the carrier", func() bool { return bed.Read(t, "/sys/class/net/"+bed.Dev+"/carrier") == "1" })
	bed.Says(t, bed.Sh(t, "ethtool -n sim0"), "Total 0 rules")
	if got := slices.Max(indirection(t, bed.Sh(t, "ethtool -x sim0"))); got != 3 {
		t.Errorf("largest queue of the table %d, want the default's 3", got)
	}
	bed.Refused(t, "ethtool -x sim0 context 1")
}

// TestFails makes a chosen call fail with a chosen error. The call must change nothing.
func TestFails(t *testing.T) {
	bed.Plug(t, "queues=4", "channels=4")
	steps := []string{
		"ethtool -L sim0 combined 3",
		"ethtool -X sim0 equal 2",
		"ethtool -N sim0 flow-type udp4 dst-port 100 action 1 loc 7",
		"ethtool -C sim0 rx-usecs 20",
	}
	for i, step := range steps {
		bed.Param(t, "fail_in", fmt.Sprint(i+1))
		bed.Param(t, "fail_errno", "28")
		for n, s := range steps {
			argv := strings.Fields(s)
			out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
			if (err != nil || strings.Contains(string(out), "rmgr: Cannot")) != (n == i) {
				t.Errorf("fail_in=%d: step %d, %s: %v: %s", i+1, n+1, s, err, out)
			}
			if n == i && !strings.Contains(string(out), "No space left") {
				t.Errorf("%s: %s", step, out)
			}
		}
		bed.Sh(t, "ethtool -X sim0 default")
		bed.Sh(t, "ethtool -L sim0 combined 4")
		exec.Command("ethtool", "-N", "sim0", "delete", "7").Run()
		bed.Sh(t, "ethtool -C sim0 rx-usecs 0")
	}
}
