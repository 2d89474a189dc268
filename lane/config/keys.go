// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// A key is one line of the table that this package is made of: the reader, the
// JSON Schema and the reference come from it.
type key = strictyaml.Key[target]

func refuse(name, why string) key { return strictyaml.Refuse[target](name, why) }

// maxQueues is the most queues that a lane can ask for.
const maxQueues = 1024

// groupKeys are what the lanes of a file share: the devices and the host.
func groupKeys() []key {
	return []key{
		strictyaml.Of("dev", netdevs(), "this or `bond` is needed",
			"Network device, or a list of devices of equal standing, that the lanes span.",
			func(t *target, x []string) { t.group.Devices = x }),
		strictyaml.Of("bond", strictyaml.AnyNetworkDevice(), "none",
			"Bond whose slaves the lanes span; they are looked up when planning. Instead of `dev`.",
			func(t *target, x string) { t.group.Bond = x }),
		strictyaml.Of("vlans", strictyaml.Integers("a VLAN ID", 1, 4094, 4094), "whatever the tag, or none",
			"VLANs on the devices to which the lanes are kept.",
			func(t *target, x []int) { t.group.VLANs = x }),
		strictyaml.Of("link-rate", strictyaml.BitRate(), "what the device says",
			"Rate of the link, for devices that cannot say it: virtual ones, and the lab's.",
			func(t *target, x uint64) { t.group.LinkRate = x }),
		strictyaml.Of("busypoll", strictyaml.Microseconds(0, 1_000_000), "left alone",
			"`net.core.busy_poll`: how long poll(2) and select(2) poll the device. For the whole host.",
			func(t *target, x int) { t.group.BusyPoll = &x }),
		strictyaml.Of("busyread", strictyaml.Microseconds(0, 1_000_000), "left alone",
			"`net.core.busy_read`: how long a blocking read polls the device. For the whole host.",
			func(t *target, x int) { t.group.BusyRead = &x }),
		strictyaml.Of("arpfilter", strictyaml.Boolean(), "left alone",
			"On: `arp_ignore` 1, `arp_announce` 2 and `arp_notify` 1 on the devices, so that each answers for its "+
				"own addresses only.",
			func(t *target, x bool) { t.group.ARPFilter = &x }),
		strictyaml.Of("rxring", strictyaml.Integer(1, 1<<20), "left alone",
			"Descriptors of each receive ring. For the whole device; changing it takes the link down on many cards.",
			func(t *target, x int) { t.lane.Rings.Rx = &x }),
		strictyaml.Of("txring", strictyaml.Integer(1, 1<<20), "left alone",
			"Descriptors of each transmit ring, as `rxring`.",
			func(t *target, x int) { t.lane.Rings.Tx = &x }),
		strictyaml.Of("force", Force(), "the best that the device allows",
			"Mechanisms that must be used, by part of a lane; `niclane probe` lists them. Planning fails where "+
				"one is not possible.",
			func(t *target, x map[string]string) { t.group.Force = x }),
		refuse("optimize", "not taken: adqsetup sets private flags of the ice driver with it, which are not in "+
			"Linux's own driver; leave it out, and write poller and rxusecs instead"),
		refuse("bpstop", "not taken: it is a private flag of Intel's own ice driver; leave it out, and write "+
			"poller: busy or poller: application to keep the device from interrupting"),
		refuse("bpstop-cfg", "not taken: it is a private flag of Intel's own ice driver; leave it out, and write "+
			"poller-timeout instead"),
		refuse("priority", "not taken: niclane always classifies on transmit, as adqsetup does with skbedit only; "+
			"write rank and guarantee in each lane, or globals.force.classifier to choose how"),
	}
}

// tuningKeys are what every lane has, the default lane too.
func tuningKeys() []key {
	return []key{
		strictyaml.Of("cpus", processors(), "auto",
			"Processors that poll the lane's queues and, if they are named, run the members that have a `cgroup`. "+
				"`auto` chooses as many as the lane has pollers, by `numa`, keeps lanes apart, leaves processors "+
				"out that the host keeps free of work (isolcpus, isolated cpuset partitions, nohz_full), and leaves "+
				"the members where they are.",
			func(t *target, x []int) { t.lane.CPUs = x }),
		strictyaml.Of("numa", numa(), "local; all in globals",
			"Where `cpus: auto` looks: on the device's NUMA node, on the others, anywhere, or on the node with this "+
				"number.",
			func(t *target, x intent.NUMAPolicy) { t.lane.NUMA = x }),
		strictyaml.Of("guarantee", strictyaml.RateOrShare(), "none",
			"Transmit rate that the lane has whatever the others do. Guarantees add up to the link at most.",
			func(t *target, x strictyaml.Rate) { t.lane.Bandwidth.Guarantee = intent.Rate(x) }),
		strictyaml.Of("ceiling", strictyaml.RateOrShare(), "100%",
			"Transmit rate that the lane never exceeds.",
			func(t *target, x strictyaml.Rate) { t.lane.Bandwidth.Ceiling = intent.Rate(x) }),
		strictyaml.Of("rank", strictyaml.Integer(1, 7), "1; 7 in globals",
			"Order among lanes, on transmit beyond the guarantees and in polling: 1 goes first, 7 last.",
			func(t *target, x int) { t.lane.Rank = x }),
		strictyaml.Of("poller", strictyaml.Named[intent.PollerKind](strictyaml.Word("auto", "interrupt", "thread",
			"busy", "application")), "auto",
			"Who polls the queues: interrupts and softirqs, a kernel thread per NAPI, a thread that polls busily on "+
				"a processor of its own (niclane's, Linux 6.13, or the kernel's, 6.19), or the application itself "+
				"by busy polling. `auto` is `thread` where the device allows it, or `busy` with `pollers`; in "+
				"`globals` it leaves the queues as they are.",
			func(t *target, x intent.PollerKind) {
				if x != "auto" {
					t.lane.Poller.Kind = x
				}
			}),
		strictyaml.Of("pollers", strictyaml.Integer(1, maxQueues), "one per queue",
			"Number of polling threads, at most one per queue, over which the queues are spread; with `poller: "+
				"thread` exactly that. With `poller: auto` it asks for busy pollers, as adqsetup's does, where 2 "+
				"processors are left beside them.",
			func(t *target, x int) { t.lane.Poller.Count = x }),
		strictyaml.Of("poller-timeout", strictyaml.Microseconds(1, 1_000_000), "10ms",
			"How long a busy poller of niclane's goes on without packets before it sleeps; the next packet wakes "+
				"it. A kernel thread that busy-polls never sleeps.",
			func(t *target, x int) { t.lane.Poller.TimeoutUsecs = x }),
		strictyaml.Of("poller-priority", strictyaml.Integer(1, 99), "by rank",
			"SCHED_FIFO priority of the polling threads.",
			func(t *target, x int) { t.lane.Poller.Priority, t.lane.Poller.Policy = x, intent.PolicyFIFO }),
		strictyaml.Of("poller-nice", strictyaml.Integer(-20, 19), "none",
			"Nice value of the polling threads, under SCHED_OTHER. Instead of `poller-priority`.",
			func(t *target, x int) { t.lane.Poller.Nice, t.lane.Poller.Policy = x, intent.PolicyOther }),
		strictyaml.Of("rxadapt", strictyaml.Boolean(), "the one in globals, else left alone",
			"Whether the device adapts its receive interrupt rate to the load. In `globals`: for every lane that "+
				"does not give its own; the same holds for the next three.",
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

// memberKeys say which packets are a member's.
func memberKeys() []key {
	return []key{
		strictyaml.Of("protocol", strictyaml.Word("tcp", "udp"), "tcp",
			"Transport protocol of the member's packets.",
			func(t *target, x string) { t.member.Protocol = x }),
		strictyaml.Of("ports", ports(), "any",
			"The member's own ports: destination on receive, source on transmit. Fragments of datagrams larger than "+
				"the MTU have no ports: they are the default lane's.",
			func(t *target, x []uint16) { t.member.Ports = x }),
		strictyaml.Of("addrs", prefixes(), "any",
			"The member's own addresses or networks, IPv4 and IPv6.",
			func(t *target, x []netip.Prefix) { t.member.Addrs = x }),
		strictyaml.Of("remote-ports", ports(), "any",
			"The other side's ports, for members that open connections.",
			func(t *target, x []uint16) { t.member.RemotePorts = x }),
		strictyaml.Of("remote-addrs", prefixes(), "any",
			"The other side's addresses or networks.",
			func(t *target, x []netip.Prefix) { t.member.RemoteAddrs = x }),
		strictyaml.Of("cgroup", cgroup(), "none",
			"Control group of the member's processes, which must exist: `niclane watch` waits for it. Where `cpus` "+
				"names processors, these processes run there, and the group needs the cpuset controller (of a "+
				"service of systemd's: `AllowedCPUs=`).",
			func(t *target, x string) { t.member.Cgroup = x }),
		strictyaml.Of("aligned", strictyaml.Boolean(), "off",
			"On: the application places its threads by NAPI ID (memcached `-N`, Aerospike `auto-pin adq`). "+
				"Mechanisms that lose the NAPI ID are then refused, and verify looks at which connections each "+
				"thread has.",
			func(t *target, x bool) { t.member.Aligned = x }),
	}
}

// matchNames are the names of memberKeys.
var matchNames = sync.OnceValue(func() []string { return strictyaml.Names(memberKeys()) })

const listName = "members"

// hostKeys are the keys of globals that lanes do not have.
func hostKeys() []key {
	return append(groupKeys(), strictyaml.Of("queues", strictyaml.Integer(1, maxQueues), "all that the lanes leave",
		"Queues of the default lane, which takes what no lane matches. (adqsetup's default is 2; on a card with "+
			"many queues that would squeeze everything else into them.)",
		func(t *target, x int) { t.lane.Queues = x }))
}

// globalsKeys are made once.
var globalsKeys = sync.OnceValue(func() []key { return append(hostKeys(), tuningKeys()...) })

// shapeKeys are the keys of a lane that neither globals nor members have.
func shapeKeys() []key {
	const ringsRefused = "not taken in a lane: rings have one size for the whole device; write it in globals"
	return []key{
		strictyaml.Of("mode", strictyaml.Named[intent.Mode](strictyaml.Word("exclusive", "shared")), "exclusive",
			"Whether the lane belongs to one member or is shared by several.",
			func(t *target, x intent.Mode) { t.lane.Mode = x }),
		strictyaml.Of("queues", strictyaml.Integer(1, maxQueues), "has to be given",
			"Size of the lane's queue set.",
			func(t *target, x int) { t.lane.Queues = x }),
		membersKey(),
		refuse("rxring", ringsRefused),
		refuse("txring", ringsRefused),
	}
}

// laneKeys are the same for every lane, and made once.
var laneKeys = sync.OnceValue(func() []key { return slices.Concat(shapeKeys(), tuningKeys(), memberKeys()) })

// listedKeys are the same for every member, of which there are as many as pods.
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

// parts of a lane for which a mechanism can be forced.
var parts = []string{
	string(device.PartQueueSet), string(device.PartSteering), string(device.PartClassifier),
	string(device.PartMapper), string(device.PartBandwidth), string(device.PartPoller),
	string(device.PartInterrupts), string(device.PartModeration), string(device.PartProcessors),
}

// Force is the kind of globals.force: it maps a part of a lane to the name of a
// mechanism. Which names there are for a part is package plan's to know.
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
