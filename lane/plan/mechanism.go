// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/niclane/niclane/lane/device"
)

// Names of mechanisms, grouped by the part of a lane that they make. probe and plan print them,
// and `force` accepts them.
const (
	ByMqprioChannel = "mqprio-channel"
	ByRSSContext    = "rss-context"
	BySingleQueue   = "single-queue-rules"
	ByCpumap        = "xdp-cpumap"
	ByCpumapGeneric = "xdp-cpumap-generic"
	ByRPS           = "rps"
	ByShared        = "shared"
	ByRules         = "rules"
	ByFlower        = "flower-hw-tc"
	ByClsactBPF     = "clsact-bpf"
	ByTCX           = "tcx"
	BySockops       = "cgroup-sockops"
	ByNetPrio       = "net-prio"
	ByMqprioSoft    = "mqprio-software"
	ByXPSRxqs       = "xps-rxqs"
	ByQueueMapping  = "queue-mapping"
	ByMqprioRate    = "mqprio-bw-rlimit"
	ByNetShaper     = "net-shaper"
	ByTxMaxrate     = "tx-maxrate"
	ByHTBOffload    = "htb-offload"
	ByEDT           = "edt"
	ByHTB           = "htb"
	ByMqTBF         = "mq-tbf"
	ByDriverPollers = "driver-pollers"
	ByIoUring       = "io-uring-poller"
	ByBusyThread    = "napi-busy-thread"
	ByNAPIThread    = "napi-thread"
	ByDeviceThread  = "napi-thread-device"
	BySoftirq       = "softirq"
	ByIRQAffinity   = "irq-affinity"
	ByQueueCoalesce = "queue-coalesce"
	ByCoalesce      = "coalesce"
	ByNAPIConfig    = "napi-config"
	ByCpuset        = "cgroup-cpuset"
)

// A candidate is a mechanism that could make a part. test says whether this machine allows it,
// and the reason for that answer.
type candidate struct {
	name string
	test func(st *device.State, d *device.Device) (ok bool, why string)
	// asked is set for a mechanism that is never chosen automatically: it says how to ask for the
	// mechanism. because says why it is not chosen automatically.
	asked, because string
	// gives lists the kinds of bandwidth that the mechanism can give: guarantee, ceiling, rank. It
	// is nil for parts other than bandwidth.
	gives []string
	// more maps a capability to a further kind of bandwidth, which the mechanism gives if the device
	// has the capability.
	more map[device.Capability]string
	// maybe are capabilities that may be unknown. If one is unknown, the mechanism is used only if
	// the file forces it; apply then shows whether it works.
	maybe []device.Capability
	// with lists, for other parts, the mechanisms that this one is compatible with. It is compatible
	// with every mechanism of a part that is not in the map.
	with map[device.Part][]string
}

// always returns a test function that allows a mechanism on every machine. good is the reason
// that it gives.
func always(good string) func(*device.State, *device.Device) (bool, string) {
	return func(*device.State, *device.Device) (bool, string) { return true, good }
}

// clsactTaken returns the reason why niclane cannot attach filters to a clsact hook ("ingress" or
// "egress"), "" if it can.
func clsactTaken(d *device.Device, hook string) string {
	for _, q := range d.Qdiscs {
		if q.Parent != "clsact" {
			continue
		}
		block := q.IngressBlock
		if hook == "egress" {
			block = q.EgressBlock
		}
		switch {
		case q.Type != "clsact":
			return fmt.Sprintf("the device has a qdisc %s (%s), and clsact cannot exist beside it", q.Type, q.Handle)
		case block != 0:
			return fmt.Sprintf("filters at clsact %s are in block %d, which other devices can share", hook, block)
		}
	}
	return ""
}

// clsactBPF tests whether niclane's classifier can be the first filter. If an earlier filter ends
// classification, as Cilium's do, the classifier would not see the packet.
func clsactBPF(st *device.State, d *device.Device) (bool, string) {
	if ok, why := needs("", device.CapClsact, device.CapClsBPF)(st, d); !ok {
		return false, why
	}
	if why := clsactTaken(d, "egress"); why != "" {
		return false, why
	}
	if why := headless(d); why != "" {
		return false, why
	}
	good := "by flow, one map lookup per pattern, at the device's clsact egress"
	for _, p := range d.Programs {
		if p.Attach == device.AttachTCXEgress {
			return false, fmt.Sprintf("%s is at TCX egress, which comes before clsact",
				nameOr(p.Name, "a program without a name"))
		}
	}
	for _, x := range d.Filters {
		if x.Parent == "egress" && x.Pref <= 1 && x.Name != EgressProgram {
			return false, fmt.Sprintf("a %s filter (%s) has the first preference at clsact egress and can end "+
				"classification", x.Type, nameOr(x.Name, "no name"))
		}
	}
	return true, good
}

// The kinds of bandwidth that a mechanism can give.
const (
	givesGuarantee = "guarantee"
	givesCeiling   = "ceiling"
	givesRank      = "rank"
)

// ownTransmit returns the mappers that give each lane its own transmit queues.
func ownTransmit() map[device.Part][]string {
	return map[device.Part][]string{device.PartMapper: {ByMqprioChannel, ByMqprioSoft, ByXPSRxqs,
		ByQueueMapping}}
}

// maxrate tests whether the card can limit single queues and remove such a limit again.
func maxrate(st *device.State, d *device.Device) (bool, string) {
	if ok, why := needs("", device.CapTxMaxrate)(st, d); !ok {
		return false, why
	}
	if q, ok := device.FindQuirk(device.QuirkMaxrateSticks, d.Driver, st.Kernel.Release); ok {
		return false, fmt.Sprintf("%s keeps a limit after its removal (%s)", d.Driver, q.Source)
	}
	return true, "a ceiling, kept by the card; each queue gets its share of it"
}

func queueSets(names ...string) map[device.Part][]string {
	return map[device.Part][]string{device.PartQueueSet: names}
}

// needs returns a function that tests capabilities. For each, it uses the device's finding,
// otherwise the kernel's. If all answers are yes, the reason is good.
func needs(good string, caps ...device.Capability) func(*device.State, *device.Device) (bool, string) {
	return func(st *device.State, d *device.Device) (bool, string) {
		for _, c := range caps {
			f, ok := d.Capabilities[c]
			if !ok {
				f = st.Capabilities.Find(c)
			}
			if f.Answer != device.Yes {
				return false, missing(c, f)
			}
		}
		return true, good
	}
}

func missing(c device.Capability, f device.Finding) string {
	word := "not supported"
	if f.Answer == device.Unknown {
		word = "could not tell"
	}
	if f.Why == "" {
		return fmt.Sprintf("%s: %s", c, word)
	}
	return fmt.Sprintf("%s: %s (%s)", c, word, f.Why)
}

// channelCaps returns the capabilities that mqprio's channel mode needs, followed by more.
func channelCaps(more ...device.Capability) []device.Capability {
	return append([]device.Capability{device.CapMqprio, device.CapMqprioChannel}, more...)
}

// offloadCaps returns the capabilities that an offloaded HTB needs.
func offloadCaps() []device.Capability {
	return []device.Capability{device.CapHTB, device.CapHTBOffload}
}

// mqprioChannel tests whether lanes can be traffic classes of the card, with flower filters that
// steer to them.
func mqprioChannel(st *device.State, d *device.Device) (bool, string) {
	if ok, why := needs("", channelCaps(device.CapFlower, device.CapClsact, device.CapFlowerHwTC)...)(st, d); !ok {
		return false, why
	}
	if why := clsactTaken(d, "ingress"); why != "" {
		return false, why
	}
	limits, _ := device.FindClassLimits(d.Driver)
	if n := len(d.Rules) + len(d.OtherRules); limits.FiltersOrRules && n > 0 {
		return false, fmt.Sprintf("%s takes flower filters or ntuple rules, not both, and has %d rules (%s)", d.Driver,
			n, limits.Source)
	}
	return true, "a traffic class of the card for each lane, with receive and transmit queues"
}

// singleQueue tests whether rules can lead to single queues that the default RSS table leaves
// out.
func singleQueue(st *device.State, d *device.Device) (bool, string) {
	if ok, why := rules(st, d); !ok {
		return false, why
	}
	if ok, why := needs("", device.CapRSSTable)(st, d); !ok {
		return false, why + ": others' packets cannot be kept out of the lanes' queues"
	}
	return true, "each rule leads to one queue, which the default table leaves out"
}

// rules tests whether the card accepts steering rules, if necessary after rx-ntuple-filter is
// turned on.
func rules(st *device.State, d *device.Device) (bool, string) {
	if ok, why := needs("", device.CapRules)(st, d); !ok {
		return false, why
	}
	if f, ok := d.Features["rx-ntuple-filter"]; ok && !d.Emulated && f.Fixed && !f.On {
		return false, "rx-ntuple-filter is off [fixed]"
	}
	return true, "rules of the card, matched before RSS"
}

// An entry lists the mechanisms for one part, best first.
type entry struct {
	part       device.Part
	candidates []candidate
}

// catalogue returns the mechanisms for each part (design.md, "What a lane
// becomes"). Callers must not change it.
var catalogue = sync.OnceValue(func() []entry {
	return []entry{
		{device.PartQueueSet, []candidate{
			{name: ByMqprioChannel, test: mqprioChannel, maybe: channelCaps(device.CapFlowerHwTC)},
			{name: ByRSSContext, test: needs("an indirection table of its own for each lane", device.CapRSSTable,
				device.CapRSSContexts, device.CapRuleToContext)},
			{name: BySingleQueue, test: singleQueue},
			{name: ByCpumap, test: cpumap("native")},
			{name: ByCpumapGeneric, test: cpumap("generic")},
			{name: ByRPS, test: rps},
			{name: ByShared, test: always("no receive queue or processor of its own: the lane is made on transmit " +
				"alone"),
				asked: "force: queue-set: shared", because: "a lane's packets wait among all others"},
		}},
		{device.PartSteering, []candidate{
			{name: ByFlower, test: needs("flower filters that the card alone looks at (skip_sw hw_tc), before "+
				"rules and RSS", device.CapFlower, device.CapClsact, device.CapFlowerHwTC),
				maybe: []device.Capability{device.CapFlowerHwTC}, with: queueSets(ByMqprioChannel)},
			{name: ByRules, test: rules, with: queueSets(ByRSSContext, BySingleQueue)},
			{name: ByCpumap, test: cpumap("native"), with: queueSets(ByCpumap)},
			{name: ByCpumapGeneric, test: cpumap("generic"), with: queueSets(ByCpumapGeneric)},
			{name: ByShared, test: always("none: a lane's packets arrive among all others"),
				with: queueSets(ByRPS, ByShared)},
		}},
		{device.PartClassifier, []candidate{
			{name: ByClsactBPF, test: clsactBPF},
			{name: ByTCX, test: tcx},
			{name: BySockops, test: needs("by control group, when connections are made and sockets created",
				device.CapSockops),
				asked: "force: classifier: cgroup-sockops", because: "it sees the group of a socket, not the " +
					"fields of its packets"},
			{name: ByNetPrio, test: needs("by control group, where a socket has no priority of its own",
				device.CapNetPrio),
				asked: "force: classifier: net-prio", because: "it sees the group of a socket, not the fields " +
					"of its packets"},
		}},
		{device.PartMapper, []candidate{
			{name: ByMqprioChannel, test: needs("by priority: the card chooses a queue of the lane's class",
				channelCaps()...), maybe: channelCaps(),
				with: queueSets(ByMqprioChannel, ByRSSContext)},
			{name: ByHTBOffload, test: needs("by class: the card has a transmit queue for each",
				offloadCaps()...), maybe: offloadCaps(),
				with: queueSets(ByRSSContext, BySingleQueue)},
			{name: ByXPSRxqs, test: needs("symmetric: transmit on the queue that received", device.CapXPS,
				device.CapXPSRxqs), with: queueSets(ByRSSContext, BySingleQueue)},
			{name: ByQueueMapping, test: needs("the classifier chooses among the lane's transmit queues",
				device.CapClsBPF),
				with: map[device.Part][]string{device.PartClassifier: {ByClsactBPF, ByTCX}}},
			{name: ByMqprioSoft, test: needs("by priority, to one of its lane's transmit queues", device.CapMqprio)},
			{name: ByShared, test: always("the lanes share the transmit queues")},
		}},
		{device.PartBandwidth, []candidate{
			{name: ByMqprioRate, test: needs("kept by the card, for all queues of a lane together", channelCaps()...),
				maybe: channelCaps(),
				gives: []string{givesCeiling},
				more:  map[device.Capability]string{device.CapClassGuarantee: givesGuarantee},
				with:  map[device.Part][]string{device.PartMapper: {ByMqprioChannel}}},
			{name: ByNetShaper, test: needs("kept by the card; each queue gets its share of it", device.CapNetShaper,
				device.CapQueueShaper),
				gives: []string{givesCeiling},
				more:  map[device.Capability]string{device.CapQueueShaperMin: givesGuarantee}, with: ownTransmit()},
			{name: ByTxMaxrate, test: maxrate, gives: []string{givesCeiling}, with: ownTransmit()},
			{name: ByHTBOffload, test: needs("guarantee and ceiling, kept by the card, for all of a lane together",
				offloadCaps()...), maybe: offloadCaps(),
				gives: []string{givesGuarantee, givesCeiling},
				with:  map[device.Part][]string{device.PartMapper: {ByHTBOffload}}},
			{name: ByEDT, test: needs("guarantee, ceiling and rank by departure times; no queue and no lock for "+
				"all queues", device.CapFQ, device.CapMq),
				gives: []string{givesGuarantee, givesCeiling, givesRank},
				with: map[device.Part][]string{device.PartMapper: {ByXPSRxqs, ByQueueMapping},
					device.PartClassifier: {ByClsactBPF, ByTCX}}},
			{name: ByHTB, test: needs("guarantee, ceiling and rank in software; one lock for all queues, for "+
				"links up to about 10 Gbit/s", device.CapHTB),
				gives: []string{givesGuarantee, givesCeiling, givesRank},
				with:  map[device.Part][]string{device.PartMapper: {ByXPSRxqs, ByQueueMapping, ByShared}}},
			{name: ByMqTBF, test: needs("a ceiling; each queue gets its share of it, cannot borrow, and has its "+
				"own lock", device.CapMq, device.CapTBF),
				gives: []string{givesCeiling}, with: ownTransmit(),
				asked: "force: bandwidth: mq-tbf", because: "a single flow gets no more than its queue's share"},
		}},
		{device.PartPoller, []candidate{
			{name: ByDriverPollers, test: needs("the driver polls the queues of a traffic class, several at a time",
				device.CapDevlink, device.CapDriverPollers),
				asked: asksBusy, because: "it takes a processor while packets come",
				with: queueSets(ByMqprioChannel)},
			{name: ByIoUring, test: needs("a thread of niclane's own polls the lane's NAPIs, and sleeps while "+
				"there are no packets",
				device.CapIoUringNAPI, device.CapNAPITrace, device.CapNAPISet, device.CapQueueNAPI), asked: asksBusy,
				because: "it takes a processor while packets come"},
			{name: ByBusyThread, test: needs("a kernel thread per NAPI that polls without sleeping",
				device.CapNAPIBusy, device.CapQueueNAPI), asked: asksBusy,
				because: "it takes a processor, also while there are no packets"},
			{name: ByNAPIThread, test: needs("a kernel thread per NAPI, placed and prioritised", device.CapNAPIThread,
				device.CapQueueNAPI), asked: asksThread, because: "it takes turns with the application on a shared " +
				"processor"},
			{name: ByDeviceThread, test: deviceThreads, asked: "poller: thread", because: "it makes threads for the " +
				"default lane's queues too"},
			{name: BySoftirq, test: always("polled where the interrupt or the sender runs")},
		}},
		{device.PartInterrupts, []candidate{
			{name: ByIRQAffinity, test: needs("affinity of each queue's interrupt", device.CapSetAffinityIRQ)},
		}},
		{device.PartModeration, []candidate{
			{name: ByQueueCoalesce, test: needs("per queue", device.CapQueueCoalesce)},
			{name: ByCoalesce, test: needs("for the whole device: the default lane's queues too",
				device.CapCoalesce)},
			{name: ByNAPIConfig, test: needs("per NAPI: gro-flush-timeout and defer-hard-irqs", device.CapNAPISet,
				device.CapQueueNAPI)},
		}},
		{device.PartProcessors, []candidate{
			{name: ByCpuset, test: needs("cpuset of the member's control group", device.CapCgroupSet)},
		}},
	}
})

// Choose returns, for every part of a lane, the best mechanism that the device allows, and why
// better ones are rejected. force maps parts to mechanisms. If a forced mechanism is not
// possible, Mechanism is empty and Reason says why.
func Choose(st *device.State, d *device.Device, force map[string]string) []Choice {
	return choose(st, d, force, nil, nil)
}

// choose is like Choose, with two more inputs. asked are mechanisms that the lanes explicitly ask
// for. without are mechanisms that the lanes rule out, with the reasons.
func choose(st *device.State, d *device.Device, force, without map[string]string, asked []string) []Choice {
	var out []Choice
	chosen := map[device.Part]string{}
	for _, e := range catalogue() {
		c := choosePart(st, d, e.part, e.candidates, force[string(e.part)], chosen, without, asked)
		chosen[e.part] = c.Mechanism
		out = append(out, c)
	}
	return out
}

// conflict returns a text if the candidate is not compatible with the mechanism that was chosen
// for an earlier part; "" if it is compatible with all.
func (c candidate) conflict(chosen map[device.Part]string) string {
	for part, names := range c.with {
		if chosen[part] != "" && !slices.Contains(names, chosen[part]) {
			return fmt.Sprintf(goesWith+"%s %s, not with %s", part, strings.Join(names, " or "), chosen[part])
		}
	}
	return ""
}

// unknown returns the capability of a candidate that is unknown, if no other capability is
// missing. It returns "" if one is missing, or if all are known.
func (c candidate) unknown(st *device.State, d *device.Device) (what string) {
	for _, capability := range c.maybe {
		f, ok := d.Capabilities[capability]
		if !ok {
			f = st.Capabilities.Find(capability)
		}
		switch f.Answer {
		case device.No:
			return ""
		case device.Unknown:
			what = missing(capability, f)
		}
	}
	return what
}

// goesWith is the start of a reason for a rejection: the mechanism needs another mechanism than
// the one that an earlier part has.
const goesWith = "goes with "

func choosePart(st *device.State, d *device.Device, part device.Part, cs []candidate, force string,
	chosen map[device.Part]string, without map[string]string, asked []string) Choice {
	c := Choice{Part: part}
	known := false
	for _, cand := range cs {
		if force != "" && cand.name != force {
			continue
		}
		known = true
		ok, why := cand.test(st, d)
		if w := cand.unknown(st, d); !ok && w != "" && force != "" {
			ok, why = true, "not known to be possible: "+w
		}
		if w := without[cand.name]; ok && w != "" && force == "" {
			ok, why = false, w
		}
		if conflict := cand.conflict(chosen); ok && conflict != "" {
			ok, why = false, conflict
		}
		if ok && cand.asked != "" && force == "" && !slices.Contains(asked, cand.name) {
			ok, why = false, fmt.Sprintf("possible, but only when asked for (%s): %s", cand.asked, cand.because)
		}
		if ok {
			c.Mechanism, c.Reason = cand.name, why
			if force != "" {
				c.Reason += " (forced)"
			}
			return c
		}
		// Do not print a capability's name twice if it is also the mechanism's name.
		c.Rejected = append(c.Rejected, Rejection{cand.name, strings.TrimPrefix(why, cand.name+": ")})
	}
	switch {
	case force != "" && !known:
		c.Reason = fmt.Sprintf("%q does not name a mechanism of %s", force, part)
	case force != "":
		c.Reason = fmt.Sprintf("%s was forced, but is not possible here", force)
	default:
		c.Reason = "no mechanism is possible here"
	}
	return c
}

// candidates returns a part's mechanisms, best first; nil for an unknown part.
func candidates(part device.Part) []candidate {
	for _, e := range catalogue() {
		if e.part == part {
			return e.candidates
		}
	}
	return nil
}

// Mechanisms returns the names of a part's mechanisms, best first; nil for an
// unknown part.
func Mechanisms(part device.Part) []string {
	var names []string
	for _, c := range candidates(part) {
		names = append(names, c.name)
	}
	return names
}
