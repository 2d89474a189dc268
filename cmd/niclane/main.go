// SPDX-License-Identifier: Apache-2.0

// Command niclane gives applications their own lanes through the network
// cards of a Linux host. See docs/niclane.8.md.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Exit codes (docs/niclane.8.md).
const (
	exitDone    = 0 // done, or nothing to do
	exitError   = 1
	exitUsage   = 2
	exitPending = 3 // changes pending, or drift found
)

// gcPercent has garbage collected for the first time at 32 MiB. Most commands
// live for some milliseconds, in which collecting it at 4 MiB, and twice more,
// took a fifth of an apply. What is left of an apply that has nothing to do is,
// by the profile, in thirds: what happens before main (packages that measure,
// which apply does not need, are half of it), pages that the kernel gives to the
// process one by one, and work on the members. System calls are the least of it;
// none waits but fsync.
const gcPercent = 800

func main() {
	debug.SetGCPercent(gcPercent)
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole command: arguments in, exit code out.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if code, ok := runInternal(args, stdin, stdout, stderr); ok {
		return code
	}
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.command()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return exitDone
	}
	var code exitCode
	if errors.As(err, &code) {
		if code.err != nil {
			fmt.Fprintln(stderr, prefixed(code.err))
		}
		return code.code
	}
	fmt.Fprintln(stderr, prefixed(err))
	if isUsage(err) {
		return exitUsage
	}
	return exitError
}

// app is one run of the command.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	json           bool
	stateDir       string
	runDir         string
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:           "niclane",
		Short:         "Give an application its own lane through the network card",
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; see niclane --help", args[0])
			}
			return cmd.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%s: %w; see %s --help", cmd.CommandPath(), err, cmd.CommandPath())
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	f := root.PersistentFlags()
	f.BoolVar(&a.json, "json", false, "print JSON, for programs")
	f.StringVar(&a.stateDir, "state-dir", "/var/lib/niclane", "where journals are kept")
	f.StringVar(&a.runDir, "run-dir", "/run/niclane", "where the lock, the lab and the pollers' sockets live")
	root.AddCommand(a.probeCommand(), a.planCommand(), a.applyCommand(), a.confirmCommand(),
		a.rollbackCommand(), a.statusCommand(), a.verifyCommand(), a.watchCommand(), a.topCommand(), a.persistCommand(), a.runCommand(), a.splitCommand(), a.convertCommand(), a.adqsetupCommand(), a.attachCommand(), a.detachCommand(), a.adviseCommand(), a.labCommand(), a.benchCommand(), a.reportCommand(), a.refreshCommand(), a.versionCommand())
	root.AddCommand(a.selftestCommand())
	return root
}

// exitCode is an error that carries the code to exit with; err may be nil
// when everything has been said already.
type exitCode struct {
	code int
	err  error
}

func (e exitCode) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exitCode) Unwrap() error { return e.err }

// usageError is a mistake in the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func isUsage(err error) bool {
	var u usageError
	return errors.As(err, &u)
}

// exactly wraps cobra's argument check so that a wrong number of arguments is
// a usage error that says what is wanted.
func exactly(n int, want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("%s: %d arguments, want %s", cmd.CommandPath(), len(args), want)
		}
		return nil
	}
}

func atMost(n int, want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef("%s: %d arguments, want %s", cmd.CommandPath(), len(args), want)
		}
		return nil
	}
}
