// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// An expectation is the answer that niclane probe must give for a capability on Debian's kernels. It
// is yes from the release in the field since on, and no before.
type expectation struct {
	capability device.Capability
	since      string // "": yes on all kernels
	never      bool   // true: no on all kernels
	// unknown is the reason if probe must answer that it cannot tell. This applies to releases before
	// untold, or to all if untold is "".
	unknown string
	untold  string
	source  string // kernel commit, source file or configuration that determines the answer
}

// ofKernel has the expected capabilities of Debian's kernels.
var ofKernel = []expectation{
	{capability: device.CapMqprio, source: "CONFIG_NET_SCH_MQPRIO"},
	{capability: device.CapHTB, source: "CONFIG_NET_SCH_HTB"},
	{capability: device.CapMq, source: "net/sched/sch_mq.c, always built in"},
	{capability: device.CapTBF, source: "CONFIG_NET_SCH_TBF"},
	{capability: device.CapFQCodel, source: "CONFIG_NET_SCH_FQ_CODEL"},
	{capability: device.CapFQ, source: "CONFIG_NET_SCH_FQ"},
	{capability: device.CapCake, source: "CONFIG_NET_SCH_CAKE"},
	{capability: device.CapClsact, source: "CONFIG_NET_SCH_INGRESS"},
	{capability: device.CapClsBPF, source: "CONFIG_NET_CLS_BPF"},
	{capability: device.CapFlower, source: "CONFIG_NET_CLS_FLOWER"},
	{capability: device.CapSkbedit, source: "CONFIG_NET_ACT_SKBEDIT"},
	{capability: device.CapCPUMap, source: "6710e1126934 (4.15)"},
	{capability: device.CapDevlink, source: "CONFIG_NET_DEVLINK"},
	{capability: device.CapCgroupSet, source: "CONFIG_CPUSETS, cgroup version 2"},
	{capability: device.CapSockops, source: "CONFIG_CGROUP_BPF"},
	{capability: device.CapTCX, since: "6.6", source: "e420bed02507"},
	{capability: device.CapNetdevGenl, since: "6.8", source: "bc877956272f: queue-get and napi-get"},
	{capability: device.CapNAPISet, since: "6.13", source: "1287c1ae0fc2"},
	{capability: device.CapIoUringNAPI, since: "6.13", source: "6bf90bd8c58a"},
	{capability: device.CapNAPITrace, source: "CONFIG_DEBUG_INFO_BTF"},
	{capability: device.CapNetShaper, since: "6.13", source: "4b623f9f0f59; CONFIG_NET_SHAPER"},
	{capability: device.CapNAPIThread, since: "6.17", source: "2677010e7793"},
	{capability: device.CapNAPIBusy, since: "6.19", source: "c18d4b190a46"},
	{capability: device.CapNetPrio, unknown: "no hierarchy with net_prio",
		source: "the guest mounts control groups of version 2 only"},
}

// Reasons why probe cannot tell whether there is a capability.
const (
	noNetdev    = "family netdev" // this kernel has no napi-get and dev-get
	onlyByDoing = "cannot be tried without replacing the root qdisc"
)

// ofVeth has the expected capabilities of a veth with GRO.
var ofVeth = []expectation{
	{capability: device.CapChannelsSet, source: "4752eeb3d891 (5.15)"},
	{capability: device.CapCoalesce, never: true, source: "drivers/net/veth.c: veth_ethtool_ops"},
	{capability: device.CapQueueCoalesce, never: true, source: "drivers/net/veth.c: veth_ethtool_ops"},
	{capability: device.CapFlowerHwTC, never: true, source: "drivers/net/veth.c: no NETIF_F_HW_TC"},
	{capability: device.CapHTBOffload, never: true, source: "drivers/net/veth.c: no NETIF_F_HW_TC"},
	{capability: device.CapMqprioChannel, unknown: onlyByDoing, source: "observe: no probe changes anything"},
	{capability: device.CapClassGuarantee, unknown: "not known for this driver",
		source: "lane/device/classes.go, which names some drivers"},
	{capability: device.CapDriverPollers, never: true, source: "a devlink parameter of Intel's own ice only"},
	{capability: device.CapSetAffinityIRQ, never: true, source: "a veth has no interrupt"},
	{capability: device.CapNAPIs, unknown: noNetdev, untold: "6.8", source: "27f91aaf49b3: napi-get"},
	{capability: device.CapQueueNAPI, unknown: noNetdev, untold: "6.8", source: "d3256efd8e8b, by the order of NAPIs"},
	{capability: device.CapThreadedDev, source: "5fdd2f0e5c64 (5.12)"},
	{capability: device.CapXDPNative, unknown: noNetdev, untold: "6.8", source: "948d4f214fde (4.19)"},
	{capability: device.CapXDPFrags, unknown: noNetdev, untold: "6.8", source: "718a18a0c8a6 (5.18)"},
	{capability: device.CapRSSTable, never: true, source: "drivers/net/veth.c: veth_ethtool_ops"},
	{capability: device.CapRSSContexts, never: true, source: "drivers/net/veth.c: veth_ethtool_ops"},
	{capability: device.CapRules, never: true, source: "drivers/net/veth.c: veth_ethtool_ops"},
	{capability: device.CapRuleToContext, never: true, source: "drivers/net/veth.c: veth_ethtool_ops"},
	{capability: device.CapTxMaxrate, never: true, source: "drivers/net/veth.c: no ndo_set_tx_maxrate"},
	{capability: device.CapDCB, never: true, source: "drivers/net/veth.c: no dcbnl_ops"},
	{capability: device.CapQueueShaper, never: true, source: "drivers/net/veth.c: no net_shaper_ops"},
	{capability: device.CapQueueShaperMin, never: true, source: "drivers/net/veth.c: no net_shaper_ops"},
	{capability: device.CapXPS, source: "CONFIG_XPS"},
	{capability: device.CapXPSRxqs, source: "CONFIG_XPS, 8af2c06ff4b1 (4.18)"},
	{capability: device.CapRPS, source: "CONFIG_RPS"},
}

// ofCard has the expected capabilities of the guest's virtio-net card.
var ofCard = []expectation{
	{capability: device.CapChannelsSet, source: "d73bcd2c2878 (3.8)"},
	{capability: device.CapCoalesce, source: "0c465be183c7 (4.20): frames only, without VIRTIO_NET_F_NOTF_COAL"},
	{capability: device.CapQueueCoalesce, since: "6.6", source: "394bd87764b6"},
	{capability: device.CapFlowerHwTC, never: true, source: "drivers/net/virtio_net.c: no NETIF_F_HW_TC"},
	{capability: device.CapHTBOffload, never: true, source: "drivers/net/virtio_net.c: no NETIF_F_HW_TC"},
	{capability: device.CapMqprioChannel, unknown: onlyByDoing, source: "observe: no probe changes anything"},
	{capability: device.CapClassGuarantee, unknown: "not known for this driver",
		source: "lane/device/classes.go, which names some drivers"},
	{capability: device.CapDriverPollers, never: true, source: "a devlink parameter of Intel's own ice only"},
	{capability: device.CapSetAffinityIRQ, source: "an interrupt per queue"},
	{capability: device.CapNAPIs, unknown: noNetdev, untold: "6.8", source: "27f91aaf49b3: napi-get"},
	{capability: device.CapQueueNAPI, unknown: noNetdev, untold: "6.8", since: "6.15", source: "e7231f49d526"},
	{capability: device.CapThreadedDev, source: "5fdd2f0e5c64 (5.12)"},
	{capability: device.CapXDPNative, unknown: noNetdev, untold: "6.8", source: "f600b6905015 (4.10)"},
	{capability: device.CapXDPFrags, unknown: noNetdev, untold: "6.8",
		source: "fab89bafa95b (6.3), with VIRTIO_NET_F_MRG_RXBUF"},
	{capability: device.CapRSSTable, source: "c7114b1249fa (5.18), VIRTIO_NET_F_RSS"},
	{capability: device.CapRSSContexts, never: true, source: "drivers/net/virtio_net.c: one table"},
	{capability: device.CapRules, never: true, source: "drivers/net/virtio_net.c: virtnet_get_rxnfc"},
	{capability: device.CapRuleToContext, never: true, source: "drivers/net/virtio_net.c"},
	{capability: device.CapTxMaxrate, never: true, source: "drivers/net/virtio_net.c: no ndo_set_tx_maxrate"},
	{capability: device.CapDCB, never: true, source: "drivers/net/virtio_net.c: no dcbnl_ops"},
	{capability: device.CapQueueShaper, never: true, source: "drivers/net/virtio_net.c: no net_shaper_ops"},
	{capability: device.CapQueueShaperMin, never: true, source: "drivers/net/virtio_net.c: no net_shaper_ops"},
	{capability: device.CapXPS, source: "CONFIG_XPS"},
	{capability: device.CapXPSRxqs, source: "CONFIG_XPS, 8af2c06ff4b1 (4.18)"},
	{capability: device.CapRPS, source: "CONFIG_RPS"},
}

// answer returns the expected answer on a release.
func (e expectation) answer(release string) device.Answer {
	switch {
	case e.unknown != "" && within(release, "", e.untold):
		return device.Unknown
	case e.never || !within(release, e.since, ""):
		return device.No
	}
	return device.Yes
}

// probed begins the line with the output of niclane probe.
const probed = "probed: "

// probe makes a veth, and prints what niclane probe says about the veth and the guest's card.
func probe(ctx context.Context, niclane string) error {
	dev, err := cardName()
	if err != nil {
		return err
	}
	for _, line := range []string{
		"ip link set lo up",
		"ip link set " + dev + " up",
		fmt.Sprintf("ip link add mveth0 numrxqueues %[1]d numtxqueues %[1]d type veth peer name mveth1 numrxqueues "+
			"%[1]d numtxqueues %[1]d", cardQueues/2),
		"ip link set mveth0 up",
		"ip link set mveth1 up",
		"ethtool -K mveth0 gro on",
	} {
		if _, err := say(ctx, strings.Fields(line)...); err != nil {
			return err
		}
	}
	out, err := say(ctx, niclane, "probe", "--json")
	if err != nil {
		return err
	}
	var compact json.RawMessage = []byte(out)
	text, err := json.Marshal(compact)
	if err != nil {
		return err
	}
	fmt.Printf("%s%s\n", probed, text)
	_, err = say(ctx, "ip", "link", "del", "mveth0")
	return err
}

// cardName returns the name of the interface that has the card's MAC address.
func cardName() (string, error) {
	dirs, err := filepath.Glob("/sys/class/net/*/address")
	if err != nil {
		return "", err
	}
	for _, d := range dirs {
		if mac, err := os.ReadFile(d); err == nil && strings.TrimSpace(string(mac)) == cardMAC {
			return filepath.Base(filepath.Dir(d)), nil
		}
	}
	return "", fmt.Errorf("no interface has the address %s: is virtio_net loaded?", cardMAC)
}

// judgeCapabilities returns the differences between probe's answers and the expected ones.
func (r *results) judgeCapabilities(text []string) []string {
	i := slices.IndexFunc(text, func(s string) bool { return strings.HasPrefix(s, probed) })
	if i < 0 {
		return []string{"probe: no answers"}
	}
	var st device.State
	if err := json.Unmarshal([]byte(strings.TrimPrefix(text[i], probed)), &st); err != nil {
		return []string{"probe: " + err.Error()}
	}
	var problems []string
	if st.Kernel.Release != r.release {
		problems = append(problems, fmt.Sprintf("probe: the guest runs %s, want %s", st.Kernel.Release, r.release))
	}
	problems = append(problems, judgeTable("kernel", r.release, st.Capabilities, ofKernel)...)
	seen := map[string]bool{}
	for _, d := range st.Devices {
		switch d.Driver {
		case "veth":
			if d.Name == "mveth0" {
				seen["veth"] = true
				problems = append(problems, judgeTable("veth", r.release, d.Capabilities, ofVeth)...)
			}
		case "virtio_net":
			seen["virtio_net"] = true
			problems = append(problems, judgeTable("virtio_net", r.release, d.Capabilities, ofCard)...)
		}
	}
	for _, d := range []string{"veth", "virtio_net"} {
		if !seen[d] {
			problems = append(problems, "probe: shows no "+d)
		}
	}
	return problems
}

// judgeTable returns the differences between answers and a table. The table must have each
// capability.
func judgeTable(what, release string, caps device.Capabilities, table []expectation) []string {
	var problems []string
	caps = maps.Clone(caps)
	for _, e := range table {
		f, ok := caps[e.capability]
		delete(caps, e.capability)
		want := e.answer(release)
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("probe: %s: no answer for %s", what, e.capability))
		case f.Answer != want:
			problems = append(problems, fmt.Sprintf("probe: %s: %s is %s (%s), want %s on %s: %s", what, e.capability,
				f.Answer, f.Why, want, release, e.source))
		case want == device.Unknown && !strings.Contains(f.Why, e.unknown):
			problems = append(problems, fmt.Sprintf("probe: %s: %s is unknown because of %q, want %q", what,
				e.capability, f.Why, e.unknown))
		}
	}
	for _, c := range slices.Sorted(maps.Keys(caps)) {
		problems = append(problems, fmt.Sprintf("probe: %s: %s is %s (%s), but is not in the table", what, c,
			caps[c].Answer, caps[c].Why))
	}
	return problems
}
