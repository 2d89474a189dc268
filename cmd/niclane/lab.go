// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lane/device"
)

func (a *app) labCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "lab up|exec|status|down|virtual",
		Short: "Build hosts in network namespaces, with an emulated card",
		Long: `Lab builds a system under test (sut), a client and a noise source in network
namespaces. A switch joins them, and the sut's link has a finite rate in each
direction. The sut's port, lane0, behaves like a card with steering hardware.
docs/lab.md says what is emulated and what is real.`,
	}
	cmd.PersistentFlags().StringVar(&name, "name", "niclane",
		"`name` of the lab; its namespaces are NAME-sut and so on")
	cmd.AddCommand(a.labUpCommand(&name), a.labExecCommand(&name), a.labStatusCommand(&name), a.labDownCommand(&name),
		a.labVirtualCommand(&name))
	return cmd
}

func (a *app) labUpCommand(name *string) *cobra.Command {
	var c lab.Config
	cmd := &cobra.Command{
		Use: "up", Short: "Build the lab", Args: cli.Exactly(0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.NeedRoot("lab up"); err != nil {
				return err
			}
			ctx, stop := cli.Interruptible(cmd.Context())
			defer stop()
			c.Name = *name
			l, err := lab.Up(ctx, c)
			if err != nil {
				return err
			}
			return a.printLab(l)
		},
	}
	labFlags(cmd.Flags(), &c)
	return cmd
}

func labFlags(f *pflag.FlagSet, c *lab.Config) {
	f.StringVar(&c.Card, "card", lab.CardEmulated,
		"what the sut's port is: emulated (a card that steers) or none (a plain veth)")
	f.IntVar(&c.Queues, "queues", 0, "number of queues of the sut's port (default 8)")
	cli.RateVar(f, &c.LinkRate, "link-rate", "rate of the link (\"1gbit\"; default 500mbit)")
	cli.SizeVar(f, &c.SwitchBuffer, "buffer", "buffer of the switch's port toward the sut "+
		"(\"1MiB\"; default 512KiB)")
}

func (a *app) labExecCommand(name *string) *cobra.Command {
	var o lab.Options
	cmd := &cobra.Command{
		Use: "exec HOST -- COMMAND...", Short: "Run a command on a host of the lab",
		Args: func(_ *cobra.Command, args []string) error {
			if len(hostCommand(args)) == 0 {
				return cli.Usagef("lab exec: want HOST -- COMMAND...")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.NeedRoot("lab exec"); err != nil {
				return err
			}
			l, err := lab.Open(*name)
			if err != nil {
				return noLab(err)
			}
			child, err := l.Command(cmd.Context(), args[0], o, hostCommand(args)...)
			if err != nil {
				return err
			}
			// This process becomes the command (execve). So the command has the terminal and gets its
			// signals, and the caller sees the command's exit status.
			return fmt.Errorf("lab exec: %w", unix.Exec(child.Path, child.Args, os.Environ()))
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().BoolVar(&o.Cgroup, "cgroup", false, "run the command in the control group of the sut's application")
	return cmd
}

// hostCommand returns the COMMAND... part of the arguments "HOST -- COMMAND..." or "HOST
// COMMAND...".
func hostCommand(args []string) []string {
	if len(args) > 1 && args[1] == "--" {
		return args[2:]
	}
	return args[min(1, len(args)):]
}

func (a *app) labStatusCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the lab", Args: cli.Exactly(0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := lab.Open(*name)
			if err != nil {
				return noLab(err)
			}
			return a.printLab(l)
		},
	}
}

func (a *app) labDownCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Remove the lab and end what still runs in it", Args: cli.Exactly(0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.NeedRoot("lab down"); err != nil {
				return err
			}
			return lab.Down(context.WithoutCancel(cmd.Context()), *name)
		},
	}
}

func noLab(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: niclane lab up builds it", err)
	}
	return err
}

func (a *app) printLab(l *lab.Lab) error {
	c := l.Config
	if a.JSON {
		return a.PrintJSON(l)
	}
	card := ""
	if c.Card == lab.CardNone {
		card = ", no card"
	}
	fmt.Fprintf(a.Stdout, "lab %s: %d Mbit/s to and from %s (%d queues%s), %d KiB of switch buffer toward it\n",
		c.Name, c.LinkRate/1e6, lab.Port, c.Queues, card, c.SwitchBuffer>>10)
	for _, h := range lab.HostNames() {
		port, cpus := lab.HostPort, c.OtherCPUs
		if h == lab.SUT {
			port, cpus = lab.Port, c.SUTCPUs
		}
		fmt.Fprintf(a.Stdout, "  %-7s %s  %s %s  CPUs %s\n", h, port, c.IPv4(h), c.IPv6(h), device.FormatCPUList(cpus))
	}
	if l.Cgroup != "" {
		fmt.Fprintf(a.Stdout, "  control group of the sut's application: %s\n", l.Cgroup)
	}
	fmt.Fprintf(a.Stdout, "try: %s\n", strings.Join([]string{"niclane lab exec sut -- niclane probe", lab.Port}, " "))
	return nil
}
