// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/niclane/niclane/bench/experiment"
	experiments "github.com/niclane/niclane/bench/run"
)

func (a *app) benchRunCommand() *cobra.Command {
	b := &bench{app: a}
	var hosts string
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Measure what an experiment file says",
		Long: `Run carries out an experiment file, experiment.yaml(5): it raises the lab, starts
the server and waits for its answer, measures every variant at every load point
in interleaved repeats, and proves the workload from the server's own counters.
It prints a table and writes result.json to --out. An interrupt or a failure
keeps what was measured, marked partial; what it made in the machine it removes
again in any case.

With --hosts, hosts.yaml(5), it runs on machines that each have a "niclane bench
serve", in the place of the lab, and needs no root on this one.`,
		Args: exactly(1, "the experiment's file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := b.check(); err != nil {
				return err
			}
			on, err := readHosts(hosts)
			if err != nil {
				return err
			}
			f, text, err := experiments.ReadOn(args[0], on)
			if err != nil {
				return err
			}
			return b.measure(cmd.Context(), f, text)
		},
	}
	b.flags(cmd)
	cmd.Flags().StringVar(&hosts, "hosts", "", "hosts file: run on these hosts' agents, not in the lab")
	return cmd
}

// readHosts reads a hosts file, "" for none.
func readHosts(path string) (*experiment.Hosts, error) {
	if path == "" {
		return nil, nil
	}
	return experiments.ReadHosts(path)
}
