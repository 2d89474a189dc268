// SPDX-License-Identifier: Apache-2.0

// Command matrix runs niclane's namespace tests on other kernels than the machine's own. It boots
// Debian's kernels in QEMU guests, which see the machine's file system. It fails if a test fails,
// if a test is skipped that the kernel should run, or if a capability is missing that the kernel's
// version should have.
//
// It installs kernels only in the user's cache directory. If it cannot get every kernel that it was
// asked for, it stops.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// series lists the kernels to test, by the names that tools/kernel uses. Kernel past is only for the suites
// internal/traffic/wait and live/waits, and is tested only if the user names it and the suites.
var series = []string{oldest, "6.12", newest}

const (
	past   = "5.10"
	oldest = "6.1"
	newest = "unstable"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == guestCommand {
		if err := inGuest(os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 2 && os.Args[1] == peerCommand {
		fmt.Fprintln(os.Stderr, servePeer())
		os.Exit(1)
	}
	kernels := flag.String("kernels", strings.Join(series, ","), "kernels to run, separated by commas")
	only := flag.String("only", "", "suites to run, separated by semicolons; all if empty")
	benchmark := flag.Bool("bench", false, "measure, and print tables, instead of running the suites")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, strings.Split(*kernels, ","), *only, *benchmark); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

// run runs the suites on each kernel and prints the problems. As many guests run at the same time
// as there are processors; for benchmarks only one. After a problem on one kernel, the other
// kernels are still tested.
func run(ctx context.Context, kernels []string, only string, benchmark bool) error {
	chosen, err := choose(only, ";")
	if err != nil {
		return err
	}
	if benchmark && only == "" {
		chosen = benchmarks
	}
	for _, k := range kernels {
		if !slices.Contains(series, k) && (k != past || only == "") {
			return fmt.Errorf("kernel %q: want one of %s, or %s with -only", k, strings.Join(series, ", "), past)
		}
	}
	b, err := newBench(ctx)
	if err != nil {
		return err
	}
	if err := b.build(chosen, kernels); err != nil {
		return err
	}
	atOnce := runtime.NumCPU() // a guest uses one thread, see emulation
	if benchmark {
		atOnce = 1
	}
	turn := make(chan struct{}, atOnce)
	reports := make([]chan report, len(kernels))
	for i, k := range kernels {
		reports[i] = make(chan report, 1)
		chosen := chosen
		if only == "" {
			chosen = onKernel(k, chosen)
		}
		go func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			var text strings.Builder
			err := b.kernel(&text, k, chosen)
			reports[i] <- report{text.String(), err}
		}()
	}
	var errs []error
	for i, k := range kernels {
		r := <-reports[i]
		fmt.Print(r.text)
		if r.err != nil {
			errs = append(errs, fmt.Errorf("kernel %s: %w", k, r.err))
		}
	}
	return errors.Join(errs...)
}

// A report is what was printed for one kernel.
type report struct {
	text string
	err  error
}

// kernel runs the suites on the newest kernel of a series and prints the results.
func (b *bench) kernel(w io.Writer, series string, chosen []suite) error {
	start := time.Now()
	g, err := b.fetch(series)
	if err != nil {
		return err
	}
	chosen = slices.DeleteFunc(slices.Clone(chosen), func(s suite) bool { return !within(g.release, s.since, "") })
	fmt.Fprintf(w, "== %s: %s (%s)\n", series, g.release, g.packages)
	booted := time.Now()
	r := &results{release: g.release}
	var problems []string
	for i, together := range byNodes(chosen) {
		machine := *g
		if i > 0 {
			machine.series += ".nodes"
		}
		one, err := b.bootAgain(w, &machine, together)
		if g.log = machine.log; err != nil {
			return fmt.Errorf("%s: %w; the guest's output is in %s", g.release, err, g.log)
		}
		problems = append(problems, one.judge(together, skips, defects)...)
		r.sections = append(r.sections, one.sections...)
	}
	for _, s := range r.sections {
		fmt.Fprintf(w, "   %s\n", s)
		if d := known(defects, r.release, s.name); d != nil {
			fmt.Fprintf(w, "   KNOWN   %s: %s\n", s.name, d.why)
		}
	}
	for _, c := range chosen {
		s := r.section(c.name)
		switch {
		case c.bench == "" || s == nil || s.outcome != "ok":
		case c.per == "":
			fmt.Fprintln(w, strings.Join(s.text, "\n"))
		default:
			if err := s.table(w, c.per); err != nil {
				problems = append(problems, err.Error())
			}
		}
	}
	if failed := suitesOf(problems, chosen); len(failed) > 0 {
		again, err := b.secondRun(w, g, failed)
		if err != nil {
			return fmt.Errorf("%s, second run: %w; the guest's output is in %s", g.release, err, g.log)
		}
		for _, p := range problems {
			fmt.Fprintf(w, "   ONCE    %s\n", p)
		}
		problems = again
	}
	for _, p := range problems {
		fmt.Fprintf(w, "   PROBLEM %s\n", p)
	}
	fmt.Fprintf(w, "   %d tests, %d skipped, %d problems; fetched in %s, guest %s; %s\n", r.count("PASS"),
		r.count("SKIP"),
		len(problems), booted.Sub(start).Round(time.Second), time.Since(booted).Round(time.Second), g.log)
	if len(problems) > 0 {
		return fmt.Errorf("%d problems:\n  %s", len(problems), strings.Join(problems, "\n  "))
	}
	return nil
}

// secondRun runs suites that had problems again, in a new guest, as netdev's CI does with the
// kernel's selftests. The reason: on emulated processors that share one thread, a test sometimes
// exceeds a time limit of the kernel. A failure in both runs is a problem. A failure in only the
// first run is printed, and a developer has to find its cause.
func (b *bench) secondRun(w io.Writer, g *guest, failed []suite) ([]string, error) {
	second := *g
	second.series += ".again"
	r, err := b.bootAgain(w, &second, failed)
	g.log = second.log
	if err != nil {
		return nil, err
	}
	return r.judge(failed, skips, defects), nil
}
