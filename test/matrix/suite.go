// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A suite is a named set of tests that runs in a guest.
type suite struct {
	// name is the directory of a package, or the name of a part of this command.
	name string
	// builtin says that the suite is a function of this command, not the tests of a package.
	builtin bool
	// run and skip are values for go test's -run and -skip; "" runs all tests and skips none.
	run, skip string
	// bench is the value for go test's -bench; "": no benchmarks. per is what its numbers are for; "": its
	// output is the result.
	bench, per string
	// since is the first kernel that has the feature under test; "": all kernels have it.
	since string
	// dir is the directory of the suite's package; "": the same as name.
	dir string
	// module is the directory of the package's Go module; "": niclane's main module.
	module string
	// ends says that the suite runs only on the oldest and the newest kernel, unless the user names
	// it. Other suites, of the clients and of the card, cover the kernels between.
	ends bool
	// nodes says that the guest must have two NUMA nodes.
	nodes bool
	// within is the time limit in the guest. It is many times the time that the suite needs on an idle
	// machine.
	within time.Duration
}

// suites are in the order in which they run. The clients of the kernel come first, so that the
// first failure shows the cause of later ones. Some tests are left out, because they need no kernel
// or repeat other tests, and emulation is slow.
var suites = []suite{
	{name: "internal/kernel/nlsock", within: 5 * time.Minute},
	{name: "internal/kernel/hostfs", within: 5 * time.Minute},
	{name: "internal/kernel/cgroup", within: 5 * time.Minute},
	{name: "internal/kernel/sched", within: 5 * time.Minute},
	{name: "internal/kernel/ethtool", within: 5 * time.Minute},
	{name: "internal/kernel/netdev", within: 5 * time.Minute},
	{name: "internal/kernel/tc", within: 5 * time.Minute},
	{name: "internal/kernel/bpf", skip: "^Test(LaneAndCPU|VLANBesideTheData|LostTag|RandomPackets)$",
		within: 10 * time.Minute},
	{name: "lab/emucard", skip: "^Test(Refusals|Toeplitz)$", within: 5 * time.Minute},
	{name: "internal/kernel/sockclass",
		run:    "^Test(ForeignPrograms|OtherNamespace|ObjectReadsBack|NoSuchGroup|Sockets|OnTheWire)$",
		within: 5 * time.Minute},
	{name: "internal/kernel/netprio", within: 5 * time.Minute},
	{name: "internal/traffic/count", within: 5 * time.Minute},
	{name: "internal/traffic/napi", within: 5 * time.Minute},
	{name: "internal/traffic/wait", within: 5 * time.Minute},
	{name: "app/reuseport", within: 5 * time.Minute},
	{name: "app/sockiter", within: 5 * time.Minute},
	{name: "app", run: "^TestVhost$", within: 5 * time.Minute},
	{name: "poller", since: "6.13", within: 8 * time.Minute}, // needs static NAPI tracking
	{name: probeSuite, builtin: true, within: 5 * time.Minute},
	{name: laneSuite, builtin: true, within: 5 * time.Minute},
	{name: freeSuite, builtin: true, within: 5 * time.Minute},
	{name: trafficSuite, builtin: true, within: 5 * time.Minute},
	// From here on, the lab uses RPS, which the kernel keeps on until it ends (net-sysfs.c: rx_queue_release). With
	// RPS, it warns of packets that virtio_net takes from queues which the suites of lanes have just removed.
	{name: "lane/observe", within: 5 * time.Minute},
	{name: "live/services", within: 5 * time.Minute},
	// TestAgrees compares times within 5 %, which a busy host changes in an emulated guest. The left out faults
	// keep an emulated processor busy, and then the other one waits too.
	{name: "live/waits", run: "^Test(Loss|Drops|Restart|SlowApplication|SlowQdisc|BusyProcessor)$",
		within: 20 * time.Minute},
	{name: "lab",
		run: "^Test(HopNames|Command|Status|LeavesHostAsFound|Spread|QueueIsNAPI|RuleMovesConnection|" +
			"CountersExact|TransmitQueue|Switch)$", within: 8 * time.Minute},
	{name: "lane/apply",
		run:    "^Test(SystemGenerations|SystemUndoOfOneGeneration|SystemReadMany|GuardOutlivesTheSession)$",
		within: 8 * time.Minute},
	{name: "test/coexist", within: 8 * time.Minute},
	{name: "test/members", ends: true, within: 8 * time.Minute},
	{name: "test/fair", within: 5 * time.Minute}, // needs fq_codel, which is a module in these kernels
	// Three kinds of tests are left out here: slow tests, tests that the suites of lanes cover, and
	// tests that need a fast processor (Moderation counts interrupts per frame). go run
	// ./test/simcard/run runs all tests.
	{name: cardSuite,
		skip: "^Test(Moderation|RuleQuirks|HTB|Fails|Link|MqprioRates|MqprioResizes|MqprioRefusals|MaxRate|" +
			"ByteQueueLimits|ModeChannelIsDCB|Forgets)$", within: 10 * time.Minute},
	// This takes 13 minutes if two guests have a processor each.
	{name: lanesSuite, skip: "^Test(" + ofTheCard + ")$|^TestFaults$/^(contexts|htb)$", ends: true,
		within: 30 * time.Minute},
	{name: lanesSuite + ", of the card", dir: lanesSuite, run: "^Test(" + ofTheCard + ")$", since: "6.17",
		within: 25 * time.Minute},
	{name: "k8s/networks/reach", module: "k8s", within: 5 * time.Minute}, // kinds of tunnels, which are modules
	{name: podsSuite, module: "k8s", ends: true, within: 10 * time.Minute},
	// This needs NAPI threads and mqprio, which is a module.
	{name: "cmd/niclane", run: "^TestLab$/^verify_mqprio$", since: "6.17", within: 8 * time.Minute},
	// Bonds are a module, and control groups of version 2 only are not on every machine.
	{name: "cmd/niclane, suggest", dir: "cmd/niclane", run: "^TestLab$/^(suggest_bond|containers)$", ends: true,
		within: 10 * time.Minute},
	// The last one, because it takes eBPF's tracing away until the guest ends.
	{name: "live/waits, lockdown", dir: "live/waits", run: "^TestLockdown$", within: 5 * time.Minute},
}

// asked lists suites that run only if the user names them.
var asked = []suite{
	{name: "kernel-tls", dir: "cmd/niclane-bench", run: "^TestLab$/^bench_kernel_tls$", within: 20 * time.Minute},
	// Lanes share the link by departure times here. An emulated guest does not apply them within the guard's
	// second.
	{name: "test/inject", skip: "^TestInject$/^guard$", within: 40 * time.Minute},
	// Each of these takes minutes in an emulated guest.
	{name: "numa", dir: "cmd/niclane", run: "^TestSplit$", nodes: true, within: 15 * time.Minute},
	{name: "numa-bench", dir: "cmd/niclane-bench", run: "^TestBenchSplit$", nodes: true, within: 30 * time.Minute},
}

// benchmarks lists suites that run only if the user asks for benchmarks.
var benchmarks = []suite{
	{name: "test/bench", run: "^$", bench: "^BenchmarkChain$", per: "members", within: 30 * time.Minute},
	{name: "test/bench, share", dir: "test/bench", run: "^$", bench: "^BenchmarkShare$", per: "senders",
		within: 30 * time.Minute},
	{name: "test/bench, quiet link", dir: "test/bench", run: "^$", bench: "^BenchmarkQuietLink$",
		within: 60 * time.Minute},
}

// Names of the builtin suites.
const (
	probeSuite   = "probe"             // niclane probe, on a veth and on the guest's card
	laneSuite    = "lane"              // a lane's life on the guest's card, with all its queues in use
	freeSuite    = "lane, free queues" // the same, with free queues, on which XDP can send
	trafficSuite = "lane, traffic"     // traffic between the machine and the card, and verify
)

// Suites that need the simulated card's module.
const (
	cardSuite  = "test/simcard/conformance"
	lanesSuite = "test/simcard/lanes"
	podsSuite  = "k8s/agent/simcard"
	// ofTheCard matches those tests in lanesSuite that are about what one card does or refuses. They
	// run only on a new kernel, because the card's driver is the same on every kernel.
	ofTheCard = "SmallCards|AnyLocation|ForeignRule|NoShrink|Forgets|DCBDrivers|FlowerOrRules|TableFollowsChannels|" +
		"Selftest"
)

// needsModule reports whether suites need the simulated card's module.
func needsModule(chosen []suite) bool {
	return slices.ContainsFunc(chosen, func(s suite) bool {
		return slices.Contains([]string{cardSuite, lanesSuite, podsSuite}, s.path())
	})
}

// choose returns the suites with the given names, separated by separator; all suites for "".
func choose(only, separator string) ([]suite, error) {
	if only == "" {
		return suites, nil
	}
	var chosen []suite
	for name := range strings.SplitSeq(only, separator) {
		all := slices.Concat(suites, asked, benchmarks)
		i := slices.IndexFunc(all, func(s suite) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no suite %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// onKernel returns those of the suites that run on a kernel of this series.
func onKernel(series string, all []suite) []suite {
	return slices.DeleteFunc(slices.Clone(all), func(s suite) bool {
		return s.ends && series != oldest && series != newest
	})
}

// byNodes divides suites into those for a guest with one NUMA node and those for a guest with two.
func byNodes(all []suite) (guests [][]suite) {
	for _, nodes := range []bool{false, true} {
		some := slices.DeleteFunc(slices.Clone(all), func(s suite) bool { return s.nodes != nodes })
		if len(some) > 0 {
			guests = append(guests, some)
		}
	}
	return guests
}

// path returns the directory of the suite's package.
func (s suite) path() string {
	if s.dir != "" {
		return s.dir
	}
	return s.name
}

// pkg returns the package's directory, relative to its Go module.
func (s suite) pkg() string { return strings.TrimPrefix(s.path(), s.module+"/") }

// file returns the name of the suite's test program.
func (s suite) file() string { return strings.ReplaceAll(s.name, "/", "-") + ".test" }
