// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/lab/virtual"
)

// VirtualInit is the command with which the kernel of virtual time starts this program. Users do
// not. Its argument is that of InitGuest.
const VirtualInit = "internal-virtual"

// InitGuest is the first process of a guest. It returns only if it is not. args are the job, and
// what the kernel adds to its command line.
func InitGuest(args []string) error {
	if len(args) == 0 {
		return Usagef("%s: want a job", VirtualInit)
	}
	return virtual.Init(args[0])
}

// A Guest holds the options of commands that can run in virtual time.
type Guest struct {
	config virtual.Config
	memory int64 // MiB
}

// Flags adds the options.
func (g *Guest) Flags(f *pflag.FlagSet) {
	f.StringVar(&g.config.Kernel, "virtual-kernel", "",
		"`file` with the kernel of virtual time (default: what tools/virtual-kernel built last)")
	f.Int64Var(&g.memory, "virtual-memory", virtual.DefaultMemory>>20, "memory of the guest in `MiB`")
	f.Uint64Var(&g.config.Seed, "virtual-seed", 1, "`number` from which all random numbers in the guest come")
}

// Check returns an error if there is no kernel of virtual time.
func (g *Guest) Check() error { return virtual.Check(g.config.Kernel) }

// Again runs this process's command line again, in virtual time: see Run.
func (g *Guest) Again(ctx context.Context, a *App, out string) error {
	return g.Run(ctx, a, os.Args[1:], out)
}

// Run runs this process's program with other arguments, in virtual time. out is the directory in
// which its files stay, "" for none.
func (g *Guest) Run(ctx context.Context, a *App, args []string, out string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	niclane, err := program.Find(program.Niclane)
	if err != nil {
		return err
	}
	c := g.config
	c.Init, c.InitArgs, c.Args = self, []string{VirtualInit}, append([]string{self}, args...)
	c.Memory = g.memory << 20
	c.Env = []string{"PATH=" + filepath.Dir(niclane) + ":" + virtual.Path}
	c.Stdout, c.Stderr = a.Stdout, a.Stderr
	if out != "" {
		if out, err = filepath.Abs(out); err != nil {
			return err
		}
		if err := os.MkdirAll(out, 0o755); err != nil {
			return err
		}
		c.Writable = []string{out}
	}
	ctx, stop := Interruptible(ctx)
	defer stop()
	err = virtual.Run(ctx, c)
	if exit := (*virtual.ExitError)(nil); errors.As(err, &exit) {
		return ExitCode{Code: exit.Status} // the guest has printed the error
	}
	return err
}
