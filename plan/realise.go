// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/device"
)

// Realisations, by the part of a lane that they make. The names are what
// probe and plan print and what `force` takes.
const (
	RealMqprioChannel = "mqprio-channel"
	RealRSSContext    = "rss-context"
	RealSingleQueue   = "single-queue-rules"
	RealCpumap        = "xdp-cpumap"
	RealRPS           = "rps"
	RealRules         = "rules"
	RealClsactBPF     = "clsact-bpf"
	RealSockops       = "sockops"
	RealMqprioSoft    = "mqprio-software"
	RealXPSRxqs       = "xps-rxqs"
	RealMqprioRate    = "mqprio-bw-rlimit"
	RealNetShaper     = "net-shaper"
	RealTxMaxrate     = "tx-maxrate"
	RealHTB           = "htb"
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
	// itself; "" for all others.
	asked string
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

// later is a realisation that the device allows but that this version of
// niclane does not write.
func later(caps ...device.Capability) func(*device.State, *device.Device) (bool, string) {
	return func(st *device.State, d *device.Device) (bool, string) {
		if ok, why := needs("", caps...)(st, d); !ok {
			return false, why
		}
		return false, "this version of niclane cannot set it up"
	}
}

// onEmulated allows a realisation only where the lab's emulated card is, and
// elsewhere says what is missing.
func onEmulated(good string, caps ...device.Capability) func(*device.State, *device.Device) (bool, string) {
	return func(st *device.State, d *device.Device) (bool, string) {
		if ok, why := needs("", caps...)(st, d); !ok {
			return false, why
		}
		if !d.Emulated {
			return false, "this version of niclane writes RSS contexts and rules of the lab's emulated card only"
		}
		return true, good
	}
}

// catalogue returns, best first, how each part can be made (design.md, "What a
// lane becomes").
func catalogue() []struct {
	part       device.Part
	candidates []candidate
} {
	type entry = struct {
		part       device.Part
		candidates []candidate
	}
	return []entry{
		{device.PartQueueSet, []candidate{
			{name: RealMqprioChannel, test: later(device.CapMqprioChannel, device.CapFlowerHwTC)},
			{name: RealRSSContext, test: onEmulated("an indirection table of its own for each lane", device.CapRSSTable, device.CapRSSContexts, device.CapRuleToContext)},
			{name: RealSingleQueue, test: later(device.CapRules)},
			{name: RealCpumap, test: later(device.CapXDPNative)},
			{name: RealRPS, test: later(device.CapRPS)},
		}},
		{device.PartSteering, []candidate{
			{name: RealRules, test: onEmulated("rules of the card, matched before RSS", device.CapRuleToContext)},
			{name: RealCpumap, test: later(device.CapXDPNative)},
		}},
		{device.PartClassifier, []candidate{
			{name: RealClsactBPF, test: needs("by flow, one map lookup per pattern, at the device's clsact egress", device.CapClsact, device.CapClsBPF)},
		}},
		{device.PartMapper, []candidate{
			{name: RealMqprioChannel, test: later(device.CapMqprioChannel)},
			{name: RealMqprioSoft, test: later(device.CapMqprio)},
			{name: RealXPSRxqs, test: needs("symmetric: transmit on the queue that received", device.CapXPS, device.CapXPSRxqs)},
		}},
		{device.PartBandwidth, []candidate{
			{name: RealMqprioRate, test: later(device.CapMqprioChannel)},
			{name: RealNetShaper, test: later(device.CapNetShaper)},
			{name: RealTxMaxrate, test: later(device.CapTxMaxrate)},
			{name: RealHTB, test: needs("guarantee, ceiling and rank in software; one lock for all queues, for links up to about 10 Gbit/s", device.CapHTB)},
		}},
		{device.PartPoller, []candidate{
			{name: RealDriverPollers, test: later(device.CapDevlink)},
			{name: RealIoUring, test: later(device.CapIoUringNAPI, device.CapQueueNAPI)},
			{name: RealBusyThread, test: needs("a kernel thread per NAPI that polls without sleeping", device.CapNAPIBusy, device.CapQueueNAPI), asked: "poller: busy"},
			{name: RealNAPIThread, test: needs("a kernel thread per NAPI, placed and prioritised", device.CapNAPIThread, device.CapQueueNAPI)},
			{name: RealDeviceThread, test: later(device.CapThreadedDev)},
			{name: RealSoftirq, test: func(*device.State, *device.Device) (bool, string) {
				return true, "polled where the interrupt or the sender runs"
			}},
		}},
		{device.PartInterrupts, []candidate{
			{name: RealIRQAffinity, test: needs("affinity of each queue's interrupt", device.CapSetAffinityIRQ)},
		}},
		{device.PartModeration, []candidate{
			{name: RealQueueCoalesce, test: needs("per queue", device.CapQueueCoalesce)},
			{name: RealCoalesce, test: needs("for the whole device: the default lane's queues too", device.CapCoalesce)},
			{name: RealNAPIConfig, test: needs("per NAPI: gro-flush-timeout and defer-hard-irqs", device.CapNAPISet, device.CapQueueNAPI)},
		}},
		{device.PartProcessors, []candidate{
			{name: RealCpuset, test: needs("cpuset of the member's control group", device.CapCgroupSet)},
		}},
	}
}

// Choose returns, for every part of a lane, which realisation the device
// allows and why the better ones are out. force overrides by part; a forced
// realisation that is not possible gives an empty Realisation with the reason.
func Choose(st *device.State, d *device.Device, force map[string]string) []Choice {
	var out []Choice
	for _, e := range catalogue() {
		out = append(out, choosePart(st, d, e.part, e.candidates, force[string(e.part)]))
	}
	return out
}

func choosePart(st *device.State, d *device.Device, part device.Part, cs []candidate, force string) Choice {
	c := Choice{Part: part}
	known := false
	for _, cand := range cs {
		if force != "" && cand.name != force {
			continue
		}
		known = true
		ok, why := cand.test(st, d)
		if ok && cand.asked != "" && force == "" {
			ok, why = false, fmt.Sprintf("possible, but only when asked for (%s): it takes a processor", cand.asked)
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
