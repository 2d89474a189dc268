// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A suite is what runs in a guest under one name.
type suite struct {
	// name is a package's directory, or that of a part of this command.
	name string
	// builtin suites are not tests of a package but run by this command.
	builtin bool
	// run and skip are go test's -run and -skip; "" for all and none.
	run, skip string
	// bench is go test's -bench; "" for none.
	bench string
	// since is the first kernel that has what most of it is about; "" for all.
	since string
	// dir is where its package is, "" for name.
	dir string
	// module is the directory of its Go module, "" for niclane's own.
	module string
	// ends has it run on the oldest and the newest kernel alone, unless it is named: what
	// differs on those between them is in the suites of the clients and of the card.
	ends bool
	// nodes has it run in a guest with two NUMA nodes.
	nodes bool
	// within is how long it may take in the guest. It bounds what hangs, and is
	// many times what the suite takes on an idle machine.
	within time.Duration
}

// suites in the order in which they run: the thin clients first, so that the
// first failure is the cause of the others. What is skipped or not named is
// either pure, or the same again many times: emulation makes it too slow.
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
	{name: "poller", since: "6.13", within: 8 * time.Minute}, // static tracking of NAPIs
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
	{name: "test/fair", within: 5 * time.Minute}, // fq_codel is a module of these kernels
	// go run ./test/simcard/run runs all of it; here, what takes long, what lanes
	// meet anyway, and what wants a processor that keeps up (Moderation: interrupts
	// per frame) is left out.
	{name: cardSuite,
		skip: "^Test(Moderation|RuleQuirks|HTB|Fails|Link|MqprioRates|MqprioResizes|MqprioRefusals|MaxRate|" +
			"ByteQueueLimits|ModeChannelIsDCB|Forgets)$", within: 10 * time.Minute},
	// 13 where two guests have a processor each
	{name: lanesSuite, skip: "^Test(" + ofTheCard + ")$|^TestFaults$/^(contexts|htb)$", ends: true,
		within: 30 * time.Minute},
	{name: lanesSuite + ", of the card", dir: lanesSuite, run: "^Test(" + ofTheCard + ")$", since: "6.17",
		within: 25 * time.Minute},
	{name: podsSuite, module: "k8s", ends: true, within: 10 * time.Minute},
	// It needs threads by NAPI, and mqprio, which is a module.
	{name: "cmd/niclane", run: "^TestLab$/^verify_mqprio$", since: "6.17", within: 8 * time.Minute},
}

// asked are run when they are named, and not with the others.
var asked = []suite{
	{name: "kernel-tls", dir: "cmd/niclane-bench", run: "^TestLab$/^bench_kernel_tls$", within: 20 * time.Minute},
	// minutes in an emulated guest
	{name: "numa", dir: "cmd/niclane", run: "^TestSplit$", nodes: true, within: 15 * time.Minute},
	{name: "numa-bench", dir: "cmd/niclane-bench", run: "^TestBenchSplit$", nodes: true, within: 30 * time.Minute},
}

// benchmarks are run when they are asked for, and not with the suites.
var benchmarks = []suite{
	{name: "test/bench", run: "^$", bench: "^BenchmarkChain$", within: 30 * time.Minute},
}

// Names of the builtin suites.
const (
	probeSuite   = "probe"             // niclane probe, on a veth and the guest's card
	laneSuite    = "lane"              // a lane's life on the guest's card, all of its queues in use
	freeSuite    = "lane, free queues" // the same with queues left for XDP to send on
	trafficSuite = "lane, traffic"     // traffic from the machine through the card, and verify
)

// Suites that need the simulated card's module.
const (
	cardSuite  = "test/simcard/conformance"
	lanesSuite = "test/simcard/lanes"
	podsSuite  = "k8s/agent/simcard"
	// ofTheCard are the tests of lanesSuite about what one card does or refuses: its
	// driver is the same on every kernel.
	ofTheCard = "SmallCards|AnyLocation|ForeignRule|NoShrink|Forgets|DCBDrivers|FlowerOrRules|TableFollowsChannels|" +
		"Selftest"
)

// needsModule reports whether the simulated card has to be built for suites.
func needsModule(chosen []suite) bool {
	return slices.ContainsFunc(chosen, func(s suite) bool {
		return slices.Contains([]string{cardSuite, lanesSuite, podsSuite}, s.path())
	})
}

// choose returns the suites named, all for "".
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

// byNodes divides suites by the guest that they need, those of one node first.
func byNodes(all []suite) (guests [][]suite) {
	for _, nodes := range []bool{false, true} {
		some := slices.DeleteFunc(slices.Clone(all), func(s suite) bool { return s.nodes != nodes })
		if len(some) > 0 {
			guests = append(guests, some)
		}
	}
	return guests
}

// path is where the suite's package is.
func (s suite) path() string {
	if s.dir != "" {
		return s.dir
	}
	return s.name
}

// pkg is where it is in its Go module.
func (s suite) pkg() string { return strings.TrimPrefix(s.path(), s.module+"/") }

// file is the name of the suite's test program.
func (s suite) file() string { return strings.ReplaceAll(s.name, "/", "-") + ".test" }
