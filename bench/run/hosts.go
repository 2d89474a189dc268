// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"strings"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/counters"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/part/nodes"
	"github.com/niclane/niclane/bench/part/ready"
	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lane/device"
)

// hosts are the hosts of a run: the SUT, the clients and the noise host, with an agent on each.
// The SUT, the first client and the noise host have package lab's names; further clients have
// names of their own.
type hosts interface {
	// seats returns where each of n generators runs.
	seats(n int) []seat
	// addressOf returns a host's address in the measured network.
	addressOf(host string) string
	// link returns the SUT's link: its rate in bit/s and its MTU.
	link() (rate int64, mtu int)
	// names are the values of $device and the like, in addition to those of every host.
	names() map[string]string
	// scratchOf returns the directory of the run's files on a host. put writes a file there, by
	// its path below it.
	scratchOf(host string) string
	put(ctx context.Context, host, name string, text []byte, private bool) error
	// find looks for a program on a host, and reads its version.
	find(ctx context.Context, host, program string) (path, version string, err error)
	launch(ctx context.Context, l launch) (task, error)
	// ask sends one question to a server, from a host.
	ask(ctx context.Context, host, address string, q ready.Question) error
	// served reads the server's counters, from the SUT.
	served(ctx context.Context, c load.Config) (counters.Counters, error)
	// nodes returns the SUT's NUMA nodes, and the server's processors if the experiment names
	// none.
	nodes(ctx context.Context) (nodes.Machine, []int, error)
	// storage returns the run's own directories on the SUT's drives, by NUMA node; none if
	// there is only scratchOf.
	storage() map[int]string
	// counting reads the counters of the SUT and of processes there, by name. The function that
	// it returns reads them again and returns the difference.
	counting(ctx context.Context, processes map[string]task) (func(context.Context) (machine.Diff, error), error)
	// queueing starts to sample the queues on the way. The function that it returns stops that;
	// it may be called again. If the queues cannot be read, nothing is sampled.
	queueing(ctx context.Context) func() ([]result.Hop, error)
	// clocks reads the hosts' clocks. The function that it returns reads them again and returns
	// how far each is ahead of the common time axis.
	clocks(ctx context.Context) (func(context.Context) (axis, error), error)
	// lost is closed when a host is lost, and gone says which.
	lost() <-chan struct{}
	gone() error
}

// cpusText returns $cpus, a YAML list: the server's processors, or the host's if it has none of
// its own.
func cpusText(server, host []int) string {
	if len(server) == 0 {
		server = host
	}
	return "[" + strings.ReplaceAll(device.FormatCPUList(server), ",", ", ") + "]"
}

// A seat is the place of a generator.
type seat struct {
	host string
	thread.Setup
}

// A launch is a process to start on a host.
type launch struct {
	what string // name for messages
	host string
	// part of niclane and its config, or a command.
	part   string
	config any
	argv   []string
	env    []string // environment of a command
	experiment.Place
	member bool  // member of the control group that lanes can name
	mems   []int // NUMA nodes of its memory, nil: the kernel chooses
	// group is a subgroup of the members' group, with these processors and nodes.
	group string
}

// A task is a process that runs on a host.
type task interface {
	name() string
	// result waits for the process to end by itself until ctx ends.
	result(ctx context.Context, into any) error
	// stop asks the process to end, and kills it after a while.
	stop() error
	// ended returns nil while the process runs, and then how it ended.
	ended() error
	over() <-chan struct{}
}

// outcome starts a process that ends by itself, and waits for its result.
func outcome(ctx context.Context, on hosts, l launch, into any) error {
	t, err := on.launch(ctx, l)
	if err != nil {
		return err
	}
	return t.result(ctx, into)
}

// An axis converts the hosts' CLOCK_MONOTONIC to a common one.
type axis struct {
	ahead       map[string]int64 // ns, by host
	uncertainty map[string]int64 // uncertainty of ahead, ns
}

// A measurement is the part of a site that is independent of where the hosts are.
type measurement struct {
	f  *experiment.File
	e  *experiment.Experiment
	on hosts

	// instances of the running server: one, or one for each NUMA node.
	instances []*instance
	division  *division // nil: one instance
	// processors of the server, if it is divided.
	processors []int
	beside     []task // processes that the instances share
	// variant is the running server's settings.
	variant *experiment.VariantServer
	tuner   task // the process that holds tuned
	tuned   *experiment.Tune
	pods    pods // KindPod only
	// counts says that the server has known counters.
	counts bool
	power  powers
	// queues of the applied lanes.
	queues []machine.LaneQueues
}
