// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
	experiments "github.com/niclane/niclane/bench/run"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/papers"
)

const (
	papersFile  = "index.html"
	failureFile = "failure.txt" // why a study has no result or only a part
)

func (a *app) papersCommand() *cobra.Command {
	p := &papersRun{app: a}
	cmd := &cobra.Command{
		Use:   "papers DIR --out DIR",
		Short: "Run the papers' experiments, and compare their claims with the measurements",
		Long: `Papers runs the experiments of the five papers one after the other, as "bench run"
does. The experiments are files in DIR. Papers writes one page to --out, with each
claim beside the measurement. If an experiment fails, the others still run, and
the page says why it failed. If a required program is missing on this machine, the
page lists the experiment as not run; this is no failure.`,
		Args: cli.Exactly(1, "the directory of the experiments"),
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd.Context(), args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&p.out, "out", "", "`directory` for the page, with one for each experiment below it")
	f.BoolVar(&p.quick, "quick", false, "run the quick forms, of less than 3 minutes each")
	f.BoolVar(&p.trial, "trial", false, "run one short window of each variant: shows that the forms start")
	f.BoolVar(&p.pageOnly, "page-only", false, "run nothing: make the page from the results in --out")
	f.StringSliceVar(&p.only, "only", nil, "run only these `experiments`, and make the page from all results in --out")
	f.StringVar(&p.hosts, "hosts", "", "hosts `file`: run on these hosts' agents, not in the lab")
	return cmd
}

// A papersRun holds the command's arguments.
type papersRun struct {
	*app
	out, hosts             string
	quick, trial, pageOnly bool
	only                   []string
}

func (p *papersRun) run(ctx context.Context, dir string) error {
	if p.out == "" {
		return cli.Usagef("bench papers: --out is missing, want the directory for the page")
	}
	for _, name := range p.only {
		if !slices.ContainsFunc(papers.Studies, func(s papers.Study) bool { return s.Experiment == name }) {
			return cli.Usagef("bench papers: --only %s: want names of the papers' experiments: %s", name,
				strings.Join(studyNames(), ", "))
		}
	}
	on, err := readHosts(p.hosts)
	if err != nil {
		return err
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	var errs []error
	if !p.pageOnly {
		for _, s := range papers.Studies {
			if len(p.only) > 0 && !slices.Contains(p.only, s.Experiment) {
				continue
			}
			if ctx.Err() != nil {
				return errors.Join(append(errs, errors.New("interrupted"))...)
			}
			fmt.Fprintf(p.Stderr, "== %s\n", s.Experiment)
			if err := p.study(ctx, s, filepath.Join(dir, s.Experiment+".yaml"), on); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", s.Experiment, err))
			}
		}
	}
	return errors.Join(append(errs, p.page())...)
}

func studyNames() (out []string) {
	for _, s := range papers.Studies {
		out = append(out, s.Experiment)
	}
	return out
}

// study runs one study. If this machine cannot run it, study writes the reason into the study's
// directory and returns nil.
func (p *papersRun) study(ctx context.Context, s papers.Study, file string, on *experiment.Hosts) error {
	b := &bench{app: p.app, name: "bench papers", out: filepath.Join(p.out, s.Experiment), format: result.Text}
	for _, old := range []string{resultFile, pageFile, failureFile, "logs"} {
		if err := os.RemoveAll(filepath.Join(b.out, old)); err != nil {
			return err
		}
	}
	if s.Hosts && on == nil {
		err := errors.New("it has no lab: it is measured in a Kubernetes cluster, with --hosts")
		fmt.Fprintf(p.Stderr, "cannot be run here: %v\n", err)
		return p.failed(b.out, err)
	}
	f, text, err := experiments.ReadWith(file, experiment.Options{Hosts: on, Quick: p.quick, Trial: p.trial})
	var cannot experiment.Errors
	if f != nil && errors.As(err, &cannot) {
		fmt.Fprintf(p.Stderr, "cannot be run here: %v\n", err)
		return p.failed(b.out, err)
	}
	if err != nil {
		return err
	}
	// Print the result's table and the progress to standard error. The result itself is for the page.
	quiet := *p.app
	quiet.Stdout, quiet.JSON = p.Stderr, false
	b.app = &quiet
	if err := b.measure(ctx, f, text); err != nil {
		return errors.Join(err, p.failed(b.out, err))
	}
	return nil
}

// failed writes the reason of a failure into a study's directory.
func (p *papersRun) failed(dir string, err error) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, failureFile), []byte(err.Error()+"\n"), 0o644)
}

// page writes the page about all studies, with the results that are present.
func (p *papersRun) page() error {
	var all []papers.Outcome
	for _, s := range papers.Studies {
		o := papers.Outcome{Study: s}
		dir := filepath.Join(p.out, s.Experiment)
		failure, err := os.ReadFile(filepath.Join(dir, failureFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		o.Failure = strings.TrimSpace(string(failure))
		r, err := result.ReadFile(filepath.Join(dir, resultFile))
		switch {
		case err == nil:
			o.Result = r
			if _, err := os.Stat(filepath.Join(dir, pageFile)); err == nil {
				o.Report = s.Experiment + "/" + pageFile
			}
		case !errors.Is(err, fs.ErrNotExist):
			return err
		case o.Failure == "":
			o.Failure = "It was not run."
		}
		all = append(all, o)
	}
	if err := os.MkdirAll(p.out, 0o755); err != nil {
		return err
	}
	var b strings.Builder
	if err := papers.Write(&b, all, version); err != nil {
		return err
	}
	path := filepath.Join(p.out, papersFile)
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(p.Stderr, "page: %s\n", path)
	return nil
}
