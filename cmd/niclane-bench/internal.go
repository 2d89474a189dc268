// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/niclane/niclane/app/led"
	"github.com/niclane/niclane/bench/agent"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/generator"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/part/cache"
	"github.com/niclane/niclane/bench/part/fetch"
	"github.com/niclane/niclane/bench/part/hiccup"
	"github.com/niclane/niclane/bench/part/httpserver"
	"github.com/niclane/niclane/bench/part/memserver"
	"github.com/niclane/niclane/bench/part/nodes"
	"github.com/niclane/niclane/bench/part/tune"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/poller"
)

// runInternal runs a part of niclane-bench that needs its own process, if args name one. Only
// niclane-bench starts such processes, users do not. The parts of package bench read a
// configuration as JSON from standard input, and write a result as JSON to standard output.
func runInternal(args []string, stdin io.Reader, stdout, stderr io.Writer) (int, bool) {
	if len(args) == 0 {
		return 0, false
	}
	if code, ok := runAgentInternal(args, stderr); ok {
		return code, true
	}
	if args[0] == cli.VirtualInit {
		fmt.Fprintln(stderr, cli.Prefixed(cli.InitGuest(args[1:])))
		return cli.ExitError, true
	}
	if run, ok := map[string]func(string) error{apply.GuardArg: apply.RunGuard, poller.Command: poller.Main,
		trialGuardArg: runTrialGuard}[args[0]]; ok && len(args) == 2 {
		if err := run(args[1]); err != nil {
			fmt.Fprintln(stderr, cli.Prefixed(err))
			return cli.ExitError, true
		}
		return cli.ExitDone, true
	}
	if args[0] == lab.HelperCommand {
		fmt.Fprintln(stderr, cli.Prefixed(lab.ExecMain(args[1:]))) // ExecMain returns only on an error
		return cli.ExitError, true
	}
	run, ok := map[string]func(context.Context, io.Reader, io.Writer) error{
		"internal-load":     worker(generate),
		"internal-noise":    worker(noise.Run),
		"internal-server":   worker(memserver.Run),
		"internal-http":     worker(httpserver.Run),
		"internal-counters": worker(generator.Counters),
		"internal-hiccup":   worker(hiccup.Run),
		"internal-tune":     worker(tuneHost),
		"internal-cache":    worker(cache.Run),
		"internal-fetch":    worker(fetch.Run),
		"internal-nodes":    worker(nodes.Run),
		"internal-led":      worker(lead),
	}[args[0]]
	if !ok {
		return 0, false
	}
	ctx, stop := cli.Interruptible(context.Background())
	defer stop()
	if err := run(ctx, stdin, stdout); err != nil {
		fmt.Fprintln(stderr, cli.Prefixed(err))
		return cli.ExitError, true
	}
	return cli.ExitDone, true
}

// worker returns a function that reads run's configuration as JSON from in, calls run, and writes
// run's result as JSON to out.
func worker[C, R any](run func(context.Context, C) (R, error)) func(context.Context, io.Reader, io.Writer) error {
	return func(ctx context.Context, in io.Reader, out io.Writer) error {
		var c C
		dec := json.NewDecoder(in)
		dec.DisallowUnknownFields()
		if err := dec.Decode(&c); err != nil {
			return fmt.Errorf("configuration: %w", err)
		}
		r, err := run(ctx, c)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(r)
	}
}

// lead runs package led. If an agent started this process, only listeners of the agent's session
// get connections.
func lead(ctx context.Context, c led.Config) (led.Result, error) {
	c.Group = os.Getenv(agent.GroupVariable)
	return led.Run(ctx, c)
}

// tuneHost runs package tune. If an agent started this process, the agent restores what a killed
// process leaves.
func tuneHost(ctx context.Context, c tune.Config) (tune.Result, error) {
	c.Record = os.Getenv(agent.TuneVariable)
	return tune.Run(ctx, c)
}

// generate runs the load generator. If it is interrupted, generate returns what was measured until
// then, marked as partial, and no error.
func generate(ctx context.Context, c load.Config) (load.Result, error) {
	r, err := generator.Run(ctx, c)
	if r.Partial {
		return r, nil
	}
	return r, err
}
