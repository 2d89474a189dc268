// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// A key is one row of the table of keys. The reader, the JSON Schema and the reference all use
// that table.
type key = strictyaml.Key[target]

func refuse(name, why string) key { return strictyaml.Refuse[target](name, why) }

// maxQueues is the largest number of queues that a lane can ask for.
const maxQueues = 1024

// groupKeys are the keys for the devices and the host, which all lanes of a file share.
func groupKeys() []key {
	return []key{
		strictyaml.Of("dev", netdevs(), "this or `bond` is required",
			"Network device, or list of equal devices, that the lanes span.",
			func(t *target, x []string) { t.group.Devices = x }),
		strictyaml.Of("bond", strictyaml.AnyNetworkDevice(), "none",
			"Bond whose slaves the lanes span. plan looks the slaves up. Instead of `dev`.",
			func(t *target, x string) { t.group.Bond = x }),
		strictyaml.Of("vlans", strictyaml.Integers("a VLAN ID", 1, 4094, 4094), "any tag, or none",
			"VLANs on the devices to which the lanes are limited.",
			func(t *target, x []int) { t.group.VLANs = x }),
		strictyaml.Of("tunnels", tunnels(), "none",
			"Tunnels that carry packets of the lanes, by their UDP destination port: `vxlan:8472`, `geneve:6081`. "+
				"niclane looks into a tunnel's packets for members with `addrs`: on transmit into those of this "+
				"host's own tunnels. A card compares outer headers only: if it steers to the lanes, force the "+
				"queue-set `xdp-cpumap`, or `shared`.",
			func(t *target, x []intent.Tunnel) { t.group.Tunnels = x }),
		strictyaml.Of("link-rate", strictyaml.BitRate(), "what the device reports",
			"Rate of the link. For devices that cannot report it: virtual devices and the lab's.",
			func(t *target, x uint64) { t.group.LinkRate = x }),
		strictyaml.Of("unshaped", prefixes(intent.MaxUnshaped), "none",
			fmt.Sprintf("Networks of other hosts, at most %d. On transmit, packets to them leave as the default "+
				"lane's, without the rate, the rank and the DSCP of the lane to which their flow belongs. On receive, "+
				"packets from them arrive in the lane as all others do.", intent.MaxUnshaped),
			func(t *target, x []netip.Prefix) { t.group.Unshaped = x }),
		strictyaml.Of("busypoll", strictyaml.Microseconds(0, 1_000_000), "left alone",
			"`net.core.busy_poll`: how long poll(2) and select(2) poll the device. For the whole host.",
			func(t *target, x int) { t.group.BusyPoll = &x }),
		strictyaml.Of("busyread", strictyaml.Microseconds(0, 1_000_000), "left alone",
			"`net.core.busy_read`: how long a blocking read polls the device. For the whole host.",
			func(t *target, x int) { t.group.BusyRead = &x }),
		strictyaml.Of("arpfilter", strictyaml.Boolean(), "left alone",
			"On: sets `arp_ignore` 1, `arp_announce` 2 and `arp_notify` 1 on the devices. Each device then "+
				"answers for its own addresses only.",
			func(t *target, x bool) { t.group.ARPFilter = &x }),
		strictyaml.Of("rxring", strictyaml.Integer(1, 1<<20), "left alone",
			"Descriptors of each receive ring, for the whole device. A change can take the link down for a moment.",
			func(t *target, x int) { t.lane.Rings.Rx = &x }),
		strictyaml.Of("txring", strictyaml.Integer(1, 1<<20), "left alone",
			"Descriptors of each transmit ring, as for `rxring`.",
			func(t *target, x int) { t.lane.Rings.Tx = &x }),
		strictyaml.Of("optimize", strictyaml.Boolean(), "left alone",
			"The private flag `channel-pkt-inspect-optimize`, which only Intel's own ice driver has. The paper on "+
				"Traffic Server turns it off.",
			func(t *target, x bool) { t.group.Optimize = &x }),
		strictyaml.Of("force", Force(), "the best that the device allows",
			"Mechanisms that plan must use, by part of a lane. `niclane probe` lists them. plan fails if one is "+
				"not possible.",
			func(t *target, x map[string]string) { t.group.Force = x }),
		refuse("bpstop", "not taken: it is a private flag of Intel's own ice driver; leave it out, and write "+
			"poller: busy or poller: application to keep the device from interrupting"),
		refuse("bpstop-cfg", "not taken: it is a private flag of Intel's own ice driver; leave it out, and write "+
			"poller-timeout instead"),
		refuse("priority", "not taken: niclane always classifies on transmit, as adqsetup does with skbedit only; "+
			"write rank and guarantee in each lane, or globals.force.classifier to choose how"),
	}
}

// tuningKeys are the keys that every lane has, including the default lane.
func tuningKeys() []key {
	return []key{
		strictyaml.Of("cpus", processors(), "auto",
			"Processors that poll the lane's queues. If the file names them, they also run the members that have "+
				"a `cgroup` without `cgroup-cpus`. `auto` chooses as many as the lane has pollers, according to "+
				"`numa`. It keeps lanes apart, also from processors that `globals` or a `cgroup-cpus` names, while "+
				"there are others. It skips processors that the host keeps free of work (isolcpus, isolated cpuset "+
				"partitions, nohz_full). With `auto` the members stay where they are.",
			func(t *target, x []int) { t.lane.CPUs = x }),
		strictyaml.Of("numa", numa(), "local; all in globals",
			"NUMA node on which `cpus: auto` looks: the device's (local), the others (remote), any (all), or the "+
				"node with this number.",
			func(t *target, x intent.NUMAPolicy) { t.lane.NUMA = x }),
		strictyaml.Of("guarantee", strictyaml.RateOrShare(), "none",
			"Transmit rate that the lane always gets, independent of the other lanes. All guarantees together are "+
				"at most the link's rate. If the link is full, software HTB leaves a lane without a guarantee 1/1000 "+
				"of it, at any rank, and guarantees the default lane all that no lane is guaranteed.",
			func(t *target, x strictyaml.Rate) { t.lane.Bandwidth.Guarantee = intent.Rate(x) }),
		strictyaml.Of("ceiling", strictyaml.RateOrShare(), "100%",
			"Maximum transmit rate of the lane.",
			func(t *target, x strictyaml.Rate) { t.lane.Bandwidth.Ceiling = intent.Rate(x) }),
		strictyaml.Of("rank", strictyaml.Integer(1, 7), "1; 7 in globals",
			"Order among lanes: 1 goes first, 7 last. It holds on transmit beyond the guarantees, and in polling.",
			func(t *target, x int) { t.lane.Rank = x }),
		strictyaml.Of("poller", strictyaml.Named[intent.PollerKind](strictyaml.Word("auto", "interrupt", "thread",
			"busy", "application")), "auto",
			"What polls the queues. `interrupt`: interrupts and softirqs. `thread`: a kernel thread per NAPI. "+
				"`busy`: a thread that polls all the time on a processor of its own (niclane's with Linux 6.13, "+
				"the kernel's with 6.19). `application`: the application itself, by busy polling. `auto`: "+
				"`interrupt`, or `thread` if the lane's queues have processors that neither its application nor "+
				"another lane uses (below), or `busy` with `pollers`; in `globals` it leaves the queues as they are.",
			func(t *target, x intent.PollerKind) {
				if x != "auto" {
					t.lane.Poller.Kind = x
				}
			}),
		strictyaml.Of("pollers", strictyaml.Integer(1, maxQueues), "one per queue",
			"Number of polling threads, at most one per queue. The queues are spread over them. `poller: thread` "+
				"always has one per queue. With `poller: auto` this key asks for busy pollers, as in adqsetup, if "+
				"2 processors are left beside them, else for kernel threads.",
			func(t *target, x int) { t.lane.Poller.Count = x }),
		strictyaml.Of("poller-timeout", strictyaml.Microseconds(1, 1_000_000), "10ms",
			"Time without packets after which a busy poller of niclane sleeps. The next packet wakes it. A kernel "+
				"thread that busy-polls never sleeps. The driver's pollers count jiffies of the kernel, as with "+
				"adqsetup: 500us are 500 of them; at most 10000.",
			func(t *target, x int) { t.lane.Poller.TimeoutUsecs = x }),
		strictyaml.Of("poller-priority", strictyaml.Integer(1, 99), "by rank",
			"SCHED_FIFO priority of the polling threads.",
			func(t *target, x int) { t.lane.Poller.Priority, t.lane.Poller.Policy = x, intent.PolicyFIFO }),
		strictyaml.Of("poller-nice", strictyaml.Integer(-20, 19), "none",
			"Nice value of the polling threads, under SCHED_OTHER. Instead of `poller-priority`.",
			func(t *target, x int) { t.lane.Poller.Nice, t.lane.Poller.Policy = x, intent.PolicyOther }),
		strictyaml.Of("rxadapt", strictyaml.Boolean(), "the one in globals, else left alone",
			"Whether the device adapts its receive interrupt rate to the load. In `globals`: for every lane "+
				"without a value of its own. The same holds for the next three keys.",
			func(t *target, x bool) { t.lane.Moderation.RxAdapt = &x }),
		strictyaml.Of("txadapt", strictyaml.Boolean(), "the one in globals, else left alone",
			"The same for transmit.",
			func(t *target, x bool) { t.lane.Moderation.TxAdapt = &x }),
		strictyaml.Of("rxusecs", strictyaml.Integer(0, 1_000_000), "the one in globals, else left alone",
			"Microseconds from a received packet to its interrupt.",
			func(t *target, x int) { t.lane.Moderation.RxUsecs = &x }),
		strictyaml.Of("txusecs", strictyaml.Integer(0, 1_000_000), "the one in globals, else left alone",
			"Microseconds from a sent packet to its completion interrupt.",
			func(t *target, x int) { t.lane.Moderation.TxUsecs = &x }),
	}
}

// memberKeys are the keys that say which packets belong to a member.
func memberKeys() []key {
	return []key{
		strictyaml.Of("protocol", strictyaml.Word("tcp", "udp"), "tcp",
			"Transport protocol of the member's packets.",
			func(t *target, x string) { t.member.Protocol = x }),
		strictyaml.Of("ports", ports(), "any",
			"Local ports of the member: destination on receive, source on transmit. Fragments of datagrams larger "+
				"than the MTU have no ports; they belong to the default lane.",
			func(t *target, x []uint16) { t.member.Ports = x }),
		strictyaml.Of("addrs", prefixes(maxAddresses), "any",
			"Local addresses or networks of the member, IPv4 and IPv6.",
			func(t *target, x []netip.Prefix) { t.member.Addrs = x }),
		strictyaml.Of("remote-ports", ports(), "any",
			"Ports of the other side, for members that open connections.",
			func(t *target, x []uint16) { t.member.RemotePorts = x }),
		strictyaml.Of("remote-addrs", prefixes(maxAddresses), "any",
			"Addresses or networks of the other side.",
			func(t *target, x []netip.Prefix) { t.member.RemoteAddrs = x }),
		strictyaml.Of("cgroup", cgroup(), "none",
			"Control group of the member's processes. It must exist; `niclane watch` waits for it. If `cpus` "+
				"names processors, these processes run there. The group then needs the cpuset controller (for a "+
				"systemd service: `AllowedCPUs=`).",
			func(t *target, x string) { t.member.Cgroup = x }),
		strictyaml.Of("cgroup-cpus", strictyaml.Integers("a processor", 0, 8191, 8192), "the lane's `cpus`",
			"Processors of the `cgroup`, apart from those that poll the lane's queues: `cpuset.cpus`. The lane's "+
				"`cpus` are then of its pollers and interrupts alone.",
			func(t *target, x []int) { t.member.CgroupCPUs = x }),
		strictyaml.Of("cgroup-mems", strictyaml.Integers("a NUMA node", 0, 1023, 1024), "those of its processors",
			"NUMA nodes from which the `cgroup` gets memory: `cpuset.mems`.",
			func(t *target, x []int) { t.member.CgroupMems = x }),
		strictyaml.Of("aligned", strictyaml.Boolean(), "off",
			"On: the application places its threads by NAPI ID (memcached `-N`, Aerospike `auto-pin adq`). "+
				"niclane then refuses mechanisms that lose the NAPI ID, and verify checks which connections each "+
				"thread has.",
			func(t *target, x bool) { t.member.Aligned = x }),
	}
}

// matchNames are the names of memberKeys.
var matchNames = sync.OnceValue(func() []string { return strictyaml.Names(memberKeys()) })

const listName = "members"

// hostKeys are the keys that globals has and lanes do not have.
func hostKeys() []key {
	return append(groupKeys(), strictyaml.Of("queues", strictyaml.Integer(1, maxQueues), "all that the lanes leave",
		"Queues of the default lane, which takes all traffic that no lane matches. (adqsetup's default is 2. "+
			"On a card with many queues that is too few for all other traffic.)",
		func(t *target, x int) { t.lane.Queues = x }))
}

// globalsKeys are all keys of globals. They are built only once.
var globalsKeys = sync.OnceValue(func() []key { return append(hostKeys(), tuningKeys()...) })

// shapeKeys are the keys that only lanes have: neither globals nor members have them.
func shapeKeys() []key {
	const ringsRefused = "not taken in a lane: rings have one size for the whole device; write it in globals"
	return []key{
		strictyaml.Of("mode", strictyaml.Named[intent.Mode](strictyaml.Word("exclusive", "shared")), "exclusive",
			"Whether the lane has one member, or several that share it.",
			func(t *target, x intent.Mode) { t.lane.Mode = x }),
		strictyaml.Of("queues", strictyaml.Integer(1, maxQueues), "required",
			"Number of queues in the lane's queue set.",
			func(t *target, x int) { t.lane.Queues = x }),
		strictyaml.Of("dscp", DSCP(), "left alone",
			"DSCP (RFC 2474) with which the lane's packets leave, so that switches can give them their class. "+
				"It replaces the DSCP that the application has set (IP_TOS, IPV6_TCLASS), in the outermost IP "+
				"header. The ECN bits stay. It needs a classifier that reads packets: `clsact-bpf` or `tcx`.",
			func(t *target, x string) { t.lane.DSCP = x }),
		strictyaml.Of("pcp", strictyaml.Integer(0, device.MaxPCP), "left alone",
			"Priority code point (IEEE 802.1Q) of the VLAN tag with which the lane's packets leave. It replaces "+
				"the one that the VLAN device has set (egress-qos-map), in the outermost tag. The VLAN ID stays. "+
				"Packets without a tag get none. `dev` is the device below the VLAN device. It needs a "+
				"classifier that reads packets: `clsact-bpf` or `tcx`.",
			func(t *target, x int) { t.lane.PCP = device.FormatPCP(x) }),
		membersKey(),
		refuse("rxring", ringsRefused),
		refuse("txring", ringsRefused),
	}
}

// laneKeys are all keys of a lane. They are built only once, because every lane has the same
// keys.
var laneKeys = sync.OnceValue(func() []key { return slices.Concat(shapeKeys(), tuningKeys(), memberKeys()) })

// listedKeys are the keys of a member in a list. They are built only once: a file can have
// thousands of members.
var listedKeys = sync.OnceValue(func() []key {
	name := strictyaml.Of("name", strictyaml.Pattern(nameWant, namePattern, nil), "none",
		"Name of the member, for messages and `niclane status`.",
		func(t *target, x string) { t.member.Name = x })
	return append([]key{name}, memberKeys()...)
})

const (
	namePattern = `^[a-z0-9][a-z0-9_-]{0,31}$`
	nameWant    = "1 to 32 of a-z 0-9 - _, the first of them a-z or 0-9"
)

// parts are the parts of a lane for which a mechanism can be forced.
var parts = []string{
	string(device.PartQueueSet), string(device.PartSteering), string(device.PartClassifier),
	string(device.PartMapper), string(device.PartBandwidth), string(device.PartPoller),
	string(device.PartInterrupts), string(device.PartModeration), string(device.PartProcessors),
}

// Force returns the reader and the schema of globals.force, which maps parts of a lane to
// mechanisms. It accepts any mechanism name; package plan knows which mechanisms a part has.
func Force() strictyaml.Kind[map[string]string] {
	type names = map[string]string
	mechanism := strictyaml.Pattern("the name of a mechanism, as niclane probe lists them",
		`^[a-z0-9]+(-[a-z0-9]+)*$`, nil)
	properties := strictyaml.Schema{}
	var keys []strictyaml.Key[names]
	for _, part := range parts {
		properties[part] = mechanism.Schema
		keys = append(keys, strictyaml.Of(part, mechanism, "", "", func(out *names, s string) { (*out)[part] = s }))
	}
	const want = "a mapping from parts of a lane to mechanisms"
	return strictyaml.Kind[names]{
		Want:   want + ", the parts being " + strictyaml.OneOf(parts),
		Schema: strictyaml.Schema{"type": "object", "properties": properties, "additionalProperties": false},
		Read: func(v strictyaml.Value) (names, bool) {
			out := names{}
			_, ok := strictyaml.Section(v, keys, want, &out)
			return out, ok && len(out) > 0
		},
	}
}
