// SPDX-License-Identifier: Apache-2.0

// Command sweep simulates lanes over ranges of noise, buffers, links, lanes and members, and draws what
// they do to latency on one page. It runs "niclane simulate" for each point: "make sweep".
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/niclane/niclane/bench/page"
	"github.com/niclane/niclane/bench/simulate"
	"github.com/niclane/niclane/internal/kernel/sched"
)

func main() {
	niclane := flag.String("niclane", "bin/niclane", "`path` of the niclane to run")
	out := flag.String("out", "out/sweep", "`directory` for report.html and sweep.json")
	only := flag.String("only", "", "`words` that the titles of the sweeps to make contain")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *niclane, *out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "sweep:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, niclane, out, only string) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	dir, err := os.MkdirTemp("", "niclane-sweep-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	version, err := exec.CommandContext(ctx, niclane, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s: %w", niclane, err)
	}
	p := page.Sweeps{Title: "What lanes do to queueing", Niclane: strings.Fields(string(version))[1], Lead: []string{
		"Each point is the median of runs of niclane simulate with three seeds, and their range: requests of 64 " +
			"bytes to a lane, beside other traffic that asks for a share of the link in both directions",
		"The link has 1 Gbit/s, where nothing else is said. A lane has 2 of 8 queues",
	}}
	cpus, err := sched.Affinity(0)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(len(cpus))
	free := make(chan int, len(cpus)) // a guest takes a processor
	for _, cpu := range cpus {
		free <- cpu
	}
	var done []*points
	for _, s := range sweeps() {
		if !strings.Contains(s.title, only) {
			continue
		}
		at := &points{sweep: s, results: map[point]*simulate.Result{}}
		done = append(done, at)
		for _, x := range s.values {
			for _, c := range s.cases {
				if !c.lanes {
					continue // the side without lanes of another case
				}
				for seed := range seeds {
					g.Go(func() error {
						cpu := <-free
						defer func() { free <- cpu }()
						r, err := simulated(ctx, niclane, dir, s, c, x, seed, cpu)
						if err != nil {
							return fmt.Errorf("%s, %s at %g: %w", s.title, c.name, x, err)
						}
						at.set(point{c.name, x, seed}, r)
						return nil
					})
				}
			}
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, at := range done {
		p.Sweeps = append(p.Sweeps, at.page())
	}
	return write(out, p)
}

// simulated runs a simulation on a processor.
func simulated(ctx context.Context, niclane, dir string, s sweep, c kase, x float64, seed, cpu int) (
	*simulate.Result, error) {
	f, err := os.CreateTemp(dir, "*.yaml")
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(c.file(x))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "taskset", append([]string{"--cpu-list", strconv.Itoa(cpu), niclane, "simulate",
		f.Name(), "--json", "--virtual-seed", strconv.Itoa(seed + 1)}, s.args(x)...)...)
	var said strings.Builder
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
	}
	fmt.Fprintf(os.Stderr, "%s: %s, %s, seed %d\n", s.title, c.name, strings.Join(s.args(x), " "), seed+1)
	r := &simulate.Result{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, err
	}
	for _, l := range r.Lanes {
		if l.Missing != "" {
			return nil, fmt.Errorf("lane %s got no requests: %s", l.Name, l.Missing)
		}
	}
	return r, nil
}

func write(out string, p page.Sweeps) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "sweep.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(out, "report.html"))
	if err != nil {
		return err
	}
	err = page.WriteSweeps(f, p)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	fmt.Println(f.Name())
	return nil
}
