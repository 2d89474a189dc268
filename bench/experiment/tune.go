// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	y "github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/device"
)

// A Tune is manual tuning of the SUT for one variant. A zero field changes nothing.
type Tune struct {
	// Sysctls are values by name, of sysctls that begin with "net.".
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// With Symmetric, a connection whose packets arrive on receive queue i sends on transmit queue i
	// (xps_rxqs). With NAPIThreads, kernel threads poll the device.
	Symmetric   bool `json:"symmetricQueues,omitempty"`
	NAPIThreads bool `json:"napiThreads,omitempty"`
	// Channels is a number, or "cores" or "processors" of Interrupts, which are at most as many as the
	// device has.
	Channels string `json:"channels,omitempty"`
	// RxRing and TxRing are numbers of descriptors.
	RxRing int `json:"rxRing,omitempty"`
	TxRing int `json:"txRing,omitempty"`
	// RxUsecs and TxUsecs delay interrupts, in µs; RxAdapt and TxAdapt let the driver choose.
	// Nil: unchanged.
	RxUsecs *int  `json:"rxUsecs,omitempty"`
	TxUsecs *int  `json:"txUsecs,omitempty"`
	RxAdapt *bool `json:"rxAdapt,omitempty"`
	TxAdapt *bool `json:"txAdapt,omitempty"`
	// Interrupts are the processors to which the interrupts of queues 0, 1, 2, ... go in turn: "node",
	// "all", or a list such as "0-35,72-107".
	Interrupts string `json:"interrupts,omitempty"`
	// SendByProcessor lets each processor of Interrupts send on the queue whose interrupt it has
	// (xps_cpus), as set_irq_affinity -x does.
	SendByProcessor bool `json:"sendByProcessor,omitempty"`
	// Governor is cpufreq's governor of all processors. Energy is their energy preference.
	Governor string `json:"governor,omitempty"`
	Energy   string `json:"energy,omitempty"`
	// Stop are systemd's services, without ".service", that are stopped and started again.
	Stop []string `json:"stopServices,omitempty"`
}

// machineKeys are the keys of tune that concern the machine and neither the network nor a device.
var machineKeys = []string{"governor", "energy", "stop-services"}

const tuneWant = "a mapping of keys: sysctls, channels, interrupts, governor, ..."

func tuneKeys() []y.Key[Tune] {
	return []y.Key[Tune]{
		y.Of("sysctls", y.Mapping("a mapping from names of sysctls below net to values",
			`^net\.[a-z0-9_]+(\.[a-z0-9_]+){1,4}$`,
			"the name of a sysctl below net", argument()), "as they are",
			"Sysctls: `net.ipv4.tcp_notsent_lowat: 16384`. The lab leaves out those that only a whole host has.",
			func(t *Tune, x map[string]string) { t.Sysctls = x }),
		y.Of("symmetric-queues", y.Boolean(), "off",
			"On: each transmit queue of the device sends what its receive queue received (`xps_rxqs`).",
			func(t *Tune, x bool) { t.Symmetric = x }),
		y.Of("napi-threads", y.Boolean(), "off",
			"On: kernel threads poll the device (`threaded`).",
			func(t *Tune, x bool) { t.NAPIThreads = x }),
		y.Of("channels", channels(), "as they are",
			"Channels of the device (`ethtool -L`). `cores`, `processors`: as many as `interrupts` has, or else the "+
				"device's NUMA node, and at most as many as the device has. Not in the lab.",
			func(t *Tune, x string) { t.Channels = x }),
		y.Of("rxring", y.Integer(1, 1<<20), "as it is",
			"Descriptors of each receive ring (`ethtool -G`).",
			func(t *Tune, x int) { t.RxRing = x }),
		y.Of("txring", y.Integer(1, 1<<20), "as it is",
			"Descriptors of each transmit ring.",
			func(t *Tune, x int) { t.TxRing = x }),
		y.Of("rxusecs", y.Integer(0, 1_000_000), "as it is",
			"Microseconds from a received packet to its interrupt (`ethtool -C rx-usecs`).",
			func(t *Tune, x int) { t.RxUsecs = &x }),
		y.Of("txusecs", y.Integer(0, 1_000_000), "as it is",
			"Microseconds from a sent packet to its completion interrupt.",
			func(t *Tune, x int) { t.TxUsecs = &x }),
		y.Of("rxadapt", y.Boolean(), "as it is",
			"Off: the moderation of receive is fixed (`ethtool -C adaptive-rx`).",
			func(t *Tune, x bool) { t.RxAdapt = &x }),
		y.Of("txadapt", y.Boolean(), "as it is",
			"Off: the moderation of transmit is fixed.",
			func(t *Tune, x bool) { t.TxAdapt = &x }),
		y.Of("interrupts", interrupts(), "as they are",
			"Processors to which the interrupts of queues 0, 1, 2 and so on go in turn, as by `set_irq_affinity`: "+
				"`node` (those of the device's NUMA node), `all`, or a list.",
			func(t *Tune, x string) { t.Interrupts = x }),
		y.Of("xps-cpus", y.Boolean(), "off",
			"On: each processor of `interrupts` sends on the queue whose interrupt it has (`xps_cpus`), as by "+
				"`set_irq_affinity -x`.",
			func(t *Tune, x bool) { t.SendByProcessor = x }),
		y.Of("governor", y.Pattern("the name of a governor", `^[a-z]{1,15}$`, nil), "as it is",
			"cpufreq's governor of all processors. The agent needs `--allow-tune processors`.",
			func(t *Tune, x string) { t.Governor = x }),
		y.Of("energy", y.Word("performance", "balance_performance", "balance_power", "power"), "as it is",
			"Energy preference of all processors, as by `x86_energy_perf_policy`. The agent needs `--allow-tune "+
				"processors`.",
			func(t *Tune, x string) { t.Energy = x }),
		y.Of("stop-services", y.OneOrList(y.Pattern("the name of a service of systemd, without .service",
			`^[a-z0-9][a-zA-Z0-9_@.-]{0,63}$`, nil), 16), "none",
			"Services that are stopped if they run, and started again: `[irqbalance, firewalld]`. The agent's "+
				"`--allow-tune` must name them.",
			func(t *Tune, x []string) { t.Stop = x }),
	}
}

func tune() y.Kind[Tune] {
	return y.Nested("tune", tuneWant, tuneKeys, func() Tune { return Tune{} })
}

// channels returns a Kind (type of value): a number of channels, or a word.
func channels() y.Kind[string] {
	return either(y.Mapped(y.Integer(1, maxProcessors), strconv.Itoa), "cores", "processors")
}

// interrupts returns a Kind (type of value): processors, or a word.
func interrupts() y.Kind[string] {
	return either(y.Mapped(cpus(), device.FormatCPUList), "node", "all")
}

// either returns a Kind (type of value): one of the words, or another kind of value.
func either(other y.Kind[string], words ...string) y.Kind[string] {
	k := y.Kind[string]{Want: y.OneOf(words) + ", or " + other.Want,
		Schema: y.Schema{"anyOf": []any{y.Schema{"enum": words}, other.Schema}}}
	k.Read = func(v y.Value) (string, bool) {
		text, _, scalar := v.Scalar()
		if scalar && slices.Contains(words, text) {
			return text, true
		}
		if scalar && strings.IndexAny(text, "0123456789") != 0 {
			v.Wrong(k.Want)
			return "", false
		}
		return other.Read(v)
	}
	return k
}

// checkTune refuses tuning that contradicts itself or the variant's lanes.
func (r *reader) checkTune(path string, v *Variant) {
	t := v.Tune
	if t == nil || !r.fine(path) {
		return
	}
	if reflect.DeepEqual(*t, Tune{}) {
		r.Failf(path, "found no keys, want %s", tuneWant)
	}
	switch {
	case t.SendByProcessor && t.Interrupts == "":
		r.Failf(path+".xps-cpus", "found on without interrupts, want the processors of the interrupts too")
	case t.SendByProcessor && t.Symmetric:
		r.Failf(path+".xps-cpus", "found on beside symmetric-queues, want one of the two: the kernel would use "+
			"symmetric-queues")
	}
	if v.noLanes() {
		return
	}
	for _, k := range tuneKeys() {
		if at := path + "." + k.Name; r.Given(at) && k.Name != "sysctls" && !slices.Contains(machineKeys, k.Name) {
			r.Failf(at, "found beside lanes, want it without lanes, or in the lanes file: lanes may set the same "+
				"setting")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Sysctls)) {
		if ofLanes(name) {
			r.Failf(y.Join(path+".sysctls", name), "found beside lanes, want it in the globals of the lanes file")
		}
	}
}

// ofLanes reports whether lanes set a sysctl: those of busy polling and of a device.
func ofLanes(sysctl string) bool {
	return sysctl == "net.core.busy_poll" || sysctl == "net.core.busy_read" ||
		strings.HasPrefix(sysctl, "net.ipv4.conf.")
}
