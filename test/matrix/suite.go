// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A suite is a set of tests with a name that runs in a guest.
type suite struct {
	// name is the directory of a package, or the name of a part of this command.
	name string
	// builtin suites are functions of this command, not tests of a package.
	builtin bool
	// run and skip are go test's -run and -skip; "" runs all and skips none.
	run, skip string
	// bench is go test's -bench; "" for none.
	bench string
	// since is the first kernel with the main feature under test; "": all kernels.
	since string
	// dir is the directory of its package, "": name.
	dir string
	// module is the directory of its Go module, "" for niclane's own.
	module string
	// ends limits the suite to the oldest and the newest kernel, unless it is named. The suites
	// of the clients and of the card cover the differences between the others.
	ends bool
	// nodes runs it in a guest with two NUMA nodes.
	nodes bool
	// within is the time limit in the guest: many times what the suite takes on an idle
	// machine.
	within time.Duration
}

// suites are in the order of their run: the thin clients first, so that the first failure is
// the cause of the others. Skipped or unnamed tests need no kernel or repeat others; emulation
// is too slow for them.
var suites = []suite{
	{name: "internal/kernel/nlsock", within: 5 * time.Minute},
	{name: "internal/kernel/hostfs", within: 5 * time.Minute},
	{name: "internal/kernel/cgroup", within: 5 * time.Minute},
	{name: "internal/kernel/sched", within: 5 * time.Minute},
	{name: "internal/kernel/ethtool", within: 5 * time.Minute},
	{name: "internal/kernel/netdev", within: 5 * time.Minute},
	{name: "internal/kernel/tc", within: 5 * time.Minute},
	{name: "internal/kernel/bpf", skip: "^Test(LaneAndCPU|VLANBesideTheData|LostTag|RandomPackets)$",
		within: 5 * time.Minute},
	{name: "lab/emucard", skip: "^Test(Refusals|Toeplitz)$", within: 5 * time.Minute},
	{name: "internal/kernel/sockclass",
		run:    "^Test(ForeignPrograms|OtherNamespace|ObjectReadsBack|NoSuchGroup|Sockets|OnTheWire)$",
		within: 5 * time.Minute},
	{name: "internal/kernel/netprio", within: 5 * time.Minute},
	{name: "internal/traffic/count", within: 5 * time.Minute},
	{name: "internal/traffic/napi", within: 5 * time.Minute},
	{name: "app/reuseport", within: 5 * time.Minute},
	{name: "app/sockiter", within: 5 * time.Minute},
	{name: "app", run: "^TestVhost$", within: 5 * time.Minute},
	{name: "poller", since: "6.13", within: 8 * time.Minute}, // static NAPI tracking
	{name: probeSuite, builtin: true, within: 5 * time.Minute},
	{name: laneSuite, builtin: true, within: 5 * time.Minute},
	{name: freeSuite, builtin: true, within: 5 * time.Minute},
	{name: trafficSuite, builtin: true, within: 5 * time.Minute},
	{name: "lane/observe", within: 5 * time.Minute},
	{name: "lab",
		run: "^Test(HopNames|Command|Status|LeavesHostAsFound|Spread|QueueIsNAPI|RuleMovesConnection|" +
			"CountersExact|TransmitQueue|Switch)$", within: 8 * time.Minute},
	{name: "lane/apply",
		run:    "^Test(SystemGenerations|SystemUndoOfOneGeneration|SystemReadMany|GuardOutlivesTheSession)$",
		within: 8 * time.Minute},
	{name: "test/coexist", within: 8 * time.Minute},
	{name: "test/members", ends: true, within: 8 * time.Minute},
	{name: "test/fair", within: 5 * time.Minute}, // fq_codel is a module in these kernels
	// go run ./test/simcard/run runs all tests. Here three kinds are left out: slow tests,
	// tests that the lanes' suites cover, and tests that need a fast processor (Moderation:
	// interrupts per frame).
	{name: cardSuite,
		skip: "^Test(Moderation|RuleQuirks|HTB|Fails|Link|MqprioRates|MqprioResizes|MqprioRefusals|MaxRate|" +
			"ByteQueueLimits|ModeChannelIsDCB|Forgets)$", within: 10 * time.Minute},
	// 13 minutes if two guests have a processor each.
	{name: lanesSuite, skip: "^Test(" + ofTheCard + ")$|^TestFaults$/^(contexts|htb)$", ends: true,
		within: 30 * time.Minute},
	{name: lanesSuite + ", of the card", dir: lanesSuite, run: "^Test(" + ofTheCard + ")$", since: "6.17",
		within: 25 * time.Minute},
	{name: podsSuite, module: "k8s", ends: true, within: 10 * time.Minute},
	// It needs NAPI threads, and mqprio, which is a module.
	{name: "cmd/niclane", run: "^TestLab$/^verify_mqprio$", since: "6.17", within: 8 * time.Minute},
}

// asked are suites that run only if they are named.
var asked = []suite{
	{name: "kernel-tls", dir: "cmd/niclane-bench", run: "^TestLab$/^bench_kernel_tls$", within: 20 * time.Minute},
	// These take minutes in an emulated guest.
	{name: "numa", dir: "cmd/niclane", run: "^TestSplit$", nodes: true, within: 15 * time.Minute},
	{name: "numa-bench", dir: "cmd/niclane-bench", run: "^TestBenchSplit$", nodes: true, within: 30 * time.Minute},
}

// benchmarks run only if they are asked for.
var benchmarks = []suite{
	{name: "test/bench", run: "^$", bench: "^BenchmarkChain$", within: 30 * time.Minute},
}

// Names of the builtin suites.
const (
	probeSuite   = "probe"             // niclane probe, on a veth and on the guest's card
	laneSuite    = "lane"              // a lane's life on the guest's card, with all its queues in use
	freeSuite    = "lane, free queues" // the same, with free queues on which XDP can send
	trafficSuite = "lane, traffic"     // traffic between the machine and the card, and verify
)

// Suites that need the simulated card's module.
const (
	cardSuite  = "test/simcard/conformance"
	lanesSuite = "test/simcard/lanes"
	podsSuite  = "k8s/agent/simcard"
	// ofTheCard are the tests in lanesSuite of what a single card does or refuses. Its driver
	// is the same on every kernel.
	ofTheCard = "SmallCards|AnyLocation|ForeignRule|NoShrink|Forgets|DCBDrivers|FlowerOrRules|TableFollowsChannels|" +
		"Selftest"
)

// needsModule reports whether suites need the simulated card's module.
func needsModule(chosen []suite) bool {
	return slices.ContainsFunc(chosen, func(s suite) bool {
		return slices.Contains([]string{cardSuite, lanesSuite, podsSuite}, s.path())
	})
}

// choose returns the named suites, all suites for "".
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

// onKernel returns the suites that run on a kernel of a series.
func onKernel(series string, all []suite) []suite {
	return slices.DeleteFunc(slices.Clone(all), func(s suite) bool {
		return s.ends && series != oldest && series != newest
	})
}

// byNodes divides suites by the guest that they need; one node comes first.
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

// pkg returns the directory within its Go module.
func (s suite) pkg() string { return strings.TrimPrefix(s.path(), s.module+"/") }

// file returns the name of the suite's test program.
func (s suite) file() string { return strings.ReplaceAll(s.name, "/", "-") + ".test" }
