// SPDX-License-Identifier: Apache-2.0

package device

import (
	"path"
	"slices"
	"strings"
)

// Schema is the version of State's JSON form.
const Schema = 1

// State is the state of one network namespace of one machine at one moment.
type State struct {
	Schema  int    `json:"schema"`
	Kernel  Kernel `json:"kernel"`
	CPUs    []CPU  `json:"cpus"` // ascending by ID
	Cgroups Cgroup `json:"cgroups"`
	// IRQBalance says that the daemon irqbalance runs, which moves interrupts. It is known only if
	// capabilities were probed.
	IRQBalance bool `json:"irqbalance,omitempty"`
	// Files are the present values of the sysfs, procfs and cgroup files that a plan may write, by
	// path. A file that does not exist is not in the map.
	Files map[string]File `json:"files"`
	// Capabilities are those of the kernel, which belong to no device.
	Capabilities Capabilities `json:"capabilities"`
	Devices      []Device     `json:"devices"` // ascending by Name
	// Hardware describes the machine for people; nil: not read. Planning does not use it.
	Hardware *Hardware `json:"hardware,omitempty"`
}

// Kernel identifies the running kernel.
type Kernel struct {
	Release string `json:"release"` // uname -r
	Version string `json:"version"` // uname -v
	Arch    string `json:"arch"`    // uname -m
}

// A CPU is a logical processor.
type CPU struct {
	ID      int  `json:"id"`
	Online  bool `json:"online"`
	Node    int  `json:"node"`
	Core    int  `json:"core"`
	Package int  `json:"package"`
	// Kept says how the host keeps the processor free of other work: "isolated"
	// (isolcpus=, or an isolated cpuset partition) or "nohz_full"; "" if it
	// does not.
	Kept string `json:"kept,omitempty"`
}

// Cgroup says where control group hierarchies are mounted.
type Cgroup struct {
	// V2 is the mount point of the unified hierarchy, "" if none.
	V2 string `json:"v2,omitempty"`
	// V2Controllers are the controllers in the root's cgroup.controllers.
	V2Controllers []string `json:"v2Controllers,omitempty"`
	// V1 maps a controller ("cpuset", "net_prio") to its mount point.
	V1 map[string]string `json:"v1,omitempty"`
	// V2Groups says, for each control group of the lanes, whether it exists in the unified
	// hierarchy.
	V2Groups map[string]bool `json:"v2Groups,omitempty"`
	// Classes are the traffic classes that niclane gives to sockets, by control group.
	Classes []CgroupClass `json:"classes,omitempty"`
	// PrioGroups says, for each control group of the lanes, whether it exists in the hierarchy with
	// net_prio.
	PrioGroups map[string]bool `json:"prioGroups,omitempty"`
	// Priorities are the packet priorities that net_prio gives, by control group and device.
	Priorities []CgroupPriority `json:"priorities,omitempty"`
	// Groups says, for each control group of the lanes, whether it exists in the hierarchy with
	// cpuset.
	Groups map[string]bool `json:"groups,omitempty"`
	// IDs are the inode numbers of these groups' directories, by path. If a group is removed and
	// made again, it has another number (fs/kernfs: kernfs_gen, kernfs_ino).
	IDs map[string]uint64 `json:"ids,omitempty"`
}

// GroupDir returns the directory of the control group that o belongs to, "" for none.
func (c Cgroup) GroupDir(o Object) string {
	switch o := o.(type) {
	case CgroupClass:
		if c.V2 != "" {
			return path.Join(c.V2, o.Cgroup)
		}
	case CgroupPriority:
		if root := c.V1["net_prio"]; root != "" {
			return path.Join(root, o.Cgroup)
		}
	case File:
		if root := c.CpusetDir("/"); root != "" && strings.HasPrefix(o.Path, root+"/") {
			return path.Dir(o.Path)
		}
	}
	return ""
}

// CpusetDir returns the directory of a group in the hierarchy with the cpuset controller, "" if
// no hierarchy has it. If cpuset is mounted as version 1, it is not in version 2: a controller is
// in only one hierarchy (cgroups(7)).
func (c Cgroup) CpusetDir(group string) string {
	root := c.V1["cpuset"]
	if root == "" && slices.Contains(c.V2Controllers, "cpuset") {
		root = c.V2
	}
	if root == "" {
		return ""
	}
	return path.Join(root, group)
}

// Exists reports whether a control group exists in any of the hierarchies.
func (c Cgroup) Exists(group string) bool {
	return c.Groups[group] || c.V2Groups[group] || c.PrioGroups[group]
}

// A Device is one network interface.
type Device struct {
	Name  string `json:"name"`
	Index int    `json:"index"`
	// AltNames are further names of the device (ip link property, Linux 5.5).
	AltNames []string `json:"altNames,omitempty"`
	Type     string   `json:"type,omitempty"` // rtnl link kind: "veth", "bond", "vlan"; "" for hardware
	Driver   string   `json:"driver,omitempty"`
	Version  string   `json:"version,omitempty"`  // of the driver
	Firmware string   `json:"firmware,omitempty"` // version
	Bus      string   `json:"bus,omitempty"`      // PCI address
	MAC      string   `json:"mac"`
	// PermMAC is the hardware's original address (IFLA_PERM_ADDRESS). Parent is the
	// hardware device (IFLA_PARENT_DEV_NAME: "0000:3b:00.0"), "" for none.
	PermMAC string `json:"permMAC,omitempty"`
	Parent  string `json:"parent,omitempty"`
	MTU     int    `json:"mtu"`
	// LinkType is the type of a link whose packets have no Ethernet header, as
	// ip-link(8) prints it ("none", "ppp"), or its number; "" for Ethernet.
	LinkType string `json:"linkType,omitempty"`
	// TxQueueLen is the number of packets that the kernel's FIFOs on the device
	// hold (txqueuelen of ip-link(8)), nil if not known.
	TxQueueLen *int `json:"txQueueLen,omitempty"`
	// GSO is nil if the kernel does not report it.
	GSO     *GSOLimit `json:"gso,omitempty"`
	Up      bool      `json:"up"`
	Carrier bool      `json:"carrier"`
	// Speed is in bit/s; 0 if the device does not report it.
	Speed uint64 `json:"speed"`
	// Node is the NUMA node, -1 if there is none.
	Node   int    `json:"node"`
	Master string `json:"master,omitempty"` // bond or bridge it is enslaved to
	// BondMode is how a bond uses its slaves, as in /sys/class/net/*/bonding/mode.
	BondMode string `json:"bondMode,omitempty"`
	// Idle marks a slave that its bond does not send on: it has no carrier, the
	// bond's link monitor took it down, it is a backup, or it is not in the
	// active aggregator (bond_slave_can_tx of include/net/bonding.h).
	Idle  bool   `json:"idle,omitempty"`
	Lower string `json:"lower,omitempty"` // of a VLAN: the device below
	VLAN  int    `json:"vlan,omitempty"`  // of a VLAN: its ID
	// RxQueues and TxQueues are the real (in use) numbers of queues.
	RxQueues int `json:"rxQueues"`
	TxQueues int `json:"txQueues"`

	Channels    *Channels  `json:"channels,omitempty"`
	MaxChannels *Channels  `json:"maxChannels,omitempty"`
	Ring        *Ring      `json:"ring,omitempty"`
	MaxRing     *Ring      `json:"maxRing,omitempty"`
	Coalesce    *Coalesce  `json:"coalesce,omitempty"`
	QueueCoal   []Coalesce `json:"queueCoalesce,omitempty"` // per queue, where supported
	// CoalesceHas are the fields of Coalesce that the driver supports
	// ("rxUsecs"); empty: not known.
	CoalesceHas []string           `json:"coalesceHas,omitempty"`
	Features    map[string]Setting `json:"features,omitempty"`
	PrivFlags   map[string]bool    `json:"privFlags,omitempty"`

	// DriverParams are devlink's parameters of traffic classes.
	DriverParams []DriverParam `json:"driverParams,omitempty"`

	// DCB says how the device sorts received packets by DSCP and PCP; nil if the driver has no dcbnl, or
	// capabilities were not probed.
	DCB *DCB `json:"dcb,omitempty"`

	// RSS are the indirection tables, the default context first.
	RSS []RSSTable `json:"rss,omitempty"`
	// MaxContexts is the largest number of RSS contexts, not counting the default; 0 if not known.
	MaxContexts int `json:"maxContexts,omitempty"`
	// Rules are all steering rules, including those of other programs.
	Rules []Rule `json:"rules,omitempty"`
	// OtherRules are steering rules that a Match cannot describe.
	OtherRules []OtherRule `json:"otherRules,omitempty"`
	// RuleCapacity is the size of the rule table.
	RuleCapacity int `json:"ruleCapacity,omitempty"`

	Queues []Queue `json:"queues,omitempty"`
	NAPIs  []NAPI  `json:"napis,omitempty"`
	// Pollers are niclane's own processes that poll the device's NAPIs.
	Pollers []PollerState `json:"pollers,omitempty"`
	IRQs    []IRQ         `json:"irqs,omitempty"`

	Qdiscs  []QdiscState  `json:"qdiscs,omitempty"`
	Classes []Class       `json:"classes,omitempty"` // HTB only
	Shapers []Shaper      `json:"shapers,omitempty"` // of transmit queues
	Filters []FilterState `json:"filters,omitempty"`
	// Flowers are the ingress filters that only the card uses (skip_sw).
	Flowers []Flower `json:"flowers,omitempty"`
	// Entries are the map entries of niclane's own classifiers.
	Entries  []FilterEntry   `json:"entries,omitempty"`
	Defaults []FilterDefault `json:"defaults,omitempty"`
	// SharedLinks and Shares are what niclane's own classifiers share by departure times.
	SharedLinks []FilterLink  `json:"sharedLinks,omitempty"`
	Shares      []FilterShare `json:"shares,omitempty"`
	// Tunnels are those of niclane's own classifiers and of its XDP program.
	Tunnels  []Tunnels `json:"tunnels,omitempty"`
	Programs []Program `json:"programs,omitempty"`
	// CPUQueues and the next three fields are the contents of the maps of niclane's XDP program.
	// They are empty if it is not attached.
	CPUQueues  []CPUQueue  `json:"cpuQueues,omitempty"`
	CPUThreads []CPUThread `json:"cpuThreads,omitempty"`
	CPULanes   []CPULane   `json:"cpuLanes,omitempty"`
	XDPEntries []XDPEntry  `json:"xdpEntries,omitempty"`

	// Emulated says that the device is the lab's emulated card: the emulation provides RSS tables,
	// rules and Speed.
	Emulated bool `json:"emulated,omitempty"`

	Capabilities Capabilities `json:"capabilities"`
}

// The bond modes in which each slave that sends has the bond's full rate, not a share of it.
const (
	BondActiveBackup = "active-backup"
	BondBroadcast    = "broadcast"
)

// A Setting is a netdev feature as ethtool -k shows it.
type Setting struct {
	On    bool `json:"on"`
	Fixed bool `json:"fixed,omitempty"`
}

// A Queue is one receive or transmit queue.
type Queue struct {
	ID   int    `json:"id"`
	Type string `json:"type"` // "rx" or "tx"
	// NAPI is the ID of the NAPI that polls the queue. It is 0 if the driver does not report it
	// (netdev-genl queue-get; QuirkNAPIOrder lists drivers with a known order).
	NAPI uint32 `json:"napi,omitempty"`
}

// A NAPI is a polling instance.
type NAPI struct {
	ID  uint32 `json:"id"`
	IRQ int    `json:"irq,omitempty"`
	PID int    `json:"pid,omitempty"` // of its kernel thread, 0 if not threaded
	// Config.Queue and Thread.Queue are the NAPI's receive queue, -1 if not known.
	Config NAPIConfig `json:"config"`
	Thread *Thread    `json:"thread,omitempty"`
}

// An IRQ is an interrupt of the device. Its affinity is in State.Files.
type IRQ struct {
	Number int    `json:"number"`
	Name   string `json:"name"` // from /proc/interrupts
	// Queue is the channel that the interrupt serves, according to its name; -1 if none.
	Queue int `json:"queue"`
}

// An OtherRule is a steering rule that a Match cannot describe. It uses a place in the card's
// rule table. niclane does not change it.
type OtherRule struct {
	Location int `json:"location"`
	// FlowType is the kernel's number of the flow type, without flags (linux/ethtool.h, *_FLOW).
	FlowType int `json:"flowType"`
}

// A QdiscState is a qdisc as the kernel shows it. A default qdisc, which the kernel made by
// itself, has the Handle "0:".
type QdiscState struct {
	Qdisc
	// Options are the raw TCA_OPTIONS. With them, a change by another program is visible even if
	// niclane cannot decode the options.
	Options []byte `json:"options,omitempty"`
	// IngressBlock and EgressBlock are the indexes of the filter blocks that a
	// clsact or ingress qdisc shares with others, 0 for none. With a shared
	// block, the kernel refuses filters for one device alone
	// (net/sched/cls_api.c: tcf_block_find).
	IngressBlock uint32 `json:"ingressBlock,omitempty"`
	EgressBlock  uint32 `json:"egressBlock,omitempty"`
}

// A FilterState is any program's tc filter on clsact.
type FilterState struct {
	Filter
	Type string `json:"type"` // "bpf", "u32", "flower"
	// Name and ProgramID are those of a BPF filter.
	Name      string `json:"name,omitempty"`
	ProgramID uint32 `json:"programID,omitempty"`
}

// The places where a Program is attached.
const (
	AttachXDP        = "xdp" // in the driver
	AttachXDPGeneric = "xdp-generic"
	AttachTCXIngress = "tcx-ingress"
	AttachTCXEgress  = "tcx-egress"
)

// A Program is a BPF program attached to the device outside tc filters.
type Program struct {
	Attach string `json:"attach"` // AttachXDP, ...
	ID     uint32 `json:"id"`
	Name   string `json:"name"`
}

// Device returns the named device, nil if there is none.
func (s *State) Device(name string) *Device {
	for i := range s.Devices {
		if s.Devices[i].Name == name {
			return &s.Devices[i]
		}
	}
	return nil
}

// OnlineCPUs returns the IDs of the online processors, ascending.
func (s *State) OnlineCPUs() []int {
	var ids []int
	for _, c := range s.CPUs {
		if c.Online {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// Objects returns all objects of s that a plan can write, by key. A plan compares these values
// with the wanted ones, and rollback restores them. Absent objects are not in the map.
func (s *State) Objects() map[string]Object {
	n := len(s.Files)
	for _, d := range s.Devices {
		n += 64 + len(d.Rules) + len(d.Entries) + len(d.XDPEntries)
	}
	m := make(map[string]Object, n)
	for _, k := range kinds {
		k.each(s, func(o Object) { m[o.Key()] = o })
	}
	return m
}
