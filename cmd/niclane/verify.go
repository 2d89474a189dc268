// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/verify"
)

func (a *app) verifyCommand() *cobra.Command {
	during := 2 * time.Second
	var addrs []string
	cmd := &cobra.Command{
		Use:   "verify [FILE|DEV]",
		Short: "Prove from the kernel and from traffic that the lanes hold, or name what does not",
		Long: `Verify reads back from the kernel everything that apply wrote, and what lanes rely on
without a step of apply. It prints each difference: the lane, what niclane wrote, what
is there now, what that means, and the repair.

Then it watches the traffic and says for each lane whether its packets were in its
queues and class, and whether other packets were there. If no packet showed it, the
finding is unknown. Watching changes no packet and no filter, and ends with the
command; Ctrl-C ends it early.

With --probe it also sends packets of the lanes itself, at most 256 and only to the
given addresses: SYNs from the lanes' own addresses and ports, and empty UDP datagrams.
The other host's kernel answers a SYN, whether or not a port is open. With a port that
accepts connections (ADDR:PORT, [ADDR]:PORT), verify makes one connection of each lane
and resets it. Probing needs CAP_NET_ADMIN and CAP_NET_RAW.

Verify repairs nothing. It exits 0 if it finds no drift, and 3 if it finds drift.`,
		Args: cli.AtMost(1, "at most one lanes file or device"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if during < 0 || during > time.Hour {
				return cli.Usagef("verify: --for %v: want 0 (no traffic) to 1h", during)
			}
			targets, err := parseTargets(addrs)
			if err != nil {
				return err
			}
			if len(targets) > 0 && during == 0 {
				return cli.Usagef("verify: --probe with --for 0: verify sees answers only while it watches the traffic")
			}
			if err := cli.NeedRoot("verify"); err != nil {
				return err
			}
			a.noteUnconfirmed()
			return a.verify(cmd.Context(), args, during, targets)
		},
	}
	cli.TimeVar(cmd.Flags(), &during, "for", "time to watch the traffic, at most 1h; 0 compares settings only")
	cmd.Flags().StringArrayVar(&addrs, "probe", nil,
		"an `address` of another host, or ADDR:PORT, to send packets of the lanes to; can be repeated")
	return cmd
}

// verifyOutput is the JSON output of verify, one for each lanes file.
type verifyOutput struct {
	Config   string           `json:"config"`
	Devices  []string         `json:"devices"`
	Findings []verify.Finding `json:"findings"`
	// Probes are the probe packets that verify sent, and the answers.
	Probes []verify.Probe `json:"probes,omitempty"`
	// Traffic is the number of packets that passed each device, by lane and queue.
	Traffic []verify.Watched `json:"traffic,omitempty"`
}

func (a *app) verify(ctx context.Context, args []string, during time.Duration, targets []target) error {
	if err := find(targets); err != nil {
		return err
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	var ws watching
	results, err := a.compare(ctx, args, during > 0, &ws)
	if err != nil {
		return errors.Join(err, ws.close())
	}
	var socks *sockets
	if during > 0 {
		socks = watchSockets()
	}
	began := time.Now()
	if err := ws.probe(ctx, targets, results); err != nil {
		return errors.Join(err, ws.close())
	}
	for i, fs := range ws.end(ctx, began, during) {
		results[i].Findings = append(results[i].Findings, fs...)
	}
	for _, w := range ws {
		if w.err == nil {
			results[w.result].Traffic = append(results[w.result].Traffic, w.last)
			verify.Unseen(results[w.result].Probes, w.last, results[w.result].Findings)
		}
	}
	socks.findings(ctx, a, results)
	drift := false
	for _, r := range results {
		drift = drift || verify.Found(r.Findings, verify.Drift) > 0
	}
	if a.JSON {
		if err := a.PrintJSON(results); err != nil {
			return err
		}
	} else {
		a.printVerified(results)
	}
	if drift {
		return cli.ExitCode{Code: cli.ExitPending}
	}
	return nil
}

// compare compares lanes with the kernel. No apply can run at the same time. If traffic is true, it
// also starts to count the lanes' traffic.
func (a *app) compare(ctx context.Context, args []string, traffic bool, ws *watching) ([]verifyOutput, error) {
	compared, err := a.Engine().Compare(ctx, first(args), func(i int, c *engine.Comparison) {
		if traffic {
			ws.begin(i, c.Applied, c.Now)
		}
	})
	if err != nil {
		return nil, err
	}
	results := []verifyOutput{}
	for _, c := range compared {
		h := c.Journal.Head()
		results = append(results, verifyOutput{Config: h.Config, Devices: h.Devices, Findings: c.Findings})
	}
	return results, nil
}

func (a *app) printVerified(results []verifyOutput) {
	if len(results) == 0 {
		fmt.Fprintln(a.Stdout, "nothing to verify: no lanes are applied here")
	}
	for i, r := range results {
		if i > 0 {
			fmt.Fprintln(a.Stdout)
		}
		verify.WriteText(a.Stdout, r.Findings)
		verify.WriteProbes(a.Stdout, r.Probes)
		fmt.Fprintf(a.Stdout, "%s: %d drift, %d unknown, %d ok\n", r.Config,
			verify.Found(r.Findings, verify.Drift), verify.Found(r.Findings, verify.Unknown),
			verify.Found(r.Findings, verify.OK))
	}
}
