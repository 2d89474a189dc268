// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/bench/experiment"
	experiments "github.com/niclane/niclane/bench/run"
	"github.com/niclane/niclane/cmd/internal/cli"
)

func (a *app) runCommand() *cobra.Command {
	b := &bench{app: a}
	var hosts, scale string
	var quick, trial bool
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Measure what an experiment file says",
		Long: `Run carries out an experiment file, experiment.yaml(5): it raises the lab, starts
the server and waits for its answer, measures every variant at every load point
in interleaved repeats, and proves the workload from the server's own counters.
It prints a table and writes result.json to --out. After an interrupt or a failure
it keeps what was measured, marked partial. In any case it removes what it made in
the machine.

In the lab, the file's sizes.lab replaces the numbers for hosts. --virtual applies
sizes.virtual too, and --quick sizes.quick; --trial measures one short window of each variant. If a run
fails, logs/ in --out has the last output of the servers.

With --hosts, hosts.yaml(5), it runs on hosts with "niclane bench serve" instead of
the lab, and needs no root on this machine.`,
		Args: cli.Exactly(1, "the experiment's file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := b.check(); err != nil {
				return err
			}
			on, err := readHosts(hosts)
			if err != nil {
				return err
			}
			o := experiment.Options{Hosts: on, Quick: quick, Trial: trial, Virtual: b.virtual}
			if o.Scale, err = permille(scale); err != nil {
				return err
			}
			f, text, err := experiments.ReadWith(args[0], o)
			if err != nil {
				return err
			}
			return b.measure(cmd.Context(), f, text)
		},
	}
	b.flags(cmd)
	cmd.Flags().StringVar(&hosts, "hosts", "", "hosts `file`: run on these hosts' agents, not in the lab")
	cmd.Flags().BoolVar(&quick, "quick", false,
		"the file's quick form, of less than 3 minutes: shows that it runs, and rough figures")
	cmd.Flags().BoolVar(&trial, "trial", false,
		"one short window of each variant at the highest load: shows that everything starts, before a run of hours")
	cmd.Flags().StringVar(&b.kubectl.Config, "kubeconfig", "",
		"kubeconfig `file` of the cluster for server.kind: pod (default: as kubectl chooses)")
	cmd.Flags().StringVar(&b.kubectl.Context, "kube-context", "",
		"`context` in the kubeconfig (default: the current one)")
	cmd.Flags().StringVar(&scale, "connections", "", "`share` of the file's numbers of connections to use, as 10%")
	return cmd
}

// permille converts a share in percent, such as "2.5%", to permille. For "" it returns 0.
func permille(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if p := int(math.Round(n * 10)); err == nil && strings.HasSuffix(text, "%") && p >= 1 && n <= 1000 {
		return p, nil
	}
	return 0, cli.Usagef("bench run: --connections %s: want a share from 0.1%% to 1000%%", text)
}

// readHosts reads a hosts file. For "" it returns nil.
func readHosts(path string) (*experiment.Hosts, error) {
	if path == "" {
		return nil, nil
	}
	return experiments.ReadHosts(path)
}
