// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app/instances"
	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/app/split"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/privatedir"
	"github.com/niclane/niclane/lane/engine"
)

// splitFlags are the options of the command niclane split.
type splitFlags struct {
	lane, content string
	nodes         []int
	storage       []string
	print         bool
}

func (a *app) splitCommand() *cobra.Command {
	var f splitFlags
	var words []string
	for _, w := range split.Words() {
		words = append(words, fmt.Sprintf("  {%s}  %s", w[0], w[1]))
	}
	cmd := &cobra.Command{
		Use: "split --lane NAME [--content duplicate|shard] [--nodes LIST] [--storage PATH]... [--print] FILE -- " +
			"COMMAND [ARG]...",
		Short: "Run an instance of an application on each NUMA node, in its lane",
		Long: `Split divides a lane of FILE over the host's NUMA nodes and applies the result. It
runs COMMAND once per node, with processors, memory, queues and storage of that node.
If one instance ends by itself, split ends the others. When all have ended, it rolls
the lanes back.

With --content duplicate, every instance serves everything at one address. A connection
goes to the instance on the node where its packets arrive; servers must listen with
SO_REUSEPORT. With --content shard, the lane's addrs are one address for each node, and
each instance serves its part of the content at its own address.

In COMMAND, split replaces these words by the instance's own values. The instance's
environment has them too, as NICLANE_NODE and so on:
` + strings.Join(words, "\n") + `

With --print, split shows the lanes file and the instances, and changes nothing.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash != 1 || len(args) < 2 {
				return cli.Usagef("split: want FILE -- COMMAND [ARG]...")
			}
			if f.lane == "" {
				return cli.Usagef("split: --lane: name a lane of %s", args[0])
			}
			// niclane passes SIGHUP on to the instances, because many servers reload on it.
			hup := make(chan os.Signal, 1)
			signal.Notify(hup, unix.SIGHUP)
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			s, err := a.divide(ctx, &f, args[0], args[1:])
			if err != nil {
				return err
			}
			if f.print {
				if a.JSON {
					return a.PrintJSON(s)
				}
				s.WriteText(a.Stdout)
				return nil
			}
			if err := cli.NeedRoot("split"); err != nil {
				return err
			}
			return a.runSplit(ctx, s, args[0])
		},
	}
	cmd.Flags().StringVar(&f.lane, "lane", "", "the lane of FILE to divide (required)")
	cmd.Flags().StringVar(&f.content, "content", string(split.Duplicate),
		"what each instance serves: everything (duplicate) or a part (shard)")
	cmd.Flags().IntSliceVar(&f.nodes, "nodes", nil,
		"NUMA nodes to use (\"0,1\"); default: all with processors of the lane")
	cmd.Flags().StringArrayVar(&f.storage, "storage", nil,
		"a path for data: it goes to the instance on the node of its drive; can be repeated")
	cmd.Flags().BoolVar(&f.print, "print", false, "show the lanes file and the instances, and change nothing")
	return cmd
}

// divide reads a lanes file and the machine, and divides a lane of the file over the machine's NUMA
// nodes.
func (a *app) divide(ctx context.Context, f *splitFlags, path string, command []string) (*split.Split, error) {
	file, text, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	r := split.Request{Lane: f.lane, Content: split.Content(f.content), Only: f.nodes, Command: command}
	sys := numa.Sys("/")
	if r.Nodes, err = sys.Nodes(); err != nil {
		return nil, err
	}
	st, err := a.look(ctx, (&engine.File{Intent: file.Intent}).Devices())
	if err != nil {
		return nil, err
	}
	r.Devices = numa.Cards(st, file.Intent.Group.Bond)
	for _, path := range f.storage {
		node, err := sys.Storage(path)
		if err != nil {
			return nil, fmt.Errorf("--storage: %w", err)
		}
		r.Storage = append(r.Storage, numa.Storage{Path: path, Node: node})
	}
	s, err := split.Make(text, file, r)
	if problem, ok := errors.AsType[split.Error](err); ok && problem.Path != "" {
		name, line := file.Locate(problem.Path)
		return nil, fmt.Errorf("%s:%d: %w", name, line, problem)
	}
	return s, err
}

// runSplit applies the lanes, runs the instances until they end, and rolls the lanes back.
func (a *app) runSplit(ctx context.Context, s *split.Split, file string) error {
	for _, n := range s.Notes {
		fmt.Fprintln(a.Stderr, "niclane: note:", n)
	}
	path := a.splitFile(s, file)
	own, err := takeFile(path, s.File)
	if err != nil {
		return err
	}
	defer own.Close()
	r, err := readRequest(path)
	if err != nil {
		return err
	}
	r.planned = a.warnLifeline
	if err := a.apply(ctx, r, 0); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	commands, err := a.splitCommands(s, r.config)
	if err == nil {
		err = instances.Run(ctx, commands)
	}
	var ended instances.ErrEnded
	if errors.As(err, &ended) && s.Content == split.Duplicate {
		err = cli.ExitCode{Code: cli.ExitError} // an instance that ended printed the reason itself
	}
	// Roll the lanes back in every case, also after an interrupt.
	if rerr := a.rollback(context.WithoutCancel(ctx), engine.RollbackOptions{Of: path}); rerr != nil {
		return errors.Join(err, rerr)
	}
	return errors.Join(err, os.Remove(path))
}

// takeFile writes a file and locks it. The lock lasts until the caller closes the file. A killed
// niclane split may have left the file and its lanes; apply then plans from these lanes.
func takeFile(path, text string) (*os.File, error) {
	if err := privatedir.Make(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%s: another niclane split, which still runs, has divided this lane", path)
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// splitFile returns the path of the file with the divided lanes. Users give this path to plan,
// status and verify.
func (a *app) splitFile(s *split.Split, file string) string {
	base := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	return filepath.Join(a.RunDir, "split", base+"-"+s.Lane+".yaml")
}
