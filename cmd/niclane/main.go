// SPDX-License-Identifier: Apache-2.0

// Command niclane gives applications their own lanes through the network cards of a Linux host. See
// docs/niclane.8.md.
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
	if code, ok := runInternal(args, stderr); ok {
		return code
	}
	a := &app{cli.App{Stdin: stdin, Stdout: stdout, Stderr: stderr}}
	return a.Run(a.command(), args)
}

// app is one run of the command.
type app struct{ cli.App }

// first returns the first argument, or "" if there is none.
func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{Use: "niclane", Short: "Give an application its own lane through the network card"}
	a.Setup(root, "niclane", version)
	parts := partCommands()
	cli.Group(root, "Look", a.probeCommand(), a.suggestCommand(), a.waitsCommand(), a.checkCommand(), a.planCommand(),
		a.statusCommand(), a.topCommand(), a.verifyCommand())
	cli.Group(root, "Change", a.applyCommand(), a.confirmCommand(), a.rollbackCommand())
	cli.Group(root, "Keep", a.watchCommand(), a.persistCommand())
	cli.Group(root, "Applications", a.runCommand(), a.splitCommand(), a.attachCommand(), a.detachCommand(),
		a.adviseCommand())
	cli.Group(root, "Try and measure", append([]*cobra.Command{a.labCommand()}, parts...)...)
	cli.Group(root, "Move from adqsetup", a.convertCommand(), a.adqsetupCommand())
	root.AddCommand(a.VersionCommand("niclane", version))
	cli.AddExamples(root, examples)
	a.addCompletion(root)
	return root
}
