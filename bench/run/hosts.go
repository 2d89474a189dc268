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

// hosts are those of a run: the SUT, the clients and the noise host, with an agent on
// each. They go by package lab's names for the first two and the last; further clients
// have names of their own.
type hosts interface {
	// seats says where each of n generators runs.
	seats(n int) []seat
	// addressOf a host in the measured network.
	addressOf(host string) string
	// link of the SUT: its rate in bit/s and its MTU.
	link() (rate int64, mtu int)
	// names are what $device and the like stand for, beside what every host
	// has.
	names() map[string]string
	// scratchOf is the directory of the run's files on a host, and put writes
	// one there, by its path below it.
	scratchOf(host string) string
	put(ctx context.Context, host, name string, text []byte, private bool) error
	// find looks for a program on a host, and asks it for its version.
	find(ctx context.Context, host, program string) (path, version string, err error)
	launch(ctx context.Context, l launch) (task, error)
	// ask asks a server once, from a host.
	ask(ctx context.Context, host, address string, q ready.Question) error
	// served reads the server's counters, from the SUT.
	served(ctx context.Context, c load.Config) (counters.Counters, error)
	// nodes are the SUT's NUMA nodes, and the processors that a server has where
	// the experiment names none.
	nodes(ctx context.Context) (nodes.Machine, []int, error)
	// storage are the run's own directories on the SUT's drives, by NUMA node;
	// none where it has only scratchOf.
	storage() map[int]string
	// counting reads the counters of the SUT and of processes there, by name,
	// and returns what reads them again and gives the difference.
	counting(ctx context.Context, processes map[string]task) (func(context.Context) (machine.Diff, error), error)
	// queueing begins to sample the queues on the way, and returns what ends
	// that, which can be called again. Nothing is sampled where they cannot be
	// read.
	queueing(ctx context.Context) func() ([]result.Hop, error)
	// clocks reads the hosts' clocks. What it returns reads them again and
	// gives how far each is ahead of the common time axis.
	clocks(ctx context.Context) (func(context.Context) (axis, error), error)
	// lost is closed when a host is gone, and gone says which.
	lost() <-chan struct{}
	gone() error
}

// cpusText is $cpus, a list in YAML: the server's processors, or the host's
// where it has none of its own.
func cpusText(server, host []int) string {
	if len(server) == 0 {
		server = host
	}
	return "[" + strings.ReplaceAll(device.FormatCPUList(server), ",", ", ") + "]"
}

// A seat is where a generator runs.
type seat struct {
	host string
	thread.Setup
}

// A launch is what is started on a host.
type launch struct {
	what string // for messages
	host string
	// part of niclane and its config, or a command.
	part   string
	config any
	argv   []string
	env    []string // of a command
	experiment.Place
	member bool  // of the control group that lanes can name
	mems   []int // NUMA nodes that its memory is from, nil: as the kernel chooses
	// group of its own below that of members, with these processors and nodes.
	group string
}

// A task is a process that runs on a host.
type task interface {
	name() string
	// result waits for the process to end by itself until ctx ends.
	result(ctx context.Context, into any) error
	// stop asks the process to end, if it has not, and after a while makes it.
	stop() error
	// ended returns nil while the process runs, and how it ended when it has.
	ended() error
	over() <-chan struct{}
}

// outcome starts what ends by itself, and waits for its result.
func outcome(ctx context.Context, on hosts, l launch, into any) error {
	t, err := on.launch(ctx, l)
	if err != nil {
		return err
	}
	return t.result(ctx, into)
}

// An axis brings the hosts' CLOCK_MONOTONIC onto one.
type axis struct {
	ahead       map[string]int64 // ns, by host
	uncertainty map[string]int64 // of that
}

// A measurement is what is done alike wherever the hosts are.
type measurement struct {
	f  *experiment.File
	e  *experiment.Experiment
	on hosts

	// instances of the server that runs: one, or one for each NUMA node.
	instances []*instance
	division  *division // nil: one
	// processors of the server, where it is divided.
	processors []int
	beside     []task // what the instances share
	// variant is what the server has that is running.
	variant *experiment.VariantServer
	tuner   task // holds tuned
	tuned   *experiment.Tune
	pods    pods // of KindPod
	// counts is whether the server has counters that are known.
	counts bool
	power  powers
	// queues of the applied lanes.
	queues []machine.LaneQueues
}
