// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/niclane/niclane/lane/device"
)

// Realisations, by the part of a lane that they make. The names are what
// probe and plan print and what `force` takes.
const (
	RealMqprioChannel = "mqprio-channel"
	RealRSSContext    = "rss-context"
	RealSingleQueue   = "single-queue-rules"
	RealCpumap        = "xdp-cpumap"
	RealCpumapGeneric = "xdp-cpumap-generic"
	RealRPS           = "rps"
	RealShared        = "shared"
	RealRules         = "rules"
	RealFlower        = "flower-hw-tc"
	RealClsactBPF     = "clsact-bpf"
	RealTCX           = "tcx"
	RealSockops       = "cgroup-sockops"
	RealNetPrio       = "net-prio"
	RealMqprioSoft    = "mqprio-software"
	RealXPSRxqs       = "xps-rxqs"
	RealQueueMapping  = "queue-mapping"
	RealMqprioRate    = "mqprio-bw-rlimit"
	RealNetShaper     = "net-shaper"
	RealTxMaxrate     = "tx-maxrate"
	RealHTBOffload    = "htb-offload"
	RealHTB           = "htb"
	RealMqTBF         = "mq-tbf"
	RealDriverPollers = "driver-pollers"
	RealIoUring       = "io-uring-poller"
	RealBusyThread    = "napi-busy-thread"
	RealNAPIThread    = "napi-thread"
	RealDeviceThread  = "napi-thread-device"
	RealSoftirq       = "softirq"
	RealIRQAffinity   = "irq-affinity"
	RealQueueCoalesce = "queue-coalesce"
	RealCoalesce      = "coalesce"
	RealNAPIConfig    = "napi-config"
	RealCpuset        = "cgroup-cpuset"
)

// A candidate is one way to make a part, with the test that says whether this
// machine allows it. why is the reason either way.
type candidate struct {
	name string
	test func(st *device.State, d *device.Device) (ok bool, why string)
	// asked says how to ask for a realisation that is never chosen by
	// itself, and because why it is not; "" for all others.
	asked, because string
	// gives says what of a lane's bandwidth it can give; nil: not asked of
	// this part.
	gives []string
	// more is what it gives where the device has a capability.
	more map[device.Capability]string
	// maybe are capabilities of which it may not be known whether they are
	// there: then it is made only where it is forced, and apply sees.
	maybe []device.Capability
	// with names, by part, the realisations that it goes with; a part that
	// is not in it may be made in any way.
	with map[device.Part][]string
}

// always allows a realisation that needs nothing.
func always(good string) func(*device.State, *device.Device) (bool, string) {
	return func(*device.State, *device.Device) (bool, string) { return true, good }
}

// clsactTaken says why niclane's filters cannot be at a clsact hook, "ingress"
// or "egress"; "" if they can.
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
			return fmt.Sprintf("the device has a qdisc %s (%s), beside which there can be no clsact", q.Type, q.Handle)
		case block != 0:
			return fmt.Sprintf("filters at clsact %s are in block %d, which other devices can share", hook, block)
		}
	}
	return ""
}

// clsactBPF tests whether the classifier can be the first of the filters. One
// before it that ends classification, as Cilium's do, would keep packets from
// it.
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

// What a realisation can give of a lane's bandwidth.
const (
	givesGuarantee = "guarantee"
	givesCeiling   = "ceiling"
	givesRank      = "rank"
)

// ownTransmit are the mappers with transmit queues that belong to one lane.
func ownTransmit() map[device.Part][]string {
	return map[device.Part][]string{device.PartMapper: {RealMqprioChannel, RealMqprioSoft, RealXPSRxqs,
		RealQueueMapping}}
}

// maxrate tests whether the card caps single queues, and stops doing so.
func maxrate(st *device.State, d *device.Device) (bool, string) {
	if ok, why := needs("", device.CapTxMaxrate)(st, d); !ok {
		return false, why
	}
	if q, ok := device.FindQuirk(device.QuirkMaxrateSticks, d.Driver, st.Kernel.Release); ok {
		return false, fmt.Sprintf("%s keeps a limit that was taken back (%s)", d.Driver, q.Source)
	}
	return true, "a ceiling, kept by the card, its share of it to each queue"
}

func queueSets(names ...string) map[device.Part][]string {
	return map[device.Part][]string{device.PartQueueSet: names}
}

// needs tests capabilities of the kernel (of the device where it has them)
// and gives good as the reason if all are there.
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

// channelCaps are those that mqprio's channel mode needs, and more.
func channelCaps(more ...device.Capability) []device.Capability {
	return append([]device.Capability{device.CapMqprio, device.CapMqprioChannel}, more...)
}

// offloadCaps are those that an HTB of the card's needs.
func offloadCaps() []device.Capability {
	return []device.Capability{device.CapHTB, device.CapHTBOffload}
}

// mqprioChannel tests whether the card's traffic classes can be lanes, with
// flower filters that lead to them.
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
	return true, "a traffic class of the card for each lane, of receive and transmit queues"
}

// singleQueue tests whether rules can lead to single queues that the default
// table leaves out.
func singleQueue(st *device.State, d *device.Device) (bool, string) {
	if ok, why := rules(st, d); !ok {
		return false, why
	}
	if ok, why := needs("", device.CapRSSTable)(st, d); !ok {
		return false, why + ": others' packets cannot be kept out of the lanes' queues"
	}
	return true, "each rule leads to one queue, which the default table leaves out"
}

// rules tests whether the card takes steering rules, or would.
func rules(st *device.State, d *device.Device) (bool, string) {
	if ok, why := needs("", device.CapRules)(st, d); !ok {
		return false, why
	}
	if f, ok := d.Features["rx-ntuple-filter"]; ok && !d.Emulated && f.Fixed && !f.On {
		return false, "rx-ntuple-filter is off [fixed]"
	}
	return true, "rules of the card, matched before RSS"
}

// An entry is how a part can be made, best first.
type entry struct {
	part       device.Part
	candidates []candidate
}

// catalogue returns how each part can be made (design.md, "What a lane becomes").
// It is not to be changed.
var catalogue = sync.OnceValue(func() []entry {
	return []entry{
		{device.PartQueueSet, []candidate{
			{name: RealMqprioChannel, test: mqprioChannel, maybe: channelCaps(device.CapFlowerHwTC)},
			{name: RealRSSContext, test: needs("an indirection table of its own for each lane", device.CapRSSTable,
				device.CapRSSContexts, device.CapRuleToContext)},
			{name: RealSingleQueue, test: singleQueue},
			{name: RealCpumap, test: cpumap("native")},
			{name: RealCpumapGeneric, test: cpumap("generic")},
			{name: RealRPS, test: rps},
			{name: RealShared, test: always("no receive queue or processor of its own: the lane is made on transmit " +
				"alone"),
				asked: "force: queue-set: shared", because: "a lane's packets wait among all others"},
		}},
		{device.PartSteering, []candidate{
			{name: RealFlower, test: needs("flower filters that the card alone looks at (skip_sw hw_tc), before "+
				"rules and RSS", device.CapFlower, device.CapClsact, device.CapFlowerHwTC),
				maybe: []device.Capability{device.CapFlowerHwTC}, with: queueSets(RealMqprioChannel)},
			{name: RealRules, test: rules, with: queueSets(RealRSSContext, RealSingleQueue)},
			{name: RealCpumap, test: cpumap("native"), with: queueSets(RealCpumap)},
			{name: RealCpumapGeneric, test: cpumap("generic"), with: queueSets(RealCpumapGeneric)},
			{name: RealShared, test: always("none: a lane's packets arrive among all others"),
				with: queueSets(RealRPS, RealShared)},
		}},
		{device.PartClassifier, []candidate{
			{name: RealClsactBPF, test: clsactBPF},
			{name: RealTCX, test: tcx},
			{name: RealSockops, test: needs("by control group, when connections are made and sockets created",
				device.CapSockops),
				asked: "force: classifier: cgroup-sockops", because: "it sees whose a socket is, not what its " +
					"packets are"},
			{name: RealNetPrio, test: needs("by control group, where a socket has no priority of its own",
				device.CapNetPrio),
				asked: "force: classifier: net-prio", because: "it sees whose a socket is, not what its packets are"},
		}},
		{device.PartMapper, []candidate{
			{name: RealMqprioChannel, test: needs("by priority, to one of its lane's class's queues, by the card",
				channelCaps()...), maybe: channelCaps(),
				with: queueSets(RealMqprioChannel, RealRSSContext)},
			{name: RealHTBOffload, test: needs("by class, to the transmit queue that the card has for it",
				offloadCaps()...), maybe: offloadCaps(),
				with: queueSets(RealRSSContext, RealSingleQueue)},
			{name: RealXPSRxqs, test: needs("symmetric: transmit on the queue that received", device.CapXPS,
				device.CapXPSRxqs), with: queueSets(RealRSSContext, RealSingleQueue)},
			{name: RealQueueMapping, test: needs("the classifier chooses among the lane's transmit queues",
				device.CapClsBPF),
				with: map[device.Part][]string{device.PartClassifier: {RealClsactBPF, RealTCX}}},
			{name: RealMqprioSoft, test: needs("by priority, to one of its lane's transmit queues", device.CapMqprio)},
			{name: RealShared, test: always("the lanes share the transmit queues")},
		}},
		{device.PartBandwidth, []candidate{
			{name: RealMqprioRate, test: needs("kept by the card, for all queues of a lane together", channelCaps()...),
				maybe: channelCaps(),
				gives: []string{givesCeiling},
				more:  map[device.Capability]string{device.CapClassGuarantee: givesGuarantee},
				with:  map[device.Part][]string{device.PartMapper: {RealMqprioChannel}}},
			{name: RealNetShaper, test: needs("kept by the card, its share of it to each queue", device.CapNetShaper,
				device.CapQueueShaper),
				gives: []string{givesCeiling},
				more:  map[device.Capability]string{device.CapQueueShaperMin: givesGuarantee}, with: ownTransmit()},
			{name: RealTxMaxrate, test: maxrate, gives: []string{givesCeiling}, with: ownTransmit()},
			{name: RealHTBOffload, test: needs("guarantee and ceiling, kept by the card, for all of a lane together",
				offloadCaps()...), maybe: offloadCaps(),
				gives: []string{givesGuarantee, givesCeiling},
				with:  map[device.Part][]string{device.PartMapper: {RealHTBOffload}}},
			{name: RealHTB, test: needs("guarantee, ceiling and rank in software; one lock for all queues, for "+
				"links up to about 10 Gbit/s", device.CapHTB),
				gives: []string{givesGuarantee, givesCeiling, givesRank},
				with:  map[device.Part][]string{device.PartMapper: {RealXPSRxqs, RealQueueMapping, RealShared}}},
			{name: RealMqTBF, test: needs("a ceiling, its share of it to each queue: a cap without borrowing; a "+
				"lock for each queue", device.CapMq, device.CapTBF),
				gives: []string{givesCeiling}, with: ownTransmit(),
				asked: "force: bandwidth: mq-tbf", because: "a single flow gets no more than its queue's share"},
		}},
		{device.PartPoller, []candidate{
			{name: RealDriverPollers, test: needs("the driver polls the queues of a traffic class, several at a time",
				device.CapDevlink, device.CapDriverPollers),
				asked: asksBusy, because: "it takes a processor while packets come",
				with: queueSets(RealMqprioChannel)},
			{name: RealIoUring, test: needs("a thread of niclane's own polls the lane's NAPIs, and sleeps while "+
				"there are no packets",
				device.CapIoUringNAPI, device.CapNAPITrace, device.CapNAPISet, device.CapQueueNAPI), asked: asksBusy,
				because: "it takes a processor while packets come"},
			{name: RealBusyThread, test: needs("a kernel thread per NAPI that polls without sleeping",
				device.CapNAPIBusy, device.CapQueueNAPI), asked: asksBusy,
				because: "it takes a processor, also while there are no packets"},
			{name: RealNAPIThread, test: needs("a kernel thread per NAPI, placed and prioritised", device.CapNAPIThread,
				device.CapQueueNAPI)},
			{name: RealDeviceThread, test: deviceThreads},
			{name: RealSoftirq, test: always("polled where the interrupt or the sender runs")},
		}},
		{device.PartInterrupts, []candidate{
			{name: RealIRQAffinity, test: needs("affinity of each queue's interrupt", device.CapSetAffinityIRQ)},
		}},
		{device.PartModeration, []candidate{
			{name: RealQueueCoalesce, test: needs("per queue", device.CapQueueCoalesce)},
			{name: RealCoalesce, test: needs("for the whole device: the default lane's queues too",
				device.CapCoalesce)},
			{name: RealNAPIConfig, test: needs("per NAPI: gro-flush-timeout and defer-hard-irqs", device.CapNAPISet,
				device.CapQueueNAPI)},
		}},
		{device.PartProcessors, []candidate{
			{name: RealCpuset, test: needs("cpuset of the member's control group", device.CapCgroupSet)},
		}},
	}
})

// Choose returns, for every part of a lane, which realisation the device
// allows and why the better ones are out. force overrides by part; a forced
// realisation that is not possible gives an empty Realisation with the reason.
func Choose(st *device.State, d *device.Device, force map[string]string) []Choice {
	return choose(st, d, force, nil, nil)
}

// choose is Choose for lanes that ask for some of the realisations that have to
// be asked for, and without those that the lanes rule out, with the reasons.
func choose(st *device.State, d *device.Device, force, without map[string]string, asked []string) []Choice {
	var out []Choice
	chosen := map[device.Part]string{}
	for _, e := range catalogue() {
		c := choosePart(st, d, e.part, e.candidates, force[string(e.part)], chosen, without, asked)
		chosen[e.part] = c.Realisation
		out = append(out, c)
	}
	return out
}

// conflict says which part, of those chosen before, a candidate does not go
// with; "" if none.
func (c candidate) conflict(chosen map[device.Part]string) string {
	for part, names := range c.with {
		if chosen[part] != "" && !slices.Contains(names, chosen[part]) {
			return fmt.Sprintf(goesWith+"%s %s, not with %s", part, strings.Join(names, " or "), chosen[part])
		}
	}
	return ""
}

// unknown says what is not known of a candidate of which everything else is
// there; "" if something is missing, or known to be.
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

// goesWith begins the reason why a realisation does not go with those of earlier parts.
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
			c.Realisation, c.Reason = cand.name, why
			if force != "" {
				c.Reason += " (forced)"
			}
			return c
		}
		// A capability named as the realisation need not be said twice.
		c.Rejected = append(c.Rejected, Rejection{cand.name, strings.TrimPrefix(why, cand.name+": ")})
	}
	switch {
	case force != "" && !known:
		c.Reason = fmt.Sprintf("%q does not name a realisation of %s", force, part)
	case force != "":
		c.Reason = fmt.Sprintf("%s was forced, but is not possible here", force)
	default:
		c.Reason = "no realisation is possible here"
	}
	return c
}

// Realisations returns the names known for a part, best first; nil for an
// unknown part.
func Realisations(part device.Part) []string {
	for _, e := range catalogue() {
		if e.part != part {
			continue
		}
		names := make([]string, len(e.candidates))
		for i, c := range e.candidates {
			names[i] = c.name
		}
		return names
	}
	return nil
}
