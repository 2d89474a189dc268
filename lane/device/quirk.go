// SPDX-License-Identifier: Apache-2.0

package device

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// A QuirkKind is a property of a driver that the kernel does not report.
type QuirkKind string

// The kinds of quirks.
const (
	// QuirkNAPIOrder: each receive queue has one NAPI, there are no other NAPIs, and NAPI IDs ascend
	// with the queue. niclane uses this order if queue-get reports no NAPI.
	QuirkNAPIOrder QuirkKind = "napi-order"
	// QuirkNAPINeedsGRO: NAPIs exist only while the feature rx-gro is on or
	// native XDP is attached.
	QuirkNAPINeedsGRO QuirkKind = "napi-needs-gro"
	// QuirkNAPINeedsPeer: packets reach the NAPI only while the other end does
	// no TCP segmentation (tx-tcp-segmentation and related features off).
	QuirkNAPINeedsPeer QuirkKind = "napi-needs-peer"
	// QuirkPartialChecksums: a packet can arrive with a checksum that the other
	// end left to hardware. Native XDP redirect loses that mark, and the packet
	// is dropped as damaged.
	QuirkPartialChecksums QuirkKind = "partial-checksums"
	// QuirkMqprioModeIgnored: the driver accepts `mqprio hw 1 mode channel` but
	// treats it as DCB. It ignores counts and rates.
	QuirkMqprioModeIgnored QuirkKind = "mqprio-mode-ignored"
	// QuirkRulesNoPorts: steering rules exist but cannot match IP addresses or
	// ports.
	QuirkRulesNoPorts QuirkKind = "rules-no-ports"
	// QuirkMaxrateSticks: writing 0 to tx_maxrate succeeds but leaves the
	// limit.
	QuirkMaxrateSticks QuirkKind = "tx-maxrate-sticks"
	// QuirkChannelsResetAffinity: a change of the channel count rewrites the
	// IRQ affinity and XPS of all queues.
	QuirkChannelsResetAffinity QuirkKind = "channels-reset-affinity"
	// QuirkXDPHangsRemoval: native XDP uses spare receive queues. When the device is removed, the
	// driver gives them back too late, after the kernel has stopped counting their references. The
	// removal then never ends.
	QuirkXDPHangsRemoval QuirkKind = "xdp-hangs-removal"
	// QuirkXDPMTU: the driver refuses native XDP with one buffer per packet if the MTU is above
	// Value.
	QuirkXDPMTU QuirkKind = "xdp-mtu"
	// QuirkXDPHalf: the driver refuses native XDP if more than half of the
	// device's possible queues are in use, because XDP transmits on the others.
	QuirkXDPHalf QuirkKind = "xdp-half"
	// QuirkXDPCombined: the driver refuses native XDP on separate channels.
	QuirkXDPCombined QuirkKind = "xdp-combined"
	// QuirkXDPNoLRO: the driver refuses native XDP while rx-lro or rx-gro-hw is on.
	QuirkXDPNoLRO QuirkKind = "xdp-no-lro"
	// QuirkSpeedInvented: the driver makes up the speed, or a user sets it. It is not the speed of a
	// link.
	QuirkSpeedInvented QuirkKind = "speed-invented"
)

// A Quirk is one line of the table: a property of a driver in a range of
// kernels, with its source.
type Quirk struct {
	Kind   QuirkKind
	Driver string // as ethtool -i names it
	// From is the first kernel release with the quirk; "": all releases before Before have it.
	From string
	// Before is the first kernel release without the quirk, "" if there is none.
	Before string
	// Source is the kernel commit or file and function.
	Source string
	// Value is a number that belongs to the quirk, such as the MTU of QuirkXDPMTU; 0 if it has none.
	Value int
}

// quirks lists all driver properties that cannot be probed, sorted by driver. No other table has
// any.
var quirks = [...]Quirk{
	{QuirkMqprioModeIgnored, "bnxt_en", "", "", "drivers/net/ethernet/broadcom/bnxt/bnxt.c: bnxt_setup_tc (7.3)", 0},
	{QuirkXDPCombined, "bnxt_en", "", "", "drivers/net/ethernet/broadcom/bnxt/bnxt_xdp.c: bnxt_xdp_set (7.3)", 0},
	{QuirkXDPMTU, "ena", "", "",
		"838c93dc5449; drivers/net/ethernet/amazon/ena/ena_xdp.h: ENA_XDP_MAX_MTU, ena_xdp_set", 3498},
	{QuirkXDPHalf, "ena", "", "", "548c4940b9f1; drivers/net/ethernet/amazon/ena/ena_xdp.h: ena_xdp_legal_queue_count",
		0},
	{QuirkXDPMTU, "gve", "", "",
		"75eaae158b1b; drivers/net/ethernet/google/gve/gve_main.c: verify_xdp_configuration (buffers of 2048)", 2032},
	{QuirkXDPHalf, "gve", "", "", "75eaae158b1b; drivers/net/ethernet/google/gve/gve_main.c: verify_xdp_configuration",
		0},
	{QuirkXDPMTU, "hv_netvsc", "", "", "351e1581395f; drivers/net/hyperv/netvsc_bpf.c: netvsc_xdp_set", 3506},
	{QuirkXDPNoLRO, "hv_netvsc", "", "", "351e1581395f; drivers/net/hyperv/netvsc_bpf.c: netvsc_xdp_set", 0},
	{QuirkNAPIOrder, "ice", "", "", "Intel's own driver, release 2.6.6, which reports no NAPI: ice_base.c: " +
		"ice_vsi_alloc_q_vector; ice_main.c: ice_napi_add", 0},
	{QuirkRulesNoPorts, "igb", "", "", "drivers/net/ethernet/intel/igb/igb_ethtool.c: igb_add_ethtool_nfc_entry (7.3)",
		0},
	{QuirkXDPMTU, "igb", "", "",
		"9cbc948b5a20; drivers/net/ethernet/intel/igb/igb_main.c: igb_xdp_setup (buffers of 3072)", 3046},
	{QuirkRulesNoPorts, "igc", "", "", "drivers/net/ethernet/intel/igc/igc_ethtool.c: igc_ethtool_add_nfc_rule (7.3)",
		0},
	{QuirkXDPMTU, "igc", "", "", "26575105d6ed; drivers/net/ethernet/intel/igc/igc_xdp.c: igc_xdp_set_prog", 1500},
	{QuirkMqprioModeIgnored, "ixgbe", "", "",
		"drivers/net/ethernet/intel/ixgbe/ixgbe_main.c: ixgbe_setup_tc_mqprio (7.3)", 0},
	{QuirkMaxrateSticks, "ixgbe", "", "", "drivers/net/ethernet/intel/ixgbe/ixgbe_main.c: ixgbe_tx_maxrate (7.3)", 0},
	{QuirkXDPMTU, "ixgbe", "", "",
		"924708081629; drivers/net/ethernet/intel/ixgbe/ixgbe_main.c: ixgbe_xdp_setup (buffers of 3072)", 3050},
	{QuirkXDPMTU, "ixgbevf", "", "",
		"c7aec59657b6; drivers/net/ethernet/intel/ixgbevf/ixgbevf_main.c: ixgbevf_xdp_setup (buffers of 3072)", 3050},
	{QuirkXDPNoLRO, "mlx5_core", "", "", "drivers/net/ethernet/mellanox/mlx5/core/en_main.c: mlx5e_xdp_allowed (7.3)",
		0},
	{QuirkSpeedInvented, "tun", "", "", "drivers/net/tun.c: tun_default_link_ksettings (SPEED_10)", 0},
	{QuirkNAPIOrder, "veth", "5.13", "",
		"d3256efd8e8b; drivers/net/veth.c: __veth_napi_enable_range; seen on 6.12, 6.18 and 7.2", 0},
	{QuirkNAPINeedsGRO, "veth", "5.13", "", "d3256efd8e8b; drivers/net/veth.c: veth_set_features", 0},
	{QuirkNAPINeedsPeer, "veth", "5.13", "",
		"d3256efd8e8b; drivers/net/veth.c: veth_skb_is_eligible_for_gro; seen on 6.12, 6.18 and 7.2", 0},
	{QuirkPartialChecksums, "veth", "", "",
		"drivers/net/veth.c: veth_xdp_rcv_skb, veth_convert_skb_to_xdp_buff; seen on 6.18", 0},
	{QuirkSpeedInvented, "veth", "", "", "drivers/net/veth.c: veth_get_link_ksettings (SPEED_10000)", 0},
	{QuirkChannelsResetAffinity, "virtio_net", "", "", "drivers/net/virtio_net.c: virtnet_set_affinity (7.3)", 0},
	{QuirkSpeedInvented, "virtio_net", "", "", "drivers/net/virtio_net.c: virtnet_update_settings, " +
		"virtnet_set_link_ksettings: the hypervisor's word, or ethtool -s", 0},
	{QuirkXDPHangsRemoval, "virtio_net", "", "", "drivers/net/virtio_net.c: virtnet_xdp_set; net/core/dev.c: " +
		"netif_set_real_num_rx_queues (reg_state); seen on 6.12", 0},
	{QuirkXDPMTU, "vmxnet3", "", "", "54f00cce1178; drivers/net/vmxnet3/vmxnet3_xdp.c: vmxnet3_xdp_set", 3494},
	{QuirkXDPNoLRO, "vmxnet3", "", "", "54f00cce1178; drivers/net/vmxnet3/vmxnet3_xdp.c: vmxnet3_xdp_set", 0},
}

// FindQuirk returns a quirk of a driver on a kernel release (uname -r). A release that cannot be
// parsed has no quirks.
func FindQuirk(kind QuirkKind, driver, release string) (Quirk, bool) {
	v, ok := parseRelease(release)
	if !ok {
		return Quirk{}, false
	}
	for _, q := range quirks {
		if q.Kind == kind && q.Driver == driver && q.covers(v) {
			return q, true
		}
	}
	return Quirk{}, false
}

func (q Quirk) covers(v [2]int) bool {
	if from, ok := parseRelease(q.From); ok && less(v, from) {
		return false
	}
	if before, ok := parseRelease(q.Before); ok && !less(v, before) {
		return false
	}
	return true
}

func less(a, b [2]int) bool {
	return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) < 0
}

// parseRelease parses major and minor number of a kernel release such as "6.18.44-fc-v595".
func parseRelease(s string) (v [2]int, ok bool) {
	major, rest, ok := strings.Cut(s, ".")
	if !ok {
		return v, false
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	var err1, err2 error
	v[0], err1 = strconv.Atoi(major)
	v[1], err2 = strconv.Atoi(rest[:end])
	return v, err1 == nil && err2 == nil && v[0] >= 0
}

// AssignNAPIs sets the NAPI of each queue of one device. If the driver reports NAPIs (queue-get),
// it changes nothing. Otherwise it uses QuirkNAPIOrder and returns that quirk. If it cannot
// assign a NAPI to a queue, the queue's NAPI stays 0.
func AssignNAPIs(driver, release string, queues []Queue, napis []uint32) (Quirk, bool) {
	var rx []*Queue
	for i := range queues {
		if queues[i].NAPI != 0 {
			return Quirk{}, false
		}
		if queues[i].Type == "rx" {
			rx = append(rx, &queues[i])
		}
	}
	q, ok := FindQuirk(QuirkNAPIOrder, driver, release)
	if !ok || len(rx) == 0 || len(rx) != len(napis) {
		return Quirk{}, false
	}
	ids := slices.Sorted(slices.Values(napis))
	slices.SortFunc(rx, func(a, b *Queue) int { return cmp.Compare(a.ID, b.ID) })
	for i := range rx {
		rx[i].NAPI = ids[i]
	}
	return q, true
}
