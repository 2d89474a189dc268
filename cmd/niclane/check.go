// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/cmd/internal/cli"
)

func (a *app) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE|-",
		Short: "Say what is wrong with a lanes file; needs no device and no privileges",
		Long: `Check reads the lanes file FILE, or standard input (-), and reports every mistake in it
with its line. It looks at no device: niclane plan says whether the device can make
these lanes. With --json it prints the lanes as niclane understands them.`,
		Args: cli.Exactly(1, "one lanes file, or - for standard input"),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := a.readStream(args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(r.Intent)
			}
			_, err = fmt.Fprintf(a.Stdout, "%s: %s on %s\n", r.config, cli.Plural(len(r.Intent.Lanes), "lane"),
				strings.Join(r.file().Devices(), ", "))
			return err
		},
	}
}

// stdinArg is the argument for standard input, and stdinName the name of standard input in
// messages.
const (
	stdinArg  = "-"
	stdinName = "<stdin>"
)

// isStream reports whether a path is "-", a pipe or another file that apply cannot read a second
// time.
func isStream(path string) bool {
	info, err := os.Stat(path)
	return path == stdinArg || err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

// readStream reads lanes from a path, or from standard input if path is -.
func (a *app) readStream(path string) (*request, error) {
	if path != stdinArg {
		file, text, err := readConfig(path)
		return &request{File: file, text: text, config: path}, err
	}
	file, text, err := parseConfig(stdinName, a.Stdin)
	return &request{File: file, text: text, config: stdinName}, err
}

// readVersion reads lanes from a stream, as a new version of a lanes file that is applied: of the
// file that has one of their devices.
func (a *app) readVersion(path string) (*request, error) {
	r, err := a.readStream(path)
	if err != nil {
		return nil, err
	}
	if err := cli.NeedRoot("plan"); err != nil {
		return nil, err
	}
	js, err := a.Engine().Journals()
	if err != nil {
		return nil, err
	}
	for _, j := range js {
		of := j.Head().Devices
		if slices.ContainsFunc(r.file().Devices(), func(dev string) bool { return slices.Contains(of, dev) }) {
			r.config = j.Head().Config
		}
	}
	return r, nil
}
