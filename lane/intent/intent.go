// SPDX-License-Identifier: Apache-2.0

// Package intent holds lanes as the user asked for them: members, queues,
// bandwidth, rank, poller and processors. It knows no device, reads nothing and
// decides nothing; package plan fits an Intent to a device.
package intent

import "net/netip"

// DefaultLane is the name of the lane for all traffic that no other lane matches.
const DefaultLane = "default"

// An Intent is the content of one file: the lanes of one device group.
type Intent struct {
	// Source is the file's name. It is used only in messages.
	Source string `json:"source,omitempty"`
	Group  Group  `json:"group"`
	// Default is the default lane. Its Name is DefaultLane and it has no
	// members.
	Default Lane `json:"default"`
	// Lanes are all other lanes, in the order of the file.
	Lanes []Lane `json:"lanes"`
}

// A Group is the set of network devices that the lanes span: one device, several equal devices,
// or the slaves of a bond.
type Group struct {
	// Devices are interface names. It is empty if Bond is set: package plan
	// then finds the bond's slaves.
	Devices []string `json:"devices,omitempty"`
	Bond    string   `json:"bond,omitempty"`
	// VLANs limit the lanes to packets with one of these tags (1-4094). Empty
	// means packets with any tag, or none.
	VLANs []int `json:"vlans,omitempty"`
	// Tunnels are tunnels in whose packets the lanes' packets are, at most MaxTunnels with different
	// ports. Members with Addrs are also looked for inside them.
	Tunnels []Tunnel `json:"tunnels,omitempty"`
	// LinkRate is the link's rate in bit/s. If set, it is used instead of the speed that the device
	// reports. 0: ask the device.
	LinkRate uint64 `json:"linkRate,omitempty"`
	// Unshaped are networks of other hosts. On transmit, packets to them leave as the default lane's,
	// whatever lane their flow belongs to. At most MaxUnshaped.
	Unshaped []netip.Prefix `json:"unshaped,omitempty"`
	// BusyPoll and BusyRead are the sysctls net.core.busy_poll and net.core.busy_read in
	// microseconds. They apply to the whole host. nil: niclane does not change them.
	BusyPoll *int `json:"busyPoll,omitempty"`
	BusyRead *int `json:"busyRead,omitempty"`
	// ARPFilter true sets arp_ignore=1, arp_announce=2, arp_notify=1 on the devices, as adqsetup's
	// arpfilter does. nil or false: niclane does not change them.
	ARPFilter *bool `json:"arpFilter,omitempty"`
	// Optimize is the private flag channel-pkt-inspect-optimize of Intel's own ice driver. nil: niclane
	// does not change it.
	Optimize *bool `json:"optimize,omitempty"`
	// Force maps a part of a lane (a device.Part) to the mechanism that niclane must use for it.
	// Planning fails if the device does not allow that mechanism.
	Force map[string]string `json:"force,omitempty"`
}

// MaxTunnels is the largest number of tunnels of a Group (internal/kernel/bpf/c/include/niclane/tunnel.h:
// MAX_TUNNELS).
const MaxTunnels = 4

// A Tunnel is a tunnel over UDP, by the destination port of its packets.
type Tunnel struct {
	Protocol string `json:"protocol"` // "vxlan" or "geneve"
	Port     uint16 `json:"port"`     // at least 1
}

// MaxUnshaped is the largest number of networks in Unshaped. Each length of a prefix costs the
// classifier a lookup per packet.
const MaxUnshaped = 8

// Mode says whether a lane belongs to one member or is shared by several.
type Mode string

// The modes of a lane. adqsetup uses the same words.
const (
	Exclusive Mode = "exclusive"
	Shared    Mode = "shared"
)

// NUMAPolicy limits the processors that planning may choose for a lane: those of the device's
// NUMA node, those of other nodes, or all.
type NUMAPolicy string

// The NUMA policies. Any other value is a node number in decimal.
const (
	NUMALocal  NUMAPolicy = "local"
	NUMARemote NUMAPolicy = "remote"
	NUMAAll    NUMAPolicy = "all"
)

// A Lane is what one application gets on the devices: queues, a share of the link, a poller and
// processors.
type Lane struct {
	Name    string   `json:"name"`
	Mode    Mode     `json:"mode,omitempty"`
	Members []Member `json:"members,omitempty"`
	// Queues is the number of queues, at least 1. In the default lane, 0 means
	// all queues that the other lanes leave.
	Queues int `json:"queues"`
	// CPUs are the processors that poll the lane's queues and run its members, ascending and without
	// duplicates. nil ("auto"): planning chooses processors by the NUMA policy.
	CPUs []int      `json:"cpus,omitempty"`
	NUMA NUMAPolicy `json:"numa,omitempty"`
	// Bandwidth is the lane's guarantee and ceiling on transmit.
	Bandwidth Bandwidth `json:"bandwidth"`
	// Rank is the lane's place in the order on transmit and in polling: 1 (first) to 7 (last). 0:
	// not given, which means 1 for a lane and 7 for the default lane.
	Rank int `json:"rank,omitempty"`
	// DSCP is the DSCP with which the lane's packets leave, as device.FormatDSCP writes it ("ef"). "":
	// niclane does not change it. The default lane has none.
	DSCP string `json:"dscp,omitempty"`
	// PCP is the priority code point of the VLAN tag with which the lane's packets leave, as
	// device.FormatPCP writes it. "": niclane does not change it. The default lane has none.
	PCP        string     `json:"pcp,omitempty"`
	Poller     Poller     `json:"poller"`
	Moderation Moderation `json:"moderation"`
	Rings      Rings      `json:"rings"`
	// Path is the lane's place in the file: "lanes.memcached".
	Path string `json:"path"`
}

// A Member is an application, port or address whose packets belong to a lane. A packet belongs to
// the member if it matches every given field. It matches a list if it matches one element of it.
type Member struct {
	Name string `json:"name,omitempty"`
	// Protocol is "tcp" or "udp".
	Protocol string `json:"protocol"`
	// Ports and Addrs are this host's end: the destination of received packets, the source of sent
	// packets. RemotePorts and RemoteAddrs are the other end.
	Ports       []uint16       `json:"ports,omitempty"`
	RemotePorts []uint16       `json:"remotePorts,omitempty"`
	Addrs       []netip.Prefix `json:"addrs,omitempty"`
	RemoteAddrs []netip.Prefix `json:"remoteAddrs,omitempty"`
	// Cgroup is the member's control group, relative to the root of its
	// hierarchy ("/system.slice/memcached.service"); "" if not given.
	Cgroup string `json:"cgroup,omitempty"`
	// CgroupCPUs are the processors to which Cgroup is confined, apart from those that poll the lane's
	// queues, ascending. nil: the lane's CPUs.
	CgroupCPUs []int `json:"cgroupCPUs,omitempty"`
	// CgroupMems are the NUMA nodes from which Cgroup gets memory, ascending. nil: those of its
	// processors.
	CgroupMems []int `json:"cgroupMems,omitempty"`
	// Aligned says that the application places its own threads by NAPI ID
	// (memcached -N, Aerospike auto-pin adq). Planning then refuses mechanisms
	// that lose the NAPI ID.
	Aligned bool   `json:"aligned,omitempty"`
	Path    string `json:"path"`
}

// Patterns returns the number of map entries that the member needs in niclane's BPF programs: one
// for each combination of local address, remote address, block of local ports and block of remote
// ports.
func (m *Member) Patterns() int {
	return m.addresses() * max(len(Blocks(m.Ports)), 1) * max(len(Blocks(m.RemotePorts)), 1)
}

// Rules returns the number of steering rules that the member needs for each device and VLAN. It
// counts like Patterns, but with single ports, because cards cannot compare blocks of ports.
func (m *Member) Rules() int {
	return m.addresses() * max(len(m.Ports), 1) * max(len(m.RemotePorts), 1)
}

func (m *Member) addresses() (n int) {
	for _, four := range []bool{true, false} {
		n += ofFamily(m.Addrs, four) * ofFamily(m.RemoteAddrs, four)
	}
	return n
}

// ofFamily returns the number of IPv4 prefixes (four) or IPv6 prefixes in ps. An empty list
// matches every address and counts as one prefix.
func ofFamily(ps []netip.Prefix, four bool) int {
	if len(ps) == 0 {
		return 1
	}
	n := 0
	for _, p := range ps {
		if p.Addr().Is4() == four {
			n++
		}
	}
	return n
}

// A Rate is an absolute rate, or a share of the link's rate.
type Rate struct {
	// BitsPerSecond is used when Permille is 0.
	BitsPerSecond uint64 `json:"bps,omitempty"`
	// Permille is the share of the link's rate, 1-1000.
	Permille int `json:"permille,omitempty"`
}

// IsZero reports whether no rate was given.
func (r Rate) IsZero() bool { return r.BitsPerSecond == 0 && r.Permille == 0 }

// Of returns the rate in bit/s; link is the link's rate in bit/s.
func (r Rate) Of(link uint64) uint64 {
	if r.Permille > 0 {
		return link / 1000 * uint64(r.Permille)
	}
	return r.BitsPerSecond
}

// Bandwidth is a lane's guarantee and ceiling on transmit.
type Bandwidth struct {
	Guarantee Rate `json:"guarantee"`
	Ceiling   Rate `json:"ceiling"`
}

// PollerKind says what polls a lane's NAPIs.
type PollerKind string

// The kinds of poller.
const (
	// PollerAuto lets planning choose the best kind that the device allows.
	PollerAuto PollerKind = ""
	// PollerInterrupt leaves the NAPIs to interrupts and softirqs.
	PollerInterrupt PollerKind = "interrupt"
	// PollerThread is one kernel thread per NAPI (threaded NAPI).
	PollerThread PollerKind = "thread"
	// PollerBusy is a busy-polling thread: niclane's own (Linux 6.13), the kernel's (6.19) or the
	// driver's.
	PollerBusy PollerKind = "busy"
	// PollerApplication is the application's own busy poll.
	PollerApplication PollerKind = "application"
)

// A Poller describes the threads that poll a lane's queues.
type Poller struct {
	Kind PollerKind `json:"kind,omitempty"`
	// Count is the number of polling threads, at most the lane's queues (0: one
	// per queue).
	Count int `json:"count,omitempty"`
	// TimeoutUsecs is the time without packets, in microseconds, after which a busy poller
	// sleeps (adqsetup's poller_timeout). 0: the mechanism's default.
	TimeoutUsecs int `json:"timeoutUsecs,omitempty"`
	// Policy is the scheduling policy. It decides whether Priority or Nice applies.
	Policy Policy `json:"policy,omitempty"`
	// Priority is the threads' SCHED_FIFO priority 1-99; 0: not given.
	Priority int `json:"priority,omitempty"`
	// Nice is -20 to 19, used with SCHED_OTHER.
	Nice int `json:"nice,omitempty"`
}

// A Policy is a scheduling policy, sched(7).
type Policy string

// The scheduling policies of polling threads.
const (
	// PolicyRank lets planning choose the policy by the lane's rank.
	PolicyRank  Policy = ""
	PolicyFIFO  Policy = "fifo"  // SCHED_FIFO with Priority
	PolicyOther Policy = "other" // SCHED_OTHER with Nice
)

// Moderation is the device's interrupt moderation. niclane does not change a setting whose field
// is nil.
type Moderation struct {
	RxAdapt *bool `json:"rxAdapt,omitempty"`
	TxAdapt *bool `json:"txAdapt,omitempty"`
	RxUsecs *int  `json:"rxUsecs,omitempty"`
	TxUsecs *int  `json:"txUsecs,omitempty"`
}

// Rings are descriptor ring sizes. niclane does not change a size that is nil.
type Rings struct {
	Rx *int `json:"rx,omitempty"`
	Tx *int `json:"tx,omitempty"`
}
