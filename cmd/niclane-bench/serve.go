// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/bench/agent"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/program"
)

func (a *app) serveCommand() *cobra.Command {
	c := agent.Config{User: agent.DefaultUser, Clients: []string{agent.DefaultClient}, Lease: agent.DefaultLease,
		Limit: 24 * time.Hour}
	var listen string
	var commands []string
	cmd := &cobra.Command{
		Use:   "serve --listen ADDR:PORT --cert FILE --key FILE --ca FILE",
		Short: "Let another host measure with this one",
		Long: `Serve is the agent on each host of an experiment: "niclane bench run --hosts" on
another host connects to it, by TLS 1.3 with certificates on both sides. It serves
one orchestrator at a time: it runs generators, noise and servers, and with --lanes
it applies and rolls back lanes. It undoes its changes when the orchestrator is
done, is silent for --lease, or loses its connection.

It needs root only for --lanes and for counters of other users' processes; jobs
run as --user even then. It starts a program other than niclane only if
--allow-commands names the program. Variants of an experiment may tune the network
and the devices of --lanes. --allow-tune lets them set the processors' governor and
energy preference, and stop the named services. All of it is restored at the end,
also after a kill.`,
		Args: cli.Exactly(0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, f := range []struct{ flag, value string }{{"listen", listen}, {"cert", c.Files.Certificate},
				{"key", c.Files.Key}, {"ca", c.Files.Authority}} {
				if f.value == "" {
					return cli.Usagef("bench serve: --%s is missing; see niclane bench serve --help", f.flag)
				}
			}
			if _, _, err := net.SplitHostPort(listen); err != nil {
				return cli.Usagef("bench serve: --listen: %w, want ADDR:PORT", err)
			}
			c.Any, c.Commands = len(commands) == 1 && commands[0] == "all", commands
			c.Version, c.StateDir, c.RunDir, c.Log = version, a.StateDir, a.RunDir, a.Stderr
			var err error
			if c.Self, err = os.Executable(); err != nil {
				return err
			}
			if len(c.Devices) > 0 {
				if _, err := program.Find(program.Niclane); err != nil {
					return fmt.Errorf("bench serve: --lanes: %w", err)
				}
			}
			if c.Any {
				c.Commands = nil
			}
			if c.Dir == "" {
				c.Dir = agentDir()
			}
			ctx, stop := cli.Interruptible(cmd.Context())
			defer stop()
			return serveAgent(ctx, c, listen, a.Stdout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "", "address and port to listen on")
	f.StringVar(&c.Files.Certificate, "cert", "", "certificate of this host (PEM)")
	f.StringVar(&c.Files.Key, "key", "", "its private key (PEM, mode 0600)")
	f.StringVar(&c.Files.Authority, "ca", "", "authority of the orchestrators' certificates (PEM)")
	f.StringSliceVar(&c.Clients, "client", c.Clients, "`names` in the certificates of the orchestrators that "+
		"may connect")
	f.StringSliceVar(&commands, "allow-commands", nil, "`paths` of programs that may be started, or all")
	f.StringSliceVar(&c.Devices, "lanes", nil, "`devices` that lanes may be made on")
	f.StringSliceVar(&c.Tune, "allow-tune", nil, "`what` an experiment may tune beside the network: processors "+
		"(governor, energy), and services to stop, such as irqbalance,firewalld")
	f.StringVar(&c.User, "user", c.User, "user that jobs run as, if the agent is root: `USER[:GROUP]`")
	f.StringVar(&c.Dir, "dir", "", "the agent's `directory` (default /run/niclane-bench, or one of the user's)")
	cli.TimeVar(f, &c.Lease, "lease", "how long an orchestrator may be silent")
	cli.TimeVar(f, &c.Limit, "limit", "how long a session may last")
	return cmd
}

// serveAgent runs the agent. When the agent listens, serveAgent prints the agent's address on out.
func serveAgent(ctx context.Context, c agent.Config, listen string, out io.Writer) error {
	ag, err := agent.New(c)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return errors.Join(err, ag.Close())
	}
	fmt.Fprintf(out, "%s%s\n", agent.Listening, l.Addr())
	return ag.Serve(ctx, l)
}

// runAgentInternal runs a process that the agent starts, if args name one: its keeper, or the
// helper that becomes a job's program.
func runAgentInternal(args []string, stderr io.Writer) (int, bool) {
	var err error
	switch {
	case args[0] == agent.JobCommand:
		err = agent.JobMain(args[1:]) // JobMain returns only on an error
	case args[0] == agent.KeeperCommand && len(args) == 2:
		err = agent.KeeperMain(args[1])
	default:
		return 0, false
	}
	if err != nil {
		fmt.Fprintln(stderr, cli.Prefixed(err))
		return cli.ExitError, true
	}
	return cli.ExitDone, true
}

// agentDir returns the agent's default directory.
func agentDir() string {
	if os.Geteuid() == 0 {
		return "/run/niclane-bench"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "niclane-bench")
	}
	return filepath.Join(os.TempDir(), "niclane-bench-"+strconv.Itoa(os.Getuid()))
}

func (a *app) certsCommand() *cobra.Command {
	var hosts []string
	client, valid := agent.DefaultClient, 30*24*time.Hour
	cmd := &cobra.Command{
		Use:   "certs DIR --hosts NAME,...",
		Short: "Make certificates for agents and orchestrator",
		Long: `Certs makes an authority, a certificate and key for each host, and one for the
orchestrator, for users without an authority of their own. HOST.pem, HOST.key and
ca.pem go to the host; niclane-bench.pem, niclane-bench.key and ca.pem stay with
the orchestrator. Certs does not keep the authority's key, so nothing else can be
signed with it. To add a host, make all certificates again.`,
		Args: cli.Exactly(1, "a directory"),
		RunE: func(_ *cobra.Command, args []string) error {
			files, err := agent.MakeCertificates(args[0], hosts, client, valid, time.Now())
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(map[string][]string{"files": files})
			}
			for _, f := range files {
				fmt.Fprintln(a.Stdout, f)
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&hosts, "hosts", nil, "names or addresses at which the agents are reached")
	cmd.Flags().StringVar(&client, "client", client, "`name` of the orchestrator")
	cli.TimeVar(cmd.Flags(), &valid, "valid", "how long the certificates are valid, at most 366 days")
	return cmd
}
