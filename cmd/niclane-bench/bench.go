// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
	experiments "github.com/niclane/niclane/bench/run"
	"github.com/niclane/niclane/bench/run/pod"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/lab/virtual"
)

// A bench holds the options that all measuring commands have.
type bench struct {
	*app
	name   string
	out    string // directory for the results
	format string
	dry    bool
	// virtual: run in virtual time.
	virtual bool
	guest   cli.Guest
	// kubectl is the access to the Kubernetes cluster, for experiments whose servers are pods.
	kubectl pod.Kubectl
}

func (b *bench) flags(cmd *cobra.Command) {
	b.name = "bench " + cmd.Name()
	f := cmd.Flags()
	f.StringVar(&b.out, "out", "", "`directory` for result.json and report.html")
	f.StringVar(&b.format, "format", result.Text, "`format` of standard output: "+strings.Join(result.Formats, ", "))
	f.BoolVar(&b.virtual, "virtual", false,
		"run in virtual time: queueing is exact, work takes no time; needs no root and no quiet machine")
	b.guest.Flags(f)
	f.BoolVar(&b.dry, "dry-run", false, "check, say what would be done and how long it takes, and end")
}

func (b *bench) check() error {
	if !slices.Contains(result.Formats, b.format) {
		return cli.Usagef("%s: --format %s: want %s", b.name, b.format, strings.Join(result.Formats, ", "))
	}
	return nil
}

// measure runs the experiment f, saves the result and prints it. If an error ends the experiment,
// it saves and prints what was measured.
func (b *bench) measure(ctx context.Context, f *experiment.File, text string) error {
	if err := experiments.Describe(b.Stderr, f); err != nil || b.dry {
		return err
	}
	if b.virtual && !virtual.Here() {
		return b.inGuest(ctx, f)
	}
	site, err := b.site(f)
	if err != nil {
		return err
	}
	o := experiments.Options{Version: version, Progress: b.Stderr}
	if b.out != "" {
		if o.Save, err = saveTo(b.out); err != nil {
			return err
		}
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	r, err := experiments.Run(ctx, f, text, site, o)
	if failed := writeLogs(b.out, r.Logs); failed != nil {
		err = errors.Join(err, failed)
	}
	if len(r.Windows) == 0 {
		return err
	}
	if b.JSON {
		err = errors.Join(err, result.Write(b.Stdout, r))
	} else {
		err = errors.Join(err, result.WriteFormat(b.Stdout, r, b.format))
	}
	if b.out == "" {
		return err
	}
	if failed := writePage(b.out, r); failed != nil {
		return errors.Join(err, failed)
	}
	fmt.Fprintf(b.Stderr, "report: %s\n", filepath.Join(b.out, pageFile))
	return err
}

// writeLogs writes the output of each server into a file in dir/logs. If dir is "", it writes
// nothing.
func writeLogs(dir string, logs map[string]string) error {
	if dir == "" || len(logs) == 0 {
		return nil
	}
	dir = filepath.Join(dir, "logs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		if err := os.WriteFile(filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".log"), []byte(logs[name]),
			0o644); err != nil {
			return err
		}
	}
	return nil
}

// site returns the place where the experiment f runs: its hosts, or a lab on this host.
func (b *bench) site(f *experiment.File) (experiments.Site, error) {
	if f.Experiment.Hosts != nil {
		return experiments.OnHosts(f, version, experiments.HostsOptions{Kubectl: b.kubectl}), nil
	}
	if err := cli.NeedRoot(b.name); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if _, err := program.Find(program.Niclane); err != nil { // the agents start it
		return nil, fmt.Errorf("%s: %w", b.name, err)
	}
	return experiments.InLab(f, version, self), nil
}

// saveTo makes a directory and returns a function that writes result.json into it. If the directory
// is not writable, saveTo fails at once, and not after hours of measuring.
func saveTo(dir string) (func(*result.Result) error, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	probe, err := os.CreateTemp(dir, ".niclane-")
	if err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, resultFile)
	return func(r *result.Result) error { return result.WriteFile(path, r) }, nil
}
