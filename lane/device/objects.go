// SPDX-License-Identifier: Apache-2.0

package device

import "fmt"

// FileFormat says how two values of a file are compared.
type FileFormat string

// The formats of the files a plan writes.
const (
	// FileText compares after trimming white space.
	FileText FileFormat = "text"
	// FileCPUMask is a hexadecimal mask in groups of 32 bits: "00000000,0000000f".
	FileCPUMask FileFormat = "cpumask"
	// FileCPUList is a list of ranges: "0-3,8". Empty means none.
	FileCPUList FileFormat = "cpulist"
)

// A File is a file of sysfs, procfs (sysctl, IRQ affinity) or a control
// group. Files are never created or removed; absence means "does not exist".
type File struct {
	Path   string     `json:"path"`
	Format FileFormat `json:"format"`
	Value  string     `json:"value"`
}

// Kind implements Object.
func (File) Kind() string { return "file" }

// Key implements Object.
func (f File) Key() string { return "file" + f.Path }

// A Qdisc is a queueing discipline. Only the kinds that niclane writes carry
// options; the kernel's own default qdisc (handle 0) counts as absent.
type Qdisc struct {
	Dev string `json:"dev"`
	// Parent is "root", "clsact", or a class "1:10".
	Parent string `json:"parent"`
	Type   string `json:"type"` // "htb", "clsact", "pfifo", ...
	// Handle is "1:"; chosen by the plan, never by the kernel.
	Handle string `json:"handle"`
	// DefaultClass is htb's minor number for what no filter or priority
	// names.
	DefaultClass uint16 `json:"defaultClass,omitempty"`
	// Offload: the card does what an htb is told (tc-htb(8), "offload").
	Offload bool `json:"offload,omitempty"`
	// Limit in packets, of pfifo leaves; in bytes, of tbf.
	Limit uint32 `json:"limit,omitempty"`
	// Rate in bit/s and Burst in bytes, of tbf; Rate also of a cake that limits.
	Rate  uint64 `json:"rate,omitempty"`
	Burst uint32 `json:"burst,omitempty"`
	// Cake is how a cake divides what it sends, in the words of tc-cake(8): its
	// diffserv mode, its flow mode, and whether it takes large packets apart.
	Cake string `json:"cake,omitempty"`
	// Map and Queues are of mqprio, as tc-mqprio(8) has them: the traffic
	// class of each of the 16 priorities ("0 0 1 ..."), and the transmit
	// queues of each class ("4@0 2@4": COUNT@FIRST). Adding and removing an
	// mqprio takes all transmit packet steering of the device away
	// (net/core/dev.c: netdev_set_num_tc).
	Map    string `json:"map,omitempty"`
	Queues string `json:"queues,omitempty"`
	// Mode is of an mqprio that the card makes (hw 1): ModeChannel, ModeDCB; ""
	// if software does. MinRates and MaxRates are those of its classes in bit/s
	// ("0 1000000000"), "" for none.
	Mode     string `json:"mode,omitempty"`
	MinRates string `json:"minRates,omitempty"`
	MaxRates string `json:"maxRates,omitempty"`
}

// CakeByHost divides fairly among source addresses, and what each of these has
// among its flows; whatever packets say of their class does not count, and large
// ones stay whole, as the card gets them otherwise.
const CakeByHost = "besteffort dual-srchost no-split-gso"

// Modes of an mqprio that the card makes (tc-mqprio(8)).
const (
	ModeChannel = "channel"
	ModeDCB     = "dcb"
)

// Kind implements Object.
func (Qdisc) Kind() string { return "qdisc" }

// Key implements Object.
func (q Qdisc) Key() string { return "qdisc/" + q.Dev + "/" + q.Parent }

// A Class is an HTB class. Rates are bit/s, bursts bytes.
type Class struct {
	Dev     string `json:"dev"`
	ID      string `json:"id"`     // "1:10"
	Parent  string `json:"parent"` // "1:" or "1:1"
	Rate    uint64 `json:"rate"`
	Ceil    uint64 `json:"ceil"`
	Burst   uint32 `json:"burst"`
	CBurst  uint32 `json:"cburst"`
	Quantum uint32 `json:"quantum"`
	// Prio 0 (first) to 7 (last).
	Prio uint32 `json:"prio"`
	// Offload: the class is the card's, as its qdisc is, and leaves by one
	// transmit queue of its own. Quantum is then 0, the kernel's choice, of
	// which the card knows nothing.
	Offload bool `json:"offload,omitempty"`
}

// Kind implements Object.
func (Class) Kind() string { return "class" }

// Key implements Object.
func (c Class) Key() string { return "class/" + c.Dev + "/" + c.ID }

// A Filter is a BPF program of niclane's attached to clsact by cls_bpf in
// direct-action mode. Its identity is chosen by the plan, so that it can be
// found again after a kill between attaching and journalling.
type Filter struct {
	Dev    string `json:"dev"`
	Parent string `json:"parent"` // "egress" or "ingress" of clsact
	Pref   uint16 `json:"pref"`
	Handle uint32 `json:"handle"`
	// Program is the name of the program in package internal/kernel/bpf:
	// "niclane_egress".
	Program string `json:"program"`
}

// Kind implements Object.
func (Filter) Kind() string { return "filter" }

// Key implements Object.
func (f Filter) Key() string {
	return fmt.Sprintf("filter/%s/%s/%d/%d", f.Dev, f.Parent, f.Pref, f.Handle)
}

// Match is what a rule or a classifier entry compares. Zero fields match
// everything. Family is 4 or 6 and always given; addresses are prefixes in
// canonical text ("10.9.0.1/32"), Local being this host's side.
type Match struct {
	Family     int    `json:"family"`
	Protocol   string `json:"protocol"`
	Local      string `json:"local,omitempty"`
	LocalPort  uint16 `json:"localPort,omitempty"`
	Remote     string `json:"remote,omitempty"`
	RemotePort uint16 `json:"remotePort,omitempty"`
	// LocalPortBits and RemotePortBits are how many of a port's first bits are
	// compared, 1 to 15; 0: all 16. Only niclane's own programs compare blocks.
	LocalPortBits  int `json:"localPortBits,omitempty"`
	RemotePortBits int `json:"remotePortBits,omitempty"`
	VLAN           int `json:"vlan,omitempty"`
}

// SamePort reports whether two ports of matches, with their bits, have a port in
// common; port 0 is any.
func SamePort(a uint16, aBits int, b uint16, bBits int) bool {
	mask := PortMask(aBits) & PortMask(bBits)
	return a == 0 || b == 0 || a&mask == b&mask
}

// PortMask is the mask of a port of which so many bits are compared, 0 for all.
func PortMask(bits int) uint16 {
	if bits == 0 {
		bits = 16
	}
	return ^uint16(0) << (16 - bits)
}

// A FilterEntry is one entry in the map of a Filter's program: packets that
// match get Priority and one of Queues.
type FilterEntry struct {
	Filter string `json:"filter"` // Key of the Filter
	Match  Match  `json:"match"`
	// Priority is what skb->priority becomes, as a handle: an HTB class
	// ("1:10"), or below ":10" one of mqprio's priorities ("0:8"). "" leaves
	// it as it is.
	Priority string `json:"priority"`
	// Queues are transmit queues, ascending without a gap; none leaves the
	// choice to the kernel, which prefers XPS where that is set.
	Queues []int `json:"queues,omitempty"`
}

// Kind implements Object.
func (FilterEntry) Kind() string { return "filter-entry" }

// Key implements Object.
func (e FilterEntry) Key() string {
	var b [160]byte
	return string(e.Match.AppendTo(append(append(append(b[:0], "entry/"...), e.Filter...), '/')))
}

// A FilterDefault is what a Filter's program does with packets that no entry
// matches.
type FilterDefault struct {
	Filter string `json:"filter"` // Key of the Filter
	// Queues are those of which they get one, by a hash of the flow:
	// ascending without a gap; none leaves the choice to the kernel.
	Queues []int `json:"queues,omitempty"`
	// Lanes are the priorities, of 1 to 15, by which mqprio knows lanes. A
	// packet of another's that carries one of them loses it: its lowest four
	// bits lose the highest of them, and all where that leaves a lane's.
	Lanes []int `json:"lanes,omitempty"`
}

// Kind implements Object.
func (FilterDefault) Kind() string { return "filter-default" }

// Key implements Object.
func (d FilterDefault) Key() string { return "default/" + d.Filter }

// A CgroupClass gives the sockets of a control group's processes a priority
// that names an HTB class, or is one of mqprio's: TCP when a connection is made or accepted, others
// when they are created, and those that are there already.
type CgroupClass struct {
	// Cgroup is the path below the root of the unified hierarchy.
	Cgroup string `json:"cgroup"`
	// Priority is that of FilterEntry; "" for a class that a kill has left half made.
	Priority string `json:"priority"`
}

// Kind implements Object.
func (CgroupClass) Kind() string { return "cgroup-class" }

// Key implements Object.
func (c CgroupClass) Key() string { return "cgroupclass" + c.Cgroup }

// A Shaper is what a card itself gives one of its transmit queues (the
// net-shaper family, Linux 6.13). Rates are bit/s, 0 for none.
type Shaper struct {
	Dev   string `json:"dev"`
	Queue int    `json:"queue"`
	Min   uint64 `json:"min,omitempty"`
	Max   uint64 `json:"max,omitempty"`
	// Other: somebody has given it more than rates in bit/s: a group, a
	// burst, a priority, a weight, a rate in packets.
	Other bool `json:"other,omitempty"`
}

// Kind implements Object.
func (Shaper) Kind() string { return "shaper" }

// Key implements Object.
func (s Shaper) Key() string { return fmt.Sprintf("shaper/%s/%d", s.Dev, s.Queue) }

// A CgroupPriority gives the packets of a control group's processes a priority
// on one device, by the net_prio controller of cgroup v1: where their sockets
// have none of their own.
type CgroupPriority struct {
	// Cgroup is the path below the root of the hierarchy that carries
	// net_prio.
	Cgroup string `json:"cgroup"`
	Dev    string `json:"dev"`
	// Priority is that of FilterEntry, not 0.
	Priority string `json:"priority"`
}

// Kind implements Object.
func (CgroupPriority) Kind() string { return "cgroup-priority" }

// Key implements Object.
func (p CgroupPriority) Key() string { return "cgrouppriority/" + p.Dev + p.Cgroup }

// An RSSTable is the indirection table of one RSS context. Context 0 is the
// default and always there; others are made by niclane, which numbers them.
// Where the kernel assigns numbers of its own, apply resolves them.
type RSSTable struct {
	Dev     string `json:"dev"`
	Context int    `json:"context"`
	// Queues is the table: the queue of each entry.
	Queues []int `json:"queues"`
	// Configured says that the table was set by a user rather than by the
	// driver's default (netif_is_rxfh_configured); only of context 0.
	Configured bool `json:"configured,omitempty"`
}

// Kind implements Object.
func (RSSTable) Kind() string { return "rss" }

// Key implements Object.
func (t RSSTable) Key() string { return fmt.Sprintf("rss/%s/%d", t.Dev, t.Context) }

// A Rule steers packets that match to an RSS context, or to the single queue
// Queue if Context is 0.
type Rule struct {
	Dev     string `json:"dev"`
	Match   Match  `json:"match"`
	Context int    `json:"context"`
	Queue   int    `json:"queue"`
}

// Kind implements Object.
func (Rule) Kind() string { return "rule" }

// Key implements Object.
func (r Rule) Key() string {
	var b [128]byte
	return string(r.Match.AppendTo(append(append(append(b[:0], "rule/"...), r.Dev...), '/')))
}

// A NAPIConfig is the per-NAPI configuration of a receive queue's NAPI
// (netdev-genl napi-set; Linux 6.13, threaded 6.17). NAPI IDs change, so the
// queue identifies it.
type NAPIConfig struct {
	Dev   string `json:"dev"`
	Queue int    `json:"queue"`
	// Threaded is "off", "on" or "busy" (6.19).
	Threaded          string `json:"threaded"`
	DeferHardIRQs     uint32 `json:"deferHardIRQs"`
	GROFlushTimeout   uint64 `json:"groFlushTimeout"`   // ns
	IRQSuspendTimeout uint64 `json:"irqSuspendTimeout"` // ns
}

// Kind implements Object.
func (NAPIConfig) Kind() string { return "napi" }

// Key implements Object.
func (n NAPIConfig) Key() string { return fmt.Sprintf("napi/%s/%d", n.Dev, n.Queue) }

// A Thread is the scheduling of a NAPI's kernel thread. It exists while the
// NAPI is threaded; its PID is the kernel's.
type Thread struct {
	Dev   string `json:"dev"`
	Queue int    `json:"queue"`
	// Policy is what niclane writes, "other" or "fifo", or what it found: "rr",
	// "batch", "idle", "deadline", "ext" or a number.
	Policy   string `json:"policy"`
	Priority int    `json:"priority,omitempty"` // 1-99 with fifo and rr
	Nice     int    `json:"nice,omitempty"`     // -20 to 19 with other and batch
	SchedAttr
	CPUs []int `json:"cpus"`
}

// Kind implements Object.
func (Thread) Kind() string { return "thread" }

// Key implements Object.
func (t Thread) Key() string { return fmt.Sprintf("thread/%s/%d", t.Dev, t.Queue) }

// Channels are ethtool's channel counts in use.
type Channels struct {
	Dev      string `json:"dev"`
	RX       int    `json:"rx"`
	TX       int    `json:"tx"`
	Combined int    `json:"combined"`
}

// Kind implements Object.
func (Channels) Kind() string { return "channels" }

// Key implements Object.
func (c Channels) Key() string { return "channels/" + c.Dev }

// Coalesce is interrupt moderation of a device (Queue -1) or of one queue
// (ETHTOOL_PERQUEUE).
type Coalesce struct {
	Dev     string `json:"dev"`
	Queue   int    `json:"queue"`
	RxUsecs int    `json:"rxUsecs"`
	TxUsecs int    `json:"txUsecs"`
	RxAdapt bool   `json:"rxAdapt"`
	TxAdapt bool   `json:"txAdapt"`
}

// Kind implements Object.
func (Coalesce) Kind() string { return "coalesce" }

// Key implements Object.
func (c Coalesce) Key() string { return fmt.Sprintf("coalesce/%s/%d", c.Dev, c.Queue) }

// Ring is a device's descriptor ring sizes.
type Ring struct {
	Dev string `json:"dev"`
	RX  int    `json:"rx"`
	TX  int    `json:"tx"`
}

// Kind implements Object.
func (Ring) Kind() string { return "ring" }

// Key implements Object.
func (r Ring) Key() string { return "ring/" + r.Dev }

// A DriverParam is one of devlink's parameters of the card behind a device, as
// it is while the card runs: a number, "true" or "false".
type DriverParam struct {
	Dev   string `json:"dev"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Kind implements Object.
func (DriverParam) Kind() string { return "driver-param" }

// Key implements Object.
func (p DriverParam) Key() string { return "param/" + p.Dev + "/" + p.Name }

// A Feature is one of ethtool's netdev features ("rx-gro").
type Feature struct {
	Dev  string `json:"dev"`
	Name string `json:"name"`
	On   bool   `json:"on"`
}

// Kind implements Object.
func (Feature) Kind() string { return "feature" }

// Key implements Object.
func (f Feature) Key() string { return "feature/" + f.Dev + "/" + f.Name }
