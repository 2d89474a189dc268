// SPDX-License-Identifier: Apache-2.0

// Package cli holds what the commands niclane and niclane-bench share: options, exit codes and
// the output of errors.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/engine"
)

// Exit codes (docs/niclane.8.md).
const (
	ExitDone    = 0 // done, or nothing to do
	ExitError   = 1
	ExitUsage   = 2
	ExitPending = 3 // changes pending, or drift found
)

// An App is one run of a command: its streams and the options that every command has.
type App struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	JSON           bool
	StateDir       string
	RunDir         string
}

// Engine returns an engine that uses the directories of --state-dir and --run-dir.
func (a *App) Engine() *engine.Engine {
	return &engine.Engine{StateDir: a.StateDir, RunDir: a.RunDir, Warn: a.Warn}
}

// Warn prints a warning to standard error.
func (a *App) Warn(what string) { fmt.Fprintln(a.Stderr, "niclane: warning:", what) }

// Setup gives the root command of a program the options and settings that niclane and niclane-bench
// share.
func (a *App) Setup(root *cobra.Command, program, version string) {
	root.SilenceUsage, root.SilenceErrors = true, true
	cobra.EnableCommandSorting = false // keep the order of the code
	subcommands(root)
	root.Version = fmt.Sprintf("%s (%s)", version, runtime.Version())
	root.SetVersionTemplate(program + " {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usagef("%s: %w%s; see %s --help", cmd.CommandPath(), err, nearestFlag(cmd, err), cmd.CommandPath())
	})
	f := root.PersistentFlags()
	f.BoolVar(&a.JSON, "json", false, "print JSON, for programs; errors too, on standard error")
	f.StringVar(&a.StateDir, "state-dir", engine.DefaultStateDir, "`directory` of the journals")
	f.StringVar(&a.RunDir, "run-dir", engine.DefaultRunDir,
		"`directory` of the lock, the lab's record and the pollers' sockets")
}

// subcommands sets up a command that only has subcommands: without arguments it prints its help. An
// argument that names no subcommand is a usage error.
func subcommands(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		if _, err := os.Stat(args[0]); err == nil || strings.HasSuffix(args[0], ".yaml") {
			return Usagef("%s is a file: niclane plan %s shows what its lanes would change", args[0], args[0])
		}
		var names []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				names = append(names, c.Name())
			}
		}
		return Usagef("%s: unknown command %q%s; see %s --help", cmd.CommandPath(), args[0], nearest(args[0], names),
			cmd.CommandPath())
	}
}

// nearest returns ", did you mean NAME?" if a name is similar to word, otherwise "".
func nearest(word string, names []string) string {
	if s := strictyaml.Suggest(word, names); strings.HasPrefix(s, ", did") {
		return s
	}
	return ""
}

// nearestFlag returns ", did you mean --NAME?" if err is about an unknown option and cmd has a
// similar one, otherwise "".
func nearestFlag(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return nearest("--"+unknown.GetSpecifiedName(), names)
}

// Group adds commands to a root command. The help shows them under a title.
func Group(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	for _, c := range commands {
		c.GroupID = title
		if c.HasSubCommands() && !c.Runnable() {
			subcommands(c)
		}
		root.AddCommand(c)
	}
}

// AddExamples sets the examples in the help of each command under root. A key of examples is a
// command's words, such as "lab up".
func AddExamples(root *cobra.Command, examples map[string]string) {
	var add func(c *cobra.Command)
	add = func(c *cobra.Command) {
		if text, ok := examples[Words(root, c)]; ok {
			c.Example = strings.ReplaceAll(text, "\n", "\n  ")[1:]
		}
		for _, sub := range c.Commands() {
			add(sub)
		}
	}
	add(root)
}

// Words returns the words of a command without the program's name, such as "lab up".
func Words(root, c *cobra.Command) string {
	return strings.TrimPrefix(strings.TrimPrefix(c.CommandPath(), root.CommandPath()), " ")
}

// VersionCommand returns the command that prints a program's version.
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

// Run runs the root command with args and returns the exit code.
func (a *App) Run(root *cobra.Command, args []string) int {
	root.SetArgs(args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	err := root.Execute()
	code := CodeOf(err)
	if said := (ExitCode{}); err == nil || errors.As(err, &said) && said.Err == nil {
		return code
	}
	if a.JSON {
		enc := json.NewEncoder(a.Stderr)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(failureOf(err, code)) // JSON cannot report an error of its own output
		return code
	}
	fmt.Fprintln(a.Stderr, Prefixed(err))
	return code
}

// CodeOf returns the exit code that belongs to an error.
func CodeOf(err error) int {
	var code ExitCode
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &code):
		return code.Code
	case IsUsage(err):
		return ExitUsage
	}
	return ExitError
}

// A Failure is an error in the form in which --json prints it.
type Failure struct {
	ExitCode int       `json:"exitCode"`
	Errors   []Problem `json:"errors"`
}

// A Problem is one line of an error. File and Line are set if the line begins with FILE:LINE:.
type Problem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

func failureOf(err error, code int) Failure {
	f := Failure{ExitCode: code}
	for line := range strings.Lines(strings.TrimRight(err.Error(), "\n")) {
		p := Problem{Message: strings.TrimSpace(line)}
		if at := place.FindStringSubmatch(p.Message); at != nil {
			p.File, p.Message = at[1], at[3]
			p.Line, _ = strconv.Atoi(at[2])
		}
		f.Errors = append(f.Errors, p)
	}
	return f
}

// place matches the FILE:LINE: prefix of a message.
var place = regexp.MustCompile(`^([^:]+):([0-9]+): (.*)$`)

// ExitCode is an error with an exit code. Err is nil if everything has been printed already.
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

// Usagef returns an error for a mistake in the command line. The exit code is ExitUsage.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// IsUsage reports whether an error is a mistake in the command line.
func IsUsage(err error) bool {
	var u usageError
	return errors.As(err, &u)
}

// Exactly accepts exactly n arguments. Any other number is a usage error that says what is wanted.
func Exactly(n int, want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return Usagef("%s: %d arguments, want %s", cmd.CommandPath(), len(args), want)
		}
		return nil
	}
}

// AtMost accepts up to n arguments. More arguments are a usage error that says what is wanted.
func AtMost(n int, want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return Usagef("%s: %d arguments, want %s", cmd.CommandPath(), len(args), want)
		}
		return nil
	}
}

// NeedRoot returns an error if the user is not root. what is the command's name for the error.
// Commands call NeedRoot before they read or lock anything.
func NeedRoot(what string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s: not root: it reads and writes kernel state (try sudo)", what)
	}
	return nil
}

// Interruptible returns a context that ends on SIGINT, SIGTERM and SIGHUP, so that apply can
// undo its steps.
func Interruptible(ctx context.Context) (context.Context, func()) {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	return ctx, stop
}

// Plural formats a number with its noun: "1 step", "2 steps".
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

// Prefixed puts "niclane: " before every line of an error, also in the program niclane-bench. It
// does not change lines that start with "niclane" or FILE:LINE:, because editors look for
// FILE:LINE: at the start of a line.
func Prefixed(err error) string {
	lines := strings.Split(strings.TrimRight(err.Error(), "\n"), "\n")
	for i, l := range lines {
		if !positioned(l) && !strings.HasPrefix(l, "niclane") {
			lines[i] = "niclane: " + l
		}
	}
	return strings.Join(lines, "\n")
}

func positioned(line string) bool { return place.MatchString(line) }
