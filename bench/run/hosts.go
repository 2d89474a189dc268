// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/counters"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/part/nodes"
	"github.com/niclane/niclane/bench/part/ready"
	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/bench/result"
)

// hosts are the hosts of a run: the SUT, the clients and the noise host, with an agent on each.
// The SUT, the first client and the noise host have package lab's names; further clients have
// names of their own.
type hosts interface {
	// seats returns where each of n generators runs.
	seats(n int) []seat
	// addressOf returns a host's address in the measured network.
	addressOf(host string) string
	// addresses returns the SUT's addresses in the measured network: one for each of its cards.
	addresses() []string
	// link returns the SUT's link: its rate in bit/s and its MTU.
	link() (rate int64, mtu int)
	// names returns the values of $device and of other names that depend on the kind of site.
	// measurement.values adds the names that every site has.
	names() map[string]string
	// scratchOf returns the directory of the run's files on a host. put writes a file whose path
	// below that directory is name.
	scratchOf(host string) string
	put(ctx context.Context, host, name string, text []byte, private bool) error
	// find looks for a program on a host, and reads its version.
	find(ctx context.Context, host, program string) (path, version string, err error)
	launch(ctx context.Context, l launch) (task, error)
	// ask sends one question to a server, from a host.
	ask(ctx context.Context, host, address string, q ready.Question) error
	// served reads the server's counters by a process on the SUT.
	served(ctx context.Context, c load.Config) (counters.Counters, error)
	// nodes returns the SUT's NUMA nodes, and the server's processors if the experiment names
	// none.
	nodes(ctx context.Context) (nodes.Machine, []int, error)
	// storage returns the run's own directories on the SUT's drives, by NUMA node. It returns
	// none if the run has only the directory scratchOf.
	storage() map[int]string
	// counting reads the counters of the SUT and of processes there, by name. The function that
	// it returns reads them again and returns the difference.
	counting(ctx context.Context, processes map[string]task) (func(context.Context) (machine.Diff, error), error)
	// queueing starts to sample the queues between the hosts. The function that it returns stops
	// sampling and returns the samples. It may be called twice. If a site cannot read the queues,
	// it samples nothing.
	queueing(ctx context.Context) func() ([]result.Hop, error)
	// clocks reads the hosts' clocks. The function that it returns reads them again and returns
	// how far each is ahead of the common time axis.
	clocks(ctx context.Context) (func(context.Context) (axis, error), error)
	// lost returns a channel that is closed when a host is lost. gone says which host that is.
	lost() <-chan struct{}
	gone() error
}

// cpusText returns $cpus, a YAML list of the server's processors. If the experiment names none for
// the server, it is the host's processors.
func cpusText(server, host []int) string {
	if len(server) == 0 {
		server = host
	}
	return experiment.CPUsText(server)
}

// A seat is where a generator runs: its host, processors and priority.
type seat struct {
	host string
	thread.Setup
}

// A launch is a process to start on a host.
type launch struct {
	what string // name for messages
	host string
	// A launch has either part and config, for a part of niclane, or argv and env, for a command.
	part   string
	config any
	argv   []string
	env    []string // environment of a command
	experiment.Place
	member bool  // member of the control group that lanes can name
	mems   []int // NUMA nodes of the process's memory, nil: the kernel chooses
	// group is a subgroup of the members' control group, limited to CPUs and mems; "": none.
	group string
}

// A task is a process that runs on a host.
type task interface {
	name() string
	// result waits until the process ends by itself, and stores its result in into. If ctx ends
	// first, it returns an error.
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

// An axis converts times of the hosts' CLOCK_MONOTONIC to a common time axis.
type axis struct {
	ahead       map[string]int64 // how far the host's clock is ahead of the axis, ns, by host
	uncertainty map[string]int64 // uncertainty of ahead, ns
}

// A measurement is the part of a site that is the same in the lab and on hosts.
type measurement struct {
	f  *experiment.File
	e  *experiment.Experiment
	on hosts

	// instances are those of the running server: one, or one for each NUMA node.
	instances []*instance
	division  *division // nil: one instance
	// processors are those of the server, if it is divided.
	processors []int
	beside     []task // processes that the instances share
	// variant has the settings with which the running server was started.
	variant *experiment.VariantServer
	tuner   task
	tuned   *experiment.Tune
	pods    pods // KindPod only
	// counts says that niclane can read the server's counters.
	counts bool
	power  powers
	// queues are those of the applied lanes.
	queues []machine.LaneQueues
}
