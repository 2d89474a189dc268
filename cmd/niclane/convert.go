// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/migrate/adqsetup"
)

func (a *app) convertCommand() *cobra.Command {
	var dev string
	cmd := &cobra.Command{
		Use:   "convert [--dev DEV] FILE|-",
		Short: "Make a lanes file of an adqsetup file",
		Long: `Convert reads a file of Intel's adqsetup, INI or JSON, from FILE or standard input (-),
and prints an equivalent lanes file. A comment stands beside each key that niclane
treats differently or leaves out. If a key cannot be converted, or adqsetup would have
ignored it, convert reports it with its line and prints no lanes file.

Convert changes nothing and looks at no device: niclane plan shows what the lanes file
would do on this host.`,
		Args: cli.Exactly(1, "one adqsetup file, or - for standard input"),
		RunE: func(_ *cobra.Command, args []string) error {
			name, text, err := a.readForeign(args[0])
			if err != nil {
				return err
			}
			res, err := adqsetup.Convert(name, dev, text)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(res)
			}
			_, err = io.WriteString(a.Stdout, res.Lanes)
			return err
		},
	}
	cmd.Flags().StringVarP(&dev, "dev", "d", "", "use this device instead of the file's")
	return cmd
}

// readForeign reads another program's file from path, or from standard input if path is -. name is
// the file's name in messages.
func (a *app) readForeign(path string) (name string, text []byte, err error) {
	name, in := "stdin", a.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", nil, err
		}
		defer f.Close()
		name, in = path, f
	}
	text, err = cli.Read(in, name, cli.MaxConfig, "an adqsetup file")
	return name, text, err
}
