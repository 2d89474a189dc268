// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/lifeline"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/live/roundtrip"
	"github.com/niclane/niclane/live/trial"
	"github.com/niclane/niclane/live/waits"
)

// withoutLanes is the name of the variant without the files' lanes.
const withoutLanes = "without"

// confirmSlack is what the confirmation of a switch waits longer than a trial needs.
const confirmSlack = 15 * time.Second

// A trialRun has the command's arguments, and what follows from them.
type trialRun struct {
	*app
	total, window, settle time.Duration
	ports                 []string
	prepare               bool
	out                   string
	seed                  uint64
	loadWithin, worth     string
	sample                string

	args     []string // as the user wrote the files
	names    []string // of the variants after the first
	plans    []*engine.Planned
	lanes    *trialLanes
	targets  []waits.Target
	services []trial.Service
	trial    result.Trial
}

func (a *app) trialCommand() *cobra.Command {
	t := &trialRun{app: a, total: 10 * time.Minute, window: 5 * time.Second, settle: time.Second}
	cmd := &cobra.Command{
		Use:   "trial FILE...",
		Short: "Try lanes on the services' own traffic, and put everything back",
		Long: `Trial makes the lanes of FILE and takes them away again, window by window, and measures
the services of the lanes under their own traffic: the time of requests in this host and
its parts, processor time per request, segments sent again, and drops. It needs no
generator and no second host. It prints ratios with 95 % intervals, ~ where noise may
explain a difference, and a verdict: keep the lanes, or not, and why. With several files,
each is a variant of its own.

The order of the windows is random and balanced. After each switch, trial waits until
each service has answered a request, and --settle at least. It compares windows that are
neighbours. It leaves out pairs of windows whose loads differ by more than --load-within.

Trial refuses lanes with steps that can lose packets. With --prepare it makes these steps
once, before the first window, and keeps them in every variant. It journals each switch.
At the end, on an error and on SIGINT or SIGTERM it takes the lanes away at once; if it is
killed, other processes do. Lanes that were in force before stay. Trial ends early if a
service is restarted, its traffic ends, a device goes or another program changes the lanes.

The result file is of the same form as that of niclane bench run: niclane report prints
it, as text or as a page. Trial exits 0 with a verdict to keep the lanes, to weigh what is better
and worse, or not to keep them; 3 if noise leaves it open; and 1 if it ended early.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("trial: no file, want a lanes file, or several")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			t.args = args
			if err := t.check(); err != nil {
				return err
			}
			if err := cli.NeedRoot("trial"); err != nil {
				return err
			}
			ctx, stop := cli.Interruptible(cmd.Context())
			defer stop()
			return t.run(ctx)
		},
	}
	f := cmd.Flags()
	cli.TimeVar(f, &t.total, "for", "how long the trial takes, about")
	cli.TimeVar(f, &t.window, "window", "length of a window")
	cli.TimeVar(f, &t.settle, "settle", "least time after a switch that is not counted")
	f.StringArrayVar(&t.ports, "port", nil, "also measure the service at this `PORT[/udp]` of this host, such as one "+
		"that must not suffer; can be repeated")
	f.BoolVar(&t.prepare, "prepare", false, "make the steps that can lose packets once, before the trial, and keep "+
		"them in every variant")
	f.StringVar(&t.loadWithin, "load-within", "20%", "`share` by which the loads of two windows may differ to be "+
		"compared; more where that is usual")
	f.StringVar(&t.sample, "sample", "", "`share` of the time in which requests are followed (default: so much that "+
		"it costs at most 5% of the services' processor time)")
	f.StringVar(&t.worth, "worth", "5%", "smallest gain that matters, as a `share`: if it is ruled out, the verdict "+
		"is no")
	f.Uint64Var(&t.seed, "seed", 0, "seed of the order of the windows (default: random)")
	f.StringVar(&t.out, "out", "trial.json", "result `file`")
	return cmd
}

func (t *trialRun) check() error {
	for _, x := range []struct {
		flag      string
		v, lo, hi time.Duration
	}{{"for", t.total, time.Second, 7 * 24 * time.Hour}, {"window", t.window, 100 * time.Millisecond, 10 * time.Minute},
		{"settle", t.settle, 10 * time.Millisecond, 10 * time.Minute}} {
		if x.v < x.lo || x.v > x.hi {
			return cli.Usagef("trial: --%s %v: want %v to %v", x.flag, x.v, x.lo, x.hi)
		}
	}
	var err error
	if t.trial.LoadWithin, err = permille(t.loadWithin); err != nil || t.loadWithin == "" {
		return cli.Usagef("trial: --load-within %s: want a share from 0.1%% to 1000%%", t.loadWithin)
	}
	if t.trial.Worth, err = permille(t.worth); err != nil || t.worth == "" {
		return cli.Usagef("trial: --worth %s: want a share from 0.1%% to 1000%%", t.worth)
	}
	if n, err := permille(t.sample); err != nil || n > 1000 {
		return cli.Usagef("trial: --sample %s: want a share from 0.1%% to 100%%", t.sample)
	}
	round := time.Duration(len(t.args)+1) * (t.window + t.settle)
	if least := stats.MinWilcoxon * round; t.total < least {
		return cli.Usagef("trial: --for %v: %d windows of each of %d variants take %v: want at least that, or a "+
			"shorter --window (%v) or --settle (%v)", t.total, stats.MinWilcoxon, len(t.args)+1, least,
			t.window, t.settle)
	}
	if t.prepare && len(t.args) > 1 {
		return cli.Usagef("trial: --prepare with %d files: want one, because what is prepared belongs to one file",
			len(t.args))
	}
	return nil
}

func (t *trialRun) run(ctx context.Context) (err error) {
	if err := t.read(); err != nil {
		return err
	}
	if err := apply.CheckPending(t.RunDir); err != nil {
		return err
	}
	if err := t.lanes.mark(); err != nil {
		return err
	}
	if err := t.plan(ctx); err != nil {
		return err
	}
	if err := t.findServices(ctx); err != nil {
		return err
	}
	if err := t.lanes.keep(); err != nil {
		t.lanes.close()
		return err
	}
	defer t.lanes.close()
	share, _ := permille(t.sample) // check has read it
	meter, err := waits.Open(context.WithoutCancel(ctx), waits.Options{Targets: t.targets, Device: t.device(),
		SampleRate: float64(share) / 1000, FixedRate: share > 0})
	if err != nil {
		return err
	}
	defer meter.Close()
	trips, err := roundtrip.Open(context.WithoutCancel(ctx), t.connections())
	if err != nil {
		return err
	}
	defer trips.Close()
	if t.lanes.guard, err = startTrialGuard(guardOrder{t.lanes.marks, t.StateDir, t.RunDir}); err != nil {
		return err
	}
	if err := t.prepared(ctx); err != nil {
		undo, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer stop()
		return errors.Join(err, t.lanes.Undo(undo))
	}
	show := t.progress()
	r, err := trial.Run(ctx, t.config(meter, trips, show.show))
	show.end()
	return t.finish(r, err)
}

// read reads the lanes files.
func (t *trialRun) read() error {
	t.lanes = &trialLanes{engine: t.Engine(), within: 2*t.window + trial.SettleLimit(t.settle) + confirmSlack}
	for _, path := range t.args {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := engine.Name(path)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(t.lanes.files, func(f *engine.File) bool { return f.Name == name }) {
			return cli.Usagef("trial: %s is named twice", path)
		}
		f, err := engine.Parse(path, text)
		if err != nil {
			return err
		}
		f.Name = name
		t.lanes.files = append(t.lanes.files, f)
	}
	for _, path := range t.args {
		name := filepath.Base(path)
		same := slices.ContainsFunc(t.args, func(p string) bool { return p != path && filepath.Base(p) == name })
		if same || name == withoutLanes {
			name = path
		}
		t.names = append(t.names, name)
	}
	return nil
}

// plan plans each file, and refuses those that a trial cannot try.
func (t *trialRun) plan(ctx context.Context) error {
	t.plans = nil
	t.trial.Baseline = "the host had no lanes of these files"
	for i, f := range t.lanes.files {
		p, err := t.lanes.engine.Plan(ctx, f)
		if err != nil {
			return err
		}
		before := t.lanes.Before[f.Name]
		if len(p.Steps) == 0 {
			return fmt.Errorf("%s: its lanes are in force already, so there is nothing to try: niclane rollback "+
				"%[1]s takes them away; then a trial compares the host without them and with them", t.args[i])
		}
		if before > 0 {
			t.trial.Baseline = fmt.Sprintf("lanes of %s were in force, from another version of the file; they are "+
				"part of the variant %s", t.args[i], withoutLanes)
			t.Warn(t.trial.Baseline)
		}
		if err := t.refuse(i, p, before); err != nil {
			return err
		}
		t.plans = append(t.plans, p)
	}
	return nil
}

// refuse returns an error if a plan has steps that can lose packets, unless --prepare makes them.
func (t *trialRun) refuse(i int, p *engine.Planned, before int) error {
	steps := disruptive(p.Plan)
	if len(steps) == 0 {
		return nil
	}
	if t.prepare && before == 0 {
		return nil
	}
	var lines []string
	for _, s := range steps {
		lines = append(lines, fmt.Sprintf("  %s (%s)", s.Reason, strings.Join(s.Commands(), "; ")))
	}
	what := "--prepare makes them once, before the trial, and keeps them in every variant"
	switch {
	case before > 0:
		what = "--prepare cannot make them, because lanes of the file are in force: niclane rollback " +
			t.args[i] + " first"
	case len(t.args) > 1:
		what = "--prepare with this file alone makes them once, before the trial"
	}
	return fmt.Errorf("%s: steps of its lanes can lose packets, and a trial would make them again and again:\n%s\n%s",
		t.args[i], strings.Join(lines, "\n"), what)
}

// prepared makes the steps that can lose packets, if --prepare allows it, and plans the others again.
func (t *trialRun) prepared(ctx context.Context) error {
	steps := disruptive(t.plans[0].Plan)
	if len(steps) == 0 {
		return nil
	}
	for _, s := range steps {
		t.trial.Prepared = append(t.trial.Prepared, s.Reason)
		fmt.Fprintf(t.Stderr, "before the trial: %s: packets in flight can be lost\n", s.Reason)
	}
	f := t.lanes.files[0]
	if err := t.lanes.prepare(ctx, f); err != nil {
		return err
	}
	p, err := t.lanes.engine.Plan(ctx, f)
	if err != nil {
		return err
	}
	if again := disruptive(p.Plan); len(again) > 0 {
		return fmt.Errorf("%s: this step can lose packets, and depends on others: %s; a trial of these lanes is not "+
			"possible", t.args[0], again[0].Reason)
	}
	if len(p.Steps) == 0 {
		return fmt.Errorf("%s: all steps can lose packets: nothing is left to try", t.args[0])
	}
	t.trial.Baseline += "; all variants have what was prepared"
	t.plans[0] = p
	return nil
}

func (t *trialRun) config(meter trial.Meter, trips trial.RoundTrips, progress func(trial.Progress)) trial.Config {
	h := machine.Describe()
	devices := t.plans[0].Devices
	c := trial.Config{
		Title:    fmt.Sprintf("trial of %s on %s", strings.Join(t.names, ", "), strings.Join(devices, ", ")),
		Niclane:  version,
		Variants: []trial.Variant{{Name: withoutLanes, Title: "the host as it was"}}, Services: t.services,
		Meter:      meter,
		RoundTrips: trips,
		Switcher:   t.lanes, For: t.total, Window: t.window, Settle: t.settle, Seed: t.seed, Trial: t.trial,
		Environment: result.Environment{
			Kernel: h.Kernel, Distribution: h.Distribution, CPUModel: h.CPUModel, CPUs: h.CPUs, Memory: h.Memory,
			Virtualisation: h.Virtualisation, Governor: h.Governor, Mitigations: h.Mitigations,
			Sysctls: h.Sysctls, Go: runtime.Version(), Hardware: h.Hardware,
			Network: result.Network{Device: strings.Join(devices, ", ")},
		}, Progress: progress,
	}
	if c.Seed == 0 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // it never fails
		c.Seed = binary.LittleEndian.Uint64(b[:])
	}
	for i, f := range t.lanes.files {
		var b strings.Builder
		plan.WriteText(&b, t.plans[i].Steps)
		c.Variants = append(c.Variants, trial.Variant{Name: t.names[i], Title: "its lanes", Lanes: string(f.Text),
			Plan: b.String()})
	}
	if s := lifeline.Sentence(devices); s != "" {
		t.Warn(s)
	}
	return c
}

// finish saves and prints what was measured. failed is why the trial ended early; nil: it did not.
func (t *trialRun) finish(r *result.Result, failed error) error {
	if errors.Is(failed, trial.ErrUnfollowed) {
		failed = fmt.Errorf("%w; --sample 100%% follows all, whatever it costs", failed)
	}
	if r == nil {
		return failed
	}
	if t.out != "" {
		if err := result.WriteFile(t.out, r); err != nil {
			return errors.Join(failed, err)
		}
	}
	s := result.Summarize(r)
	if t.JSON {
		if err := t.PrintJSON(s); err != nil {
			return errors.Join(failed, err)
		}
	} else {
		if err := result.WriteText(t.Stdout, s); err != nil {
			return errors.Join(failed, err)
		}
		if t.out != "" {
			fmt.Fprintf(t.Stderr, "result: %s; niclane report %[1]s --out report.html makes a page of it\n", t.out)
		}
	}
	if failed != nil {
		if r.Partial != nil && !trialLeft(failed) {
			failed = fmt.Errorf("%w; the lanes are as before the trial, and the result is of %s", failed,
				cli.Plural(len(r.Windows)/max(1, len(r.Points)), "window"))
		}
		return failed
	}
	if i := slices.Index(t.names, s.Trial.Best); i >= 0 && !t.JSON {
		fmt.Fprintf(t.Stdout, "\nto keep them: niclane apply %s\n", t.args[i])
	}
	told := func(v result.TrialVerdict) bool { return v.Outcome != result.CannotTell }
	if !slices.ContainsFunc(s.Trial.Verdicts, told) {
		return cli.ExitCode{Code: cli.ExitPending}
	}
	return nil
}

func trialLeft(err error) bool {
	_, left := errors.AsType[*trial.LeftError](err)
	return left
}
