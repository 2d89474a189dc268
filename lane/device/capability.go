// SPDX-License-Identifier: Apache-2.0

package device

// An Answer is the result of a probe. It is "no" only if the kernel said so; if a probe could not
// tell, it is "unknown".
type Answer string

// The answers of a probe.
const (
	Yes     Answer = "yes"
	No      Answer = "no"      // not supported, final for this kernel and device
	Unknown Answer = "unknown" // could not tell: no permission, busy, unexpected errno
)

// A Capability names something that a kernel or device may be able to do.
type Capability string

// Capabilities of a kernel.
const (
	CapMqprio      Capability = "mqprio"      // sch_mqprio is there
	CapFQCodel     Capability = "fq-codel"    // sch_fq_codel
	CapFQ          Capability = "fq"          // sch_fq
	CapCake        Capability = "cake"        // sch_cake
	CapMq          Capability = "mq"          // sch_mq
	CapTBF         Capability = "tbf"         // sch_tbf
	CapHTB         Capability = "htb"         // sch_htb
	CapClsact      Capability = "clsact"      // sch_ingress with clsact
	CapClsBPF      Capability = "cls-bpf"     // cls_bpf, and niclane's program loads
	CapFlower      Capability = "flower"      // cls_flower
	CapSkbedit     Capability = "skbedit"     // act_skbedit
	CapTCX         Capability = "tcx"         // 6.6
	CapCPUMap      Capability = "cpumap"      // XDP programs and cpumaps
	CapNetShaper   Capability = "net-shaper"  // 6.13, family present
	CapDevlink     Capability = "devlink"     // family present
	CapNetdevGenl  Capability = "netdev-genl" // queue-get, napi-get: 6.8
	CapNAPISet     Capability = "napi-set"    // 6.13
	CapNAPIThread  Capability = "napi-thread" // threaded per NAPI: 6.17
	CapNAPIBusy    Capability = "napi-busy"   // threaded busy poll: 6.19
	CapCgroupSet   Capability = "cgroup-cpuset"
	CapSockops     Capability = "cgroup-sockops" // cgroup v2, and programs of these types
	CapNetPrio     Capability = "net-prio"       // cgroup v1
	CapIoUringNAPI Capability = "io-uring-napi"  // static tracking: 6.13
	CapNAPITrace   Capability = "napi-trace"     // programs at the tracepoint napi_poll
)

// Capabilities of a device.
const (
	CapRSSTable       Capability = "rss-table"
	CapRSSContexts    Capability = "rss-contexts"
	CapRules          Capability = "rules"           // steering rules to single queues
	CapRuleToContext  Capability = "rule-to-context" // steering rules to RSS contexts
	CapMqprioChannel  Capability = "mqprio-channel"  // hw 1 mode channel
	CapFlowerHwTC     Capability = "flower-hw-tc"
	CapClassGuarantee Capability = "class-guarantee" // a minimum rate of mqprio's classes
	CapDriverPollers  Capability = "driver-pollers"  // devlink: tcN_qps_per_poller
	CapHTBOffload     Capability = "htb-offload"     // htb classes in the card
	CapXPS            Capability = "xps"
	CapXPSRxqs        Capability = "xps-rxqs"
	CapQueueShaper    Capability = "queue-shaper"     // net-shaper: a maximum rate of each transmit queue, in bit/s
	CapQueueShaperMin Capability = "queue-shaper-min" // and a minimum rate
	CapRPS            Capability = "rps"
	CapThreadedDev    Capability = "threaded-device" // sysfs threaded: 5.12
	CapNAPIs          Capability = "napis"           // the device has NAPIs now
	CapQueueNAPI      Capability = "queue-napi"      // which NAPI polls which queue is known
	CapCoalesce       Capability = "coalesce"
	CapQueueCoalesce  Capability = "queue-coalesce"
	CapTxMaxrate      Capability = "tx-maxrate"
	CapChannelsSet    Capability = "channels-set"
	CapXDPNative      Capability = "xdp-native"
	CapXDPFrags       Capability = "xdp-frags"    // native XDP of packets in several buffers: any MTU
	CapDCB            Capability = "dcb"          // dcbnl: what the device trusts, and its APP table
	CapSetAffinityIRQ Capability = "irq-affinity" // the device has IRQs of its own
)

// A Finding is a probe's answer and the evidence for it.
type Finding struct {
	Answer Answer `json:"answer"`
	// Why is the kernel's message, or a text about what the probe has looked at.
	Why string `json:"why,omitempty"`
	// Transient says that the probe failed for lack of memory or a similar
	// reason. The next probe may have an answer.
	Transient bool `json:"-"`
}

// Capabilities are findings by capability. A capability that is not in the map is Unknown.
type Capabilities map[Capability]Finding

// Has reports whether the answer is Yes.
func (c Capabilities) Has(x Capability) bool { return c[x].Answer == Yes }

// Find returns the finding for x, Unknown if it was not probed.
func (c Capabilities) Find(x Capability) Finding {
	if f, ok := c[x]; ok {
		return f
	}
	return Finding{Answer: Unknown, Why: "not probed"}
}

// A Part is one part of a lane. Planning chooses a mechanism for each part.
type Part string

// The parts of a lane.
const (
	PartQueueSet   Part = "queue-set"
	PartSteering   Part = "steering"
	PartClassifier Part = "classifier"
	PartMapper     Part = "mapper"
	PartBandwidth  Part = "bandwidth"
	PartPoller     Part = "poller"
	PartInterrupts Part = "interrupts"
	PartModeration Part = "moderation"
	PartProcessors Part = "processors"
)
