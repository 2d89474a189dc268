// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/kernel/hardware"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
)

func (a *app) probeCommand() *cobra.Command {
	var groups []string
	cmd := &cobra.Command{
		Use:   "probe [DEV]",
		Short: "Show by which mechanisms this machine can make lanes, and why not by better ones",
		Long: `Probe reads the network devices and finds out what they and the kernel can do. For each
part of a lane it prints the mechanism that niclane would choose, and why the better
mechanisms are not possible. It changes nothing: it tries kernel features in a network
namespace of its own. Without DEV it also prints what the machine is made of (sockets,
BIOS, memory modules, PCIe links, idle states) and what disturbs a measurement
(irqbalance, a firewall), or why that is unknown.

With --json it prints everything that it read, in the format of the planner's test
fixtures. One such file adds a card to the tests.`,
		Args: cli.AtMost(1, "at most one device"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.NeedRoot("probe"); err != nil {
				return err
			}
			st, err := observe.Observe(cmd.Context(), observe.Options{Devices: args, Cgroups: groups, RunDir: a.RunDir})
			if err != nil {
				return err
			}
			if len(args) == 1 && st.Device(args[0]) == nil {
				return fmt.Errorf("no network device %q here", args[0])
			}
			st.Hardware = hardware.Read()
			if a.JSON {
				return a.PrintJSON(st)
			}
			a.printProbe(st, args)
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&groups, "cgroup", nil,
		"also read the cpuset of this control `group`, for --json (repeatable)")
	return cmd
}

func (a *app) printProbe(st *device.State, only []string) {
	fmt.Fprintf(a.Stdout, "Linux %s, %d processors online (%s)\n", st.Kernel.Release,
		len(st.OnlineCPUs()), device.FormatCPUList(st.OnlineCPUs()))
	if len(only) == 0 {
		for _, line := range st.Hardware.Text() {
			fmt.Fprintln(a.Stdout, line)
		}
	}
	if st.IRQBalance {
		fmt.Fprintln(a.Stdout, "irqbalance runs: it moves the interrupts that lanes place (docs/how-to/boot.md)")
	}
	for i := range st.Devices {
		d := &st.Devices[i]
		if len(only) == 1 && d.Name != only[0] || len(only) == 0 && d.Name == "lo" {
			continue
		}
		fmt.Fprintf(a.Stdout, "\n%s: %s\n", d.Name, describe(d))
		plan.WriteChoices(a.Stdout, plan.Choose(st, d, nil))
		fmt.Fprintf(a.Stdout, "%-12s%s\n", "dcb", receivedClass(d))
	}
}

// receivedClass describes how a device sorts received packets by DSCP and PCP.
func receivedClass(d *device.Device) string {
	if d.DCB != nil {
		return d.DCB.Text()
	}
	return fmt.Sprintf("what the device trusts is not known (%s)", d.Capabilities[device.CapDCB].Why)
}

// describe returns a one-line description of a device: driver, queues, speed, NUMA node.
func describe(d *device.Device) string {
	s := d.Driver
	if s == "" {
		s = d.Type
	}
	if d.Emulated {
		s += ", the lab's emulated card behind it"
	}
	s += fmt.Sprintf(", %d rx and %d tx queues", d.RxQueues, d.TxQueues)
	if d.Speed > 0 {
		s += fmt.Sprintf(", %d Mbit/s", d.Speed/1e6)
	}
	if d.Node >= 0 {
		s += fmt.Sprintf(", NUMA node %d", d.Node)
	}
	if !d.Up {
		s += ", down"
	}
	return s
}
