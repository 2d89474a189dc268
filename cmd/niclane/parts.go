// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/program"
)

// partCommands returns the commands for which niclane executes the program niclane-bench in its own
// process (execve).
func partCommands() []*cobra.Command {
	parts := []*cobra.Command{
		{Use: "bench first-lane|run|papers|serve|certs", Short: "Measure what a lane gains"},
		{Use: "simulate FILE", Short: "Show what a lanes file would do to queueing, in virtual time"},
		{Use: "trial FILE...", Short: "Try lanes on the services' own traffic, and put everything back"},
		{Use: "report RESULT | report A B", Short: "Print a result, or compare two"},
		{Use: "refresh OLD NEW | refresh --list", Short: "Count the racks, servers and watts that new servers save"},
		{Use: "selftest DEV --peer HOST[:PORT] --cert FILE --key FILE --ca FILE",
			Short: "Try lanes on a card with real traffic, and put everything back"},
	}
	for _, c := range parts {
		c.Long = c.Short + ". The program niclane-bench does this; it has a package of its own."
		c.DisableFlagParsing = true
		c.RunE = func(cmd *cobra.Command, args []string) error { return becomePart(cmd.Name(), args) }
		c.ValidArgsFunction = completePart
	}
	return parts
}

// partArgs returns the arguments for niclane-bench: "niclane bench run" becomes "niclane-bench
// run", and "niclane report" becomes "niclane-bench report".
func partArgs(name string, args []string) []string {
	if name == "bench" {
		return args
	}
	return append([]string{name}, args...)
}

func becomePart(name string, args []string) error {
	path, err := program.Find(program.Bench)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	argv := append([]string{program.Bench}, partArgs(name, args)...)
	return fmt.Errorf("%s: %w", path, unix.Exec(path, argv, os.Environ()))
}

// completePart asks niclane-bench for the completions of a command line. niclane-bench prints one
// completion per line. Its last line is ":N", where N is the number of a shell directive.
func completePart(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	path, err := program.Find(program.Bench)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ask := append([]string{cobra.ShellCompRequestCmd}, partArgs(cmd.Name(), args)...)
	out, err := exec.Command(path, append(ask, toComplete)...).Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := len(lines) - 1
	directive, perr := strconv.Atoi(strings.TrimPrefix(lines[last], ":"))
	if err != nil || perr != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return lines[:last], cobra.ShellCompDirective(directive)
}
