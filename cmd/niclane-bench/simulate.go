// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
	experiments "github.com/niclane/niclane/bench/run"
	"github.com/niclane/niclane/bench/simulate"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/observe"
)

// A simulation has the command's arguments.
type simulation struct {
	bench
	host        string
	noise, bulk string
	window      time.Duration
	packet      time.Duration
	wakeup      time.Duration
	print       bool
	o           simulate.Options
}

func (a *app) simulateCommand() *cobra.Command {
	s := &simulation{bench: bench{app: a, name: "simulate"}}
	cmd := &cobra.Command{
		Use:   "simulate FILE",
		Short: "Show what a lanes file would do to queueing, in virtual time",
		Long: `Simulate runs the lanes of FILE in a lab whose clock stands still while it works. For
each lane and for the default lane, it prints how long small requests take beside other
traffic, and where packets wait: as the host is, and with the lanes. It takes about a
minute, on any machine, needs no root, and changes nothing.

The lab's card has the queues and the link of the host that --host describes. What the
lab does not have is named: processors, pollers, moderation, several devices. All lanes
are asked at the same time, so that they compete.

Queueing is exact. The work of processors takes no time, so its cost does not show.`,
		Args: cli.Exactly(1, "the lanes file"),
		RunE: func(cmd *cobra.Command, args []string) error { return s.run(cmd.Context(), args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&s.host, "host", "", "`file` with the output of \"niclane probe --json\" on the host "+
		"(default: this host, if root, or the lab's card)")
	cli.RateVar(f, &s.o.Link, "link", "rate of the link (default: the file's, the host's, or 10gbit)")
	f.IntVar(&s.o.Queues, "queues", 0, "`number` of queues of the card (default: the host's, or what FILE needs)")
	f.StringVar(&s.noise, "noise", "75%", "`share` of the link that other traffic asks for in each direction, "+
		"up to 200%")
	f.StringVar(&s.bulk, "bulk", "0%", "`share` of the link that each lane sends beside its requests")
	cli.SizeVar(f, &s.o.Buffer, "switch-buffer", "buffer of the switch's port to the host (default: 512KiB)")
	cli.TimeVar(f, &s.packet, "packet-cost", "what the processor of each receive queue takes for a packet, up to 1ms: "+
		"a model (default: no time)")
	cli.TimeVar(f, &s.wakeup, "wakeup-cost", "what it takes before the first packet if it slept, up to 1ms (default: "+
		"no time)")
	cli.TimeVar(f, &s.window, "for", "counted virtual time (default: as long as P99.9 takes with few lanes)")
	f.BoolVar(&s.print, "print-file", false, "print the experiment's file, for bench run --virtual, and end")
	f.StringVar(&s.out, "out", "", "`directory` for result.json and report.html of the run")
	s.guest.Flags(f)
	return cmd
}

func (s *simulation) run(ctx context.Context, path string) error {
	for _, x := range []struct {
		name, text string
		to         *int
		most       int
	}{{"noise", s.noise, &s.o.Noise, 2000}, {"bulk", s.bulk, &s.o.Bulk, 1000}} {
		n, err := permille(x.text)
		if x.text != "0%" && (err != nil || n > x.most) {
			return cli.Usagef("simulate: --%s %s: want a share from 0%% to %d%%", x.name, x.text, x.most/10)
		}
		*x.to = n
	}
	if s.window != 0 && (s.window < 10*time.Millisecond || s.window > time.Minute) {
		return cli.Usagef("simulate: --for %v: want a time from 10ms to 1m of virtual time", s.window)
	}
	if s.o.Queues < 0 || s.o.Queues > simulate.MaxQueues {
		return cli.Usagef("simulate: --queues %d: want 1 to %d, which the lab's card can have", s.o.Queues,
			simulate.MaxQueues)
	}
	for _, x := range []struct {
		name string
		cost time.Duration
	}{{"packet", s.packet}, {"wakeup", s.wakeup}} {
		if x.cost < 0 || x.cost > time.Millisecond {
			return cli.Usagef("simulate: --%s-cost %v: want a time up to 1ms", x.name, x.cost)
		}
	}
	s.o.Window, s.o.PacketCost, s.o.WakeupCost = int64(s.window), int64(s.packet), int64(s.wakeup)
	text, err := cli.ReadFile(path, cli.MaxConfig, "a lanes file")
	if err != nil {
		return err
	}
	in, err := config.Parse(path, text)
	if err != nil {
		return err
	}
	var missing string
	if missing, err = s.readHost(ctx, in); err != nil {
		return err
	}
	setup, err := simulate.Make(in, s.o)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if missing != "" {
		setup.Notes = append(setup.Notes, simulate.Note{Text: missing})
	}
	const name = "simulate.yaml"
	f, err := experiment.Parse(name, []byte(setup.Experiment))
	if err == nil {
		err = experiments.Check(f)
	}
	if err != nil {
		return fmt.Errorf("%s: its lanes in the lab: %w", path, err)
	}
	if s.print {
		_, err := fmt.Fprint(s.Stdout, setup.Experiment)
		return err
	}
	r, err := s.measured(ctx, name, setup, f.Experiment)
	if err != nil {
		return err
	}
	answer, err := setup.Answer(path, r)
	if err != nil {
		return err
	}
	if s.JSON {
		return s.PrintJSON(answer)
	}
	return simulate.WriteText(s.Stdout, answer)
}

// measured runs the experiment in a guest and returns its result.
func (s *simulation) measured(ctx context.Context, name string, setup *simulate.Setup, e *experiment.Experiment) (
	*result.Result, error) {
	if err := s.guest.Check(); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	dir, err := os.MkdirTemp("", "niclane-simulate-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(setup.Experiment), 0o644); err != nil {
		return nil, err
	}
	out := s.out
	if out == "" {
		out = filepath.Join(dir, "out")
	}
	if out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	fmt.Fprintf(s.Stderr, "simulating %v for %s without the lanes, and %[1]v with them ...\n",
		time.Duration(e.Load.Window).Round(time.Millisecond), cli.Plural(len(setup.Lanes), "lane"))
	// What the run prints is of interest only where it fails.
	var said bytes.Buffer
	inner := s.App
	inner.Stdout, inner.Stderr = io.Discard, &said
	if err := s.guest.Run(ctx, &inner, []string{"run", file, "--out", out}, out); err != nil {
		if _, ended := errors.AsType[cli.ExitCode](err); ended {
			err = fmt.Errorf("simulate: in virtual time: %s", lastLine(said.Bytes()))
		}
		return nil, err
	}
	return result.ReadFile(filepath.Join(out, resultFile))
}

func lastLine(text []byte) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte{'\n'})
	return strings.TrimPrefix(string(lines[len(lines)-1]), "niclane: ")
}

// maxHost is the largest size of a description of a host, in bytes.
const maxHost = 64 << 20

// readHost reads the description of the host. It returns a remark if there is none.
func (s *simulation) readHost(ctx context.Context, in *intent.Intent) (string, error) {
	if s.host != "" {
		text, err := cli.ReadFile(s.host, maxHost, "the output of niclane probe --json")
		if err != nil {
			return "", err
		}
		s.o.Host = &device.State{}
		if err := json.Unmarshal(text, s.o.Host); err != nil || s.o.Host.Devices == nil {
			return "", fmt.Errorf("%s: want the output of niclane probe --json", s.host)
		}
		return "", nil
	}
	const lab = "the lab's card stands for the host's: --host FILE takes the output of niclane probe --json there"
	if os.Geteuid() != 0 {
		return lab, nil
	}
	devices := in.Group.Devices
	if in.Group.Bond != "" {
		devices = []string{in.Group.Bond}
	}
	st, err := observe.Observe(ctx, observe.Options{Devices: devices, RunDir: s.RunDir})
	if errors.Is(err, unix.ENODEV) {
		return "this host has no such device: " + lab, nil
	}
	if err != nil {
		return "", err
	}
	s.o.Host = st
	return "", nil
}
