// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/lab/virtual"
)

// virtualInit is the command that the guest's kernel starts first. Users do not.
const virtualInit = "internal-virtual"

// inGuest runs this command again, in virtual time.
func (b *bench) inGuest(ctx context.Context, f *experiment.File) error {
	switch e := f.Experiment; {
	case e.Hosts != nil:
		return cli.Usagef("%s: --virtual has a lab, not hosts: leave --hosts out", b.name)
	case len(e.Power) > 0:
		return cli.Usagef("%s: --virtual: virtual time has no power to measure: leave power out of %s", b.name, e.Source)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	niclane, err := program.Find(program.Niclane)
	if err != nil {
		return err
	}
	c := virtual.Config{Kernel: b.kernel, Init: self, InitArgs: []string{virtualInit},
		Args: append([]string{self}, os.Args[1:]...), Memory: b.memory << 20, Seed: b.seed,
		Env:    []string{"PATH=" + filepath.Dir(niclane) + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Stdout: b.Stdout, Stderr: b.Stderr}
	if b.out != "" {
		out, err := filepath.Abs(b.out)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(out, 0o755); err != nil {
			return err
		}
		c.Writable = []string{out}
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	err = virtual.Run(ctx, c)
	var exit *virtual.ExitError
	if errors.As(err, &exit) {
		return cli.ExitCode{Code: exit.Status}
	}
	return err
}
