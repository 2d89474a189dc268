// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"time"

	"github.com/spf13/cobra"

	niclaneapp "github.com/niclane/niclane/app"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/journal"
)

// Exit codes of niclane run and niclane lab exec if the command was not started, as in env(1). If
// it was started, the exit code is the command's own.
const (
	exitNotRun        = 125
	exitNotExecutable = 126
	exitNotFound      = 127
)

// laneFlags are the options that run and attach have in common.
type laneFlags struct {
	lane, member  string
	listeners     bool
	pin           bool
	listenerCPUs  []int
	listenerPorts []uint
	busyPoll      time.Duration
	budget        int
}

func (f *laneFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.lane, "lane", "", "the lane's name (required)")
	cmd.Flags().StringVar(&f.member, "member", "",
		"join the control group of this `member`; needed if the lane has several control groups")
	cmd.Flags().BoolVar(&f.listeners, "listeners", false,
		"lead each connection to the listener whose thread runs on the processor of its queue")
	cmd.Flags().BoolVar(&f.pin, "pin", false,
		"with --listeners: pin each thread that serves a listener to one processor of the lane")
	cmd.Flags().IntSliceVar(&f.listenerCPUs, "listener-cpus", nil, "with --listeners: the processor of each "+
		"listener of a port, in the order of their creation (\"2,3\"); for listeners whose processor niclane "+
		"cannot find")
	cli.TimeVar(cmd.Flags(), &f.busyPoll, "busy-poll", "let the application's epoll instances, listeners and UDP "+
		"sockets poll the device for this time before they sleep (\"50us\"; at most 1s; default: unchanged)")
	cmd.Flags().IntVar(&f.budget, "busy-poll-budget", niclaneapp.DefaultBusyPollBudget,
		"with --busy-poll: most packets of one poll (1 to 64)")
	cmd.Flags().UintSliceVar(&f.listenerPorts, "ports", nil, "with --listeners: TCP ports; default: the lane's own")
}

// options finds the lane, reads the machine's state, and converts the flags to options of package
// app.
func (a *app) options(ctx context.Context, what string, f *laneFlags, file string) (l niclaneapp.Lane,
	o niclaneapp.Options, err error) {
	if f.lane == "" {
		return l, o, cli.Usagef("%s: --lane: name an applied lane", what)
	}
	if !f.listeners && (f.pin || len(f.listenerCPUs) > 0 || len(f.listenerPorts) > 0) {
		return l, o, cli.Usagef("%s: --pin, --listener-cpus and --ports need --listeners", what)
	}
	if f.pin && len(f.listenerCPUs) > 0 {
		return l, o, cli.Usagef("%s: --listener-cpus says where threads run, --pin moves them: give only one", what)
	}
	busy, err := f.busy(what)
	if err != nil {
		return l, o, err
	}
	if err := cli.NeedRoot(what); err != nil {
		return l, o, err
	}
	if l, err = a.findLane(f.lane, file); err != nil {
		return l, o, err
	}
	st, err := a.look(ctx, l.Devices())
	if err != nil {
		return l, o, err
	}
	o = niclaneapp.Options{
		RunDir: a.RunDir, State: st, Member: f.member, BusyPoll: busy,
		Keeper: []string{"/proc/self/exe", niclaneapp.KeeperArg},
	}
	if f.listeners {
		if o.Listeners, err = f.choose(what, l, st); err != nil {
			return l, o, err
		}
	}
	return l, o, nil
}

// busy returns the application's new busy-poll settings, or nil if they stay as they are.
func (f *laneFlags) busy(what string) (*niclaneapp.BusyPoll, error) {
	switch us := f.busyPoll.Microseconds(); {
	case f.busyPoll == 0 && f.budget != niclaneapp.DefaultBusyPollBudget:
		return nil, cli.Usagef("%s: --busy-poll-budget needs --busy-poll", what)
	case f.busyPoll == 0:
		return nil, nil
	case us < 1 || f.busyPoll > niclaneapp.MaxBusyPoll:
		return nil, cli.Usagef("%s: --busy-poll %v: want 1us to %v", what, f.busyPoll, niclaneapp.MaxBusyPoll)
	case f.budget < 1 || f.budget > niclaneapp.MaxBusyPollBudget:
		return nil, cli.Usagef("%s: --busy-poll-budget %d: want 1 to %d", what, f.budget, niclaneapp.MaxBusyPollBudget)
	default:
		return &niclaneapp.BusyPoll{Usecs: uint32(us), Budget: uint16(f.budget), Prefer: true}, nil
	}
}

// choose returns which listeners get connections by queue: their ports, and the processors of their
// threads if the user gave them.
func (f *laneFlags) choose(what string, l niclaneapp.Lane, st *device.State) (*niclaneapp.Listeners, error) {
	c := &niclaneapp.Listeners{Pin: f.pin}
	for _, p := range f.listenerPorts {
		if p < 1 || p > 65535 {
			return nil, cli.Usagef("%s: --ports: %d, want 1 to 65535", what, p)
		}
		c.Ports = append(c.Ports, uint16(p))
	}
	if len(c.Ports) == 0 {
		c.Ports = l.Ports("tcp")
	}
	if len(c.Ports) == 0 {
		return nil, cli.Usagef("%s: --listeners: lane %s has no TCP ports of its own: give --ports", what, l.Name)
	}
	for _, cpu := range f.listenerCPUs {
		if !slices.Contains(st.OnlineCPUs(), cpu) {
			return nil, cli.Usagef("%s: --listener-cpus: processor %d is not online (%s are)", what, cpu,
				device.FormatCPUList(st.OnlineCPUs()))
		}
	}
	c.CPUs = f.listenerCPUs
	return c, nil
}

// findLane returns the applied lane called name. If file is not "", the lane must be in that lanes
// file.
func (a *app) findLane(name, file string) (niclaneapp.Lane, error) {
	js, err := a.Engine().Journals()
	if err != nil {
		return niclaneapp.Lane{}, err
	}
	if file != "" {
		if file, err = engine.Name(file); err != nil {
			return niclaneapp.Lane{}, err
		}
	}
	js = slices.DeleteFunc(js, (*journal.Journal).RolledBack) // no lane of a rolled-back journal is in force
	return niclaneapp.Find(js, name, file)
}

func (a *app) runCommand() *cobra.Command {
	var f laneFlags
	cmd := &cobra.Command{
		Use:   "run --lane NAME [FILE] -- COMMAND [ARG]...",
		Short: "Start an application in its lane",
		Long: `Run starts COMMAND in an applied lane: in its control group, on its processors, with
its memory and its priority. If several files have a lane of this name, give FILE.
COMMAND replaces the process of niclane: the process ID, the terminal, signals and the
exit status are COMMAND's. When its last process has ended, niclane removes what it
made for COMMAND.

Run exits 125 if the lane is not available, 126 if COMMAND cannot be executed, and 127
if COMMAND is not found. Otherwise the exit status is COMMAND's own.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash < 0 || len(args) == dash || dash > 1 {
				return cli.Usagef("run: want [FILE] -- COMMAND [ARG]...")
			}
			return notRun(a.runApplication(cmd.Context(), &f, first(args[:dash]), args[dash:]))
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) runApplication(ctx context.Context, f *laneFlags, file string, argv []string) error {
	l, o, err := a.options(ctx, "run", f, file)
	if err != nil {
		return err
	}
	return niclaneapp.Run(l, o, argv)
}

// notRun gives the error of a command that was not started its exit code, as in env(1).
func notRun(err error) error {
	if err == nil || cli.IsUsage(err) {
		return err
	}
	code := exitNotRun
	if _, ok := errors.AsType[niclaneapp.ErrCommand](err); ok {
		code = exitNotExecutable
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = exitNotFound
		}
	}
	return cli.ExitCode{Code: code, Err: fmt.Errorf("run: %w", err)}
}
