// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/cmd/internal/cli"
)

// Examples checks that each command's help has at least two lines of examples, and that the
// command's name is in one of them. Commands that niclane-bench executes are left out: their
// examples are in niclane-bench's help.
func Examples(t *testing.T, root *cobra.Command, examples map[string]string) {
	t.Helper()
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			check(sub)
		}
		if c == root || !c.IsAvailableCommand() || c.DisableFlagParsing {
			return
		}
		lines := strings.Split(strings.TrimSpace(c.Example), "\n")
		if len(lines) < 2 || !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, c.Name()) }) {
			t.Errorf("%s: examples %q, want two and more", c.CommandPath(), c.Example)
		}
	}
	check(root)
	for words := range examples {
		if c, _, err := root.Find(strings.Fields(words)); err != nil || cli.Words(root, c) != words {
			t.Errorf("examples of %q, which is no command: %v", words, err)
		}
	}
}
