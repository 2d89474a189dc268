// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/bench/agent"
	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/part/ready"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/internal/traffic/probe"
	"github.com/niclane/niclane/selftest"
)

// agentPort is the default port of --peer, as in hosts.yaml(5).
const agentPort = "7411"

// Names of the files that selftest writes.
const (
	selftestFile = "selftest.json"
	selftestPage = "selftest.html"
)

// A selfTest holds the command's arguments.
type selfTest struct {
	*app
	dev, peer                   string
	addresses                   []string
	files                       agent.Files
	port, rounds                int
	during, window              time.Duration
	within                      time.Duration
	rate                        float64
	noise, linkRate             uint64 // bit/s
	cases                       []string
	out                         string
	yes, force, identify, notry bool
}

func (a *app) selftestCommand() *cobra.Command {
	s := &selfTest{app: a, during: 2 * time.Second, within: 2 * time.Minute, window: 3 * time.Second}
	cmd := &cobra.Command{
		Use:   "selftest DEV --peer HOST[:PORT] --cert FILE --key FILE --ca FILE",
		Short: "Try lanes on a card with real traffic, and put everything back",
		Long: `Selftest tries every kind of rule that DEV can take, and every mechanism of a lane
that DEV allows, with traffic from another host that runs "niclane bench serve". In
each case it checks that all packets of the lane, and no others, arrive in the
lane's queues. It counts link flaps and lost connections, and checks that
everything was put back. Then it measures the latency of the lane's port with the
lane and without it. It writes one record, selftest.json and selftest.html,
without addresses and names.

Selftest first shows what it would do, and asks; --yes answers. It refuses a device
that has lanes. Without --force, it also refuses a device that carries the default
route or this login's connection. It rolls each case back after its test; if
selftest is killed or the connection is lost, the lanes undo themselves.

Packets of the lane go to --port, other packets to the port after it, and --noise
to the port after that. Selftest connects to the peer at --peer; the traffic uses
--peer-address. With an address of each family, it tries IPv4 and IPv6. It exits 0
when nothing failed, 3 when a lane did not hold, 1 on another error.`,
		Args: cli.Exactly(1, "a network device"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.dev = args[0]
			if err := s.check(); err != nil {
				return err
			}
			if err := cli.NeedRoot("selftest"); err != nil {
				return err
			}
			ctx, stop := cli.Interruptible(cmd.Context())
			defer stop()
			return s.run(ctx)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.peer, "peer", "", "host, or HOST:PORT, where niclane bench serve listens (port "+agentPort+")")
	f.StringArrayVar(&s.addresses, "peer-address", nil,
		"the peer's `address` that DEV reaches, repeated for the other family (default: that of --peer)")
	f.StringVar(&s.files.Certificate, "cert", "", "certificate of this side (PEM)")
	f.StringVar(&s.files.Key, "key", "", "its private key (PEM, mode 0600)")
	f.StringVar(&s.files.Authority, "ca", "", "authority of the peer's certificate (PEM)")
	f.IntVar(&s.port, "port", 17411, "port of the lane's traffic; the two after it are used too")
	cli.TimeVar(f, &s.during, "for", "how long each case's traffic is watched")
	cli.TimeVar(f, &s.within, "confirm-within", "when lanes undo themselves if selftest has not undone them")
	f.IntVar(&s.rounds, "rounds", 6, "rounds of latency, 0 for none")
	cli.TimeVar(f, &s.window, "window", "length of each measurement of latency")
	f.Float64Var(&s.rate, "rate", 2000, "requests per second while latency is measured")
	cli.RateVar(f, &s.noise, "noise", "bulk traffic toward this host while latency is measured, as 500mbit")
	cli.RateVar(f, &s.linkRate, "link-rate", "rate of the link, as 10gbit, if the device does not report it")
	f.StringArrayVar(&s.cases, "case", nil, "try only this `case`, by its name in the plan; can be repeated")
	f.StringVar(&s.out, "out", "selftest", "`directory` for the record")
	f.BoolVar(&s.yes, "yes", false, "do not ask")
	f.BoolVar(&s.notry, "dry-run", false, "show what would be tried, and end")
	f.BoolVar(&s.force, "force", false, "test even a device that carries the default route or this login")
	f.BoolVar(&s.identify, "identify", false, "leave addresses and names in the record")
	cmd.AddCommand(a.selftestShowCommand())
	return cmd
}

func (s *selfTest) check() error {
	for _, f := range []struct{ flag, value string }{{"peer", s.peer}, {"cert", s.files.Certificate},
		{"key", s.files.Key}, {"ca", s.files.Authority}} {
		if f.value == "" {
			return cli.Usagef("selftest: --%s is missing; see niclane selftest --help", f.flag)
		}
	}
	if _, _, err := net.SplitHostPort(s.peer); err != nil {
		s.peer = net.JoinHostPort(strings.Trim(s.peer, "[]"), agentPort)
	}
	for _, x := range []struct {
		flag      string
		v, lo, hi time.Duration
	}{{"for", s.during, 100 * time.Millisecond, time.Minute}, {"window", s.window, 100 * time.Millisecond, time.Minute},
		{"confirm-within", s.within, 20 * time.Second, time.Hour}} {
		if x.v < x.lo || x.v > x.hi {
			return cli.Usagef("selftest: --%s %v: want %v to %v", x.flag, x.v, x.lo, x.hi)
		}
	}
	switch {
	case s.port < 1024 || s.port > 65533:
		return cli.Usagef("selftest: --port %d: want 1024 to 65533", s.port)
	case s.rounds < 0 || s.rounds == 1 || s.rounds > 100:
		return cli.Usagef("selftest: --rounds %d: want 0, or 2 to 100", s.rounds)
	case !(s.rate >= 1 && s.rate <= 1e6):
		return cli.Usagef("selftest: --rate %v: want 1 to 1000000", s.rate)
	case s.noise > 0 && s.noise < 1_000_000 || s.noise > 1e12:
		return cli.Usagef("selftest: --noise %d: want 1000000 to 1000000000000 bit/s, or none", s.noise)
	case s.linkRate > 0 && s.linkRate < 1_000_000 || s.linkRate > 1e12:
		return cli.Usagef("selftest: --link-rate %d: want 1000000 to 1000000000000 bit/s", s.linkRate)
	case len(s.addresses) > 2:
		return cli.Usagef("selftest: --peer-address: %d addresses, want one of each family", len(s.addresses))
	}
	return nil
}

// link returns the link's rate as a lanes file writes it (25gbit), or "" if it is not known.
func (s *selfTest) link() string {
	if s.linkRate == 0 {
		return ""
	}
	return strictyaml.BitsText(s.linkRate)
}

func (s *selfTest) run(ctx context.Context) error {
	ends, err := s.ends(ctx)
	if err != nil {
		return err
	}
	if err := s.refuse(); err != nil {
		return err
	}
	m, err := s.machine()
	if err != nil {
		return err
	}
	defer m.close()
	c := selftest.Config{
		Target:  selftest.Target{Device: s.dev, LinkRate: s.link(), Port: s.port, Ends: ends},
		Machine: m, Niclane: version, During: s.during, Within: s.within, Only: s.cases, Progress: s.Stderr,
		Latency: selftest.LatencyConfig{Rounds: s.rounds, Window: s.window, Rate: s.rate, Noise: int64(s.noise)},
	}
	cases, err := selftest.Plan(ctx, c)
	if err != nil {
		return err
	}
	if !s.yes || s.notry {
		s.show(cases)
	}
	if s.notry {
		return nil
	}
	if err := s.ask(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	r, err := s.try(ctx, c)
	if r == nil {
		return err
	}
	if err = errors.Join(err, s.write(r)); err != nil {
		return err
	}
	if failed := r.Count(selftest.Failed); failed > 0 {
		return cli.ExitCode{Code: cli.ExitPending, Err: fmt.Errorf("%s failed: see %s", cli.Plural(failed, "case"),
			filepath.Join(s.out, selftestPage))}
	}
	return nil
}

// ends returns pairs of addresses: one address of this host and one of the peer, at most one pair
// for each IP version. Packets between them pass the device.
func (s *selfTest) ends(ctx context.Context) ([]selftest.End, error) {
	list := s.addresses
	if len(list) == 0 {
		host, _, err := net.SplitHostPort(s.peer)
		if err != nil {
			return nil, cli.Usagef("selftest: --peer: %w", err)
		}
		all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, fmt.Errorf("--peer: %w", err)
		}
		list = []string{all[0].Unmap().String()}
	}
	var out []selftest.End
	for _, text := range list {
		addr, port, err := probe.ParseTarget(text)
		if err == nil && port != 0 {
			err = errors.New("it has a port: want an address alone")
		}
		if err != nil {
			return nil, cli.Usagef("selftest: --peer-address %s: %w", text, err)
		}
		path, err := s.path(addr)
		if err != nil {
			return nil, err
		}
		if len(out) > 0 && out[0].Peer.Is4() == addr.Is4() {
			return nil, cli.Usagef("selftest: --peer-address: %s and %s are of one family, want one of each",
				out[0].Peer, addr)
		}
		out = append(out, selftest.End{Own: path.Source, Peer: addr})
	}
	return out, nil
}

// show prints what selftest would try.
func (s *selfTest) show(cases []selftest.Case) {
	refused, disruptive := 0, 0
	for _, c := range cases {
		if c.Outcome == selftest.Refused {
			refused++
			continue
		}
		word := ""
		if len(c.Disruptive) > 0 {
			word = ", packets in flight can be lost: " + c.Disruptive[0]
			disruptive++
		}
		fmt.Fprintf(s.Stderr, "%s: %s%s\n", c.Name, cli.Plural(c.Steps, "step"), word)
	}
	tried := len(cases) - refused
	about := time.Duration(tried)*(s.during+2*time.Second) + time.Duration(2*s.rounds)*(s.window+2*time.Second)
	fmt.Fprintf(s.Stderr, "%s on %s, each applied, watched for %v and undone; %d with steps that can lose packets; "+
		"%d more are refused by the planner\n",
		cli.Plural(tried, "case"), s.dev, s.during, disruptive, refused)
	if s.rounds > 0 {
		noise := "no bulk traffic"
		if s.noise > 0 {
			noise = result.BitsText(float64(s.noise)) + " of bulk traffic"
		}
		fmt.Fprintf(s.Stderr, "latency in %s of 2 × %v, %.0f requests/s, %s; the lane is applied and undone in each\n",
			cli.Plural(s.rounds, "round"), s.window, s.rate, noise)
	}
	fmt.Fprintf(s.Stderr, "about %v\n", about.Round(time.Second))
}

// errNotAsked is returned if the user did not agree to the changes.
var errNotAsked = errors.New("nothing was changed")

func (s *selfTest) ask(ctx context.Context) error {
	if s.yes {
		return nil
	}
	if !cli.IsTerminal(s.Stdin) {
		return fmt.Errorf("selftest asks before it changes anything, and standard input is no terminal: --yes "+
			"answers; %w", errNotAsked)
	}
	fmt.Fprint(s.Stderr, "go on? [y/N] ")
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(s.Stdin).ReadString('\n')
		line <- text
	}()
	select {
	case text := <-line:
		if t := strings.ToLower(strings.TrimSpace(text)); t == "y" || t == "yes" {
			return nil
		}
		return errNotAsked
	case <-ctx.Done():
		return errNotAsked
	}
}

// try connects to the peer's agent and runs the selftest.
func (s *selfTest) try(ctx context.Context, c selftest.Config) (*selftest.Record, error) {
	tls, err := s.files.Client()
	if err != nil {
		return nil, err
	}
	client, err := agent.Open(ctx, agent.Dial{
		Name: "peer", Address: s.peer, TLS: tls, Version: version,
		Opening: agent.Opening{Purpose: "selftest of another host's card", Limit: int64(6 * time.Hour)},
	})
	if err != nil {
		return nil, err
	}
	niclane, err := os.Executable()
	if err != nil {
		return nil, errors.Join(err, client.Close(ctx))
	}
	c.Own, c.Peer = selftest.NewLocal(niclane), asking{selftest.Remote{Client: client}}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-client.Lost():
			cancel(client.Err())
		case <-ctx.Done():
		}
	}()
	r, err := selftest.Run(ctx, c)
	closing, stop := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer stop()
	if failed := client.Close(closing); failed != nil && context.Cause(ctx) == nil {
		err = errors.Join(err, failed)
	}
	if r != nil {
		s.scrub(r, c.Ends, client.Host.Hostname)
	}
	return r, err
}

// asking adds the method Asks to the peer. By it, the peer sends a memcached request to a server.
type asking struct{ selftest.Remote }

func (a asking) Asks(ctx context.Context, at netip.AddrPort) error {
	return a.Ask(ctx, agent.Asking{Address: at.String(),
		Question: ready.Question{Protocol: experiment.ProtocolMemcached}})
}

// scrub replaces names and addresses in the record. With --identify, it keeps them.
func (s *selfTest) scrub(r *selftest.Record, ends []selftest.End, peer string) {
	if s.identify {
		r.Identified = true
		return
	}
	host, _ := os.Hostname()
	name, _, _ := net.SplitHostPort(s.peer)
	x := &selftest.Scrubber{Names: []string{host, peer, name}, Devices: []string{s.dev}}
	for _, e := range ends {
		x.Own, x.Peer = append(x.Own, e.Own), append(x.Peer, e.Peer)
	}
	x.Record(r)
}

// write saves the record and its page, and prints the record.
func (s *selfTest) write(r *selftest.Record) error {
	for _, f := range []struct {
		name  string
		write func(io.Writer, *selftest.Record) error
	}{{selftestFile, selftest.Write}, {selftestPage, selftest.WritePage}} {
		if err := writeWhole(filepath.Join(s.out, f.name),
			func(w io.Writer) error { return f.write(w, r) }); err != nil {
			return err
		}
	}
	if s.JSON {
		return selftest.Write(s.Stdout, r)
	}
	if err := selftest.WriteText(s.Stdout, r); err != nil {
		return err
	}
	fmt.Fprintf(s.Stderr, "record: %s\n", filepath.Join(s.out, selftestPage))
	return nil
}

func (a *app) selftestShowCommand() *cobra.Command {
	format := "text"
	cmd := &cobra.Command{
		Use:   "show RECORD",
		Short: "Print a selftest's record again",
		Long: `Show reads the selftest.json of a selftest and writes it as text, as the HTML page,
or as its row of the table in docs/hardware.md.`,
		Args: cli.Exactly(1, "a record, selftest.json"),
		RunE: func(_ *cobra.Command, args []string) error {
			write, ok := map[string]func(io.Writer, *selftest.Record) error{"text": selftest.WriteText,
				"html": selftest.WritePage, "row": selftest.WriteRow}[format]
			if !ok {
				return cli.Usagef("selftest show: --format %s: want text, html or row", format)
			}
			r, err := selftest.ReadFile(args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				write = selftest.Write
			}
			return write(a.Stdout, r)
		},
	}
	cmd.Flags().StringVar(&format, "format", format, "`format`: text, html or row")
	return cmd
}
