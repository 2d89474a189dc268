// SPDX-License-Identifier: Apache-2.0

// Command niclane-bench measures what a lane gains. Users call it through niclane: "niclane bench
// run" executes "niclane-bench run". For simulate, trial, report, refresh and selftest, the word bench is left out:
// "niclane report" executes "niclane-bench report". See docs/niclane-bench.8.md.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/cmd/internal/cli"
)

// version is set by the Makefile from git.
var version = "unknown"

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run executes the command line args and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if code, ok := runInternal(args, stdin, stdout, stderr); ok {
		return code
	}
	a := &app{cli.App{Stdin: stdin, Stdout: stdout, Stderr: stderr}}
	return a.Run(a.command(), args)
}

// app is one run of the command.
type app struct{ cli.App }

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "niclane-bench first-lane|run|papers|serve|certs|report|refresh|selftest|trial",
		Short: "Measure what a lane gains",
		// Help and messages use the name that users type.
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "niclane bench"},
	}
	a.Setup(root, "niclane-bench", version)
	root.RunE = func(cmd *cobra.Command, args []string) error {
		return cli.Usagef("bench: want first-lane, run, papers, serve or certs")
	}
	root.AddCommand(a.firstLaneCommand(), a.runCommand(), a.papersCommand(), a.serveCommand(), a.certsCommand(),
		a.simulateCommand(), a.trialCommand(), a.reportCommand(), a.refreshCommand(), a.selftestCommand(),
		a.VersionCommand("niclane-bench", version))
	cli.AddExamples(root, examples)
	return root
}
