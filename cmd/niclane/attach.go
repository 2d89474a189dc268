// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	niclaneapp "github.com/niclane/niclane/app"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lane/device"
)

func (a *app) attachCommand() *cobra.Command {
	var f laneFlags
	var t niclaneapp.Target
	cmd := &cobra.Command{
		Use:   "attach --lane NAME [FILE] (--pid PID | --unit UNIT | --container ID | --tap DEVICE)",
		Short: "Bring a running application into a lane",
		Long: `Attach brings an application into an applied lane: a process and its descendants, a
systemd unit, a container (by its control group, as docker, podman, containerd, CRI-O
and runc name it), or the virtual machine at a tap or macvtap. The application gets
the lane's control group, processors and memory. Its sockets, existing ones too, get
the lane's priority. With --listeners, connections go to the listener of their queue.
If several files have a lane of this name, give FILE.

Attach changes no file of the application. niclane detach undoes all of this.`,
		Args: cli.AtMost(1, "at most one lanes file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			given := 0
			for _, is := range []bool{cmd.Flags().Changed("pid"), t.Unit != "", t.Container != "", t.Tap != ""} {
				if is {
					given++
				}
			}
			if given != 1 {
				return cli.Usagef("attach: give one of --pid, --unit, --container and --tap")
			}
			if cmd.Flags().Changed("pid") && t.PID < 1 {
				return cli.Usagef("attach: --pid %d: want the ID of a process", t.PID)
			}
			return a.attach(cmd.Context(), &f, first(args), t)
		},
	}
	f.add(cmd)
	cmd.Flags().IntVar(&t.PID, "pid", 0, "the ID of the application's first process")
	cmd.Flags().StringVar(&t.Unit, "unit", "", "the application's systemd unit (\"nginx.service\")")
	cmd.Flags().StringVar(&t.Container, "container", "", "the ID of a container")
	cmd.Flags().StringVar(&t.Tap, "tap", "", "the tap or macvtap of a virtual machine (\"vnet0\")")
	return cmd
}

func (a *app) attach(ctx context.Context, f *laneFlags, file string, t niclaneapp.Target) error {
	l, o, err := a.options(ctx, "attach", f, file)
	if err != nil {
		return err
	}
	r, err := niclaneapp.Attach(l, o, t)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(r)
	}
	fmt.Fprintf(a.Stdout, "%s is in lane %s%s; niclane detach takes it out\n", r.Called(), l.Name, confined(r.Record))
	for _, n := range r.Notes {
		fmt.Fprintln(a.Stdout, "note:", n)
	}
	return nil
}

func confined(r *niclaneapp.Record) string {
	if len(r.CPUs) == 0 {
		return ""
	}
	return ", on processors " + device.FormatCPUList(r.CPUs)
}

func (a *app) detachCommand() *cobra.Command {
	var c niclaneapp.Choice
	cmd := &cobra.Command{
		Use:   "detach [--lane NAME] [--pid PID | --unit UNIT | --container ID | --tap DEVICE]",
		Short: "Take applications out of their lane; they go on running",
		Long: `Detach undoes what run and attach did to applications that still run: to all in a lane,
or to one. Connections stay. The kernel's hash chooses the listeners of new ones.`,
		Args: cli.Exactly(0, "none"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.All = c.PID == 0 && c.Unit == "" && c.Container == "" && c.Tap == ""
			if c.All && c.Lane == "" {
				return cli.Usagef("detach: give --lane, --pid, --unit, --container or --tap")
			}
			if err := cli.NeedRoot("detach"); err != nil {
				return err
			}
			done, err := niclaneapp.Detach(a.RunDir, c)
			if a.JSON {
				return errors.Join(err, a.PrintJSON(done))
			}
			for _, r := range done {
				fmt.Fprintf(a.Stdout, "%s is out of lane %s\n", r.Called(), r.Lane.Name)
			}
			if err == nil && len(done) == 0 {
				return errors.New("no such application is in a lane here")
			}
			return err
		},
	}
	cmd.Flags().StringVar(&c.Lane, "lane", "", "all applications of this lane")
	cmd.Flags().IntVar(&c.PID, "pid", 0, "the ID of the process that was started or attached")
	cmd.Flags().StringVar(&c.Unit, "unit", "", "the systemd unit that was attached")
	cmd.Flags().StringVar(&c.Container, "container", "", "the ID of the container that was attached")
	cmd.Flags().StringVar(&c.Tap, "tap", "", "the device of the virtual machine that was attached")
	return cmd
}
