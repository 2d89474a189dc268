// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lab/virtual"
)

func (a *app) labVirtualCommand(name *string) *cobra.Command {
	var c lab.Config
	var g cli.Guest
	var out string
	cmd := &cobra.Command{
		Use: "virtual -- COMMAND...", Short: "Run a command beside a lab in virtual time",
		Long: `Virtual starts a guest whose clock stands still while programs work, and jumps
when all of them sleep. It builds the lab in it, runs COMMAND beside it, and ends
with COMMAND's exit status. COMMAND reaches the hosts by "niclane lab exec". The
guest sees this machine's files. What it writes is gone with it, except in --out.
It needs no root. docs/virtual.md says what its figures mean.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("lab virtual: want -- COMMAND...")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !virtual.Here() {
				return g.Again(cmd.Context(), &a.App, out)
			}
			ctx, stop := cli.Interruptible(cmd.Context())
			defer stop()
			c.Name, c.LinkBurst = *name, lab.LeastBurst(c.MTU)
			if _, err := lab.Up(ctx, c); err != nil {
				return err
			}
			child := exec.CommandContext(ctx, args[0], args[1:]...)
			child.Stdout, child.Stderr = a.Stdout, a.Stderr
			err := child.Run()
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				return cli.ExitCode{Code: exit.ExitCode()}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	labFlags(f, &c)
	g.Flags(f)
	f.StringVar(&out, "out", "", "`directory` in which the guest's files stay")
	return cmd
}
