// SPDX-License-Identifier: Apache-2.0

// Package cli is what the commands niclane and niclane-bench have in common:
// options, exit codes and how an error is printed.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/engine"
)

// Exit codes (docs/niclane.8.md).
const (
	ExitDone    = 0 // done, or nothing to do
	ExitError   = 1
	ExitUsage   = 2
	ExitPending = 3 // changes pending, or drift found
)

// An App is one run of a command.
type App struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	JSON           bool
	StateDir       string
	RunDir         string
}

// Engine makes and undoes lanes in the command's directories.
func (a *App) Engine() *engine.Engine {
	return &engine.Engine{StateDir: a.StateDir, RunDir: a.RunDir, Warn: a.Warn}
}

// Warn tells the person of something that stops nothing.
func (a *App) Warn(what string) { fmt.Fprintln(a.Stderr, "niclane: warning:", what) }

// PrintJSON writes v for programs.
func (a *App) PrintJSON(v any) error {
	enc := json.NewEncoder(a.Stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Setup gives a root command the options and manners that both have.
func (a *App) Setup(root *cobra.Command) {
	root.SilenceUsage, root.SilenceErrors = true, true
	root.Args = cobra.ArbitraryArgs
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return Usagef("unknown command %q; see %s --help", args[0], cmd.CommandPath())
		}
		return cmd.Help()
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usagef("%s: %w; see %s --help", cmd.CommandPath(), err, cmd.CommandPath())
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	f := root.PersistentFlags()
	f.BoolVar(&a.JSON, "json", false, "print JSON, for programs")
	f.StringVar(&a.StateDir, "state-dir", engine.DefaultStateDir, "where journals are kept")
	f.StringVar(&a.RunDir, "run-dir", engine.DefaultRunDir, "where the lock, the lab and the pollers' sockets live")
}

// VersionCommand prints the version of a program.
func (a *App) VersionCommand(program, version string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  Exactly(0, "none"),
		RunE: func(*cobra.Command, []string) error {
			if a.JSON {
				return a.PrintJSON(map[string]string{program: version, "go": runtime.Version()})
			}
			fmt.Fprintf(a.Stdout, "%s %s (%s)\n", program, version, runtime.Version())
			return nil
		},
	}
}

// Run runs the root command with arguments, and returns the exit code.
func (a *App) Run(root *cobra.Command, args []string) int {
	root.SetArgs(args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	err := root.Execute()
	var code ExitCode
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &code):
		if code.Err != nil {
			fmt.Fprintln(a.Stderr, Prefixed(code.Err))
		}
		return code.Code
	}
	fmt.Fprintln(a.Stderr, Prefixed(err))
	if IsUsage(err) {
		return ExitUsage
	}
	return ExitError
}

// ExitCode is an error that carries the code to exit with; Err may be nil
// when everything has been said already.
type ExitCode struct {
	Code int
	Err  error
}

func (e ExitCode) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e ExitCode) Unwrap() error { return e.Err }

// usageError is a mistake in the command line.
type usageError struct{ error }

// Usagef returns the error of a mistake in the command line, which exits with ExitUsage.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// IsUsage reports whether an error is of the command line.
func IsUsage(err error) bool {
	var u usageError
	return errors.As(err, &u)
}

// Exactly wraps cobra's argument check so that a wrong number of arguments is
// a usage error that says what is wanted.
func Exactly(n int, want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return Usagef("%s: %d arguments, want %s", cmd.CommandPath(), len(args), want)
		}
		return nil
	}
}

// AtMost is Exactly for arguments that can be left out.
func AtMost(n int, want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return Usagef("%s: %d arguments, want %s", cmd.CommandPath(), len(args), want)
		}
		return nil
	}
}

// NeedRoot refuses early, before anything has been read or locked.
func NeedRoot(what string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s: not root: it reads and writes kernel state (try sudo)", what)
	}
	return nil
}

// Interruptible is a context that ends on Ctrl-C and on being told to end, so
// that apply undoes what it did.
func Interruptible(ctx context.Context) (context.Context, func()) {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	return ctx, stop
}

// Plural gives "1 step", "2 steps".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Prefixed gives every line of an error the name that people know, of niclane-bench
// too, unless it starts with a position in a file, which editors want first.
func Prefixed(err error) string {
	lines := strings.Split(strings.TrimRight(err.Error(), "\n"), "\n")
	for i, l := range lines {
		if !positioned(l) {
			lines[i] = "niclane: " + l
		}
	}
	return strings.Join(lines, "\n")
}

func positioned(line string) bool {
	_, rest, ok := strings.Cut(line, ":")
	return ok && rest != "" && rest[0] >= '0' && rest[0] <= '9'
}
