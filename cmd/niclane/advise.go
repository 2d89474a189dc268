// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	niclaneapp "github.com/niclane/niclane/app"
	"github.com/niclane/niclane/cmd/internal/cli"
)

func (a *app) adviseCommand() *cobra.Command {
	var lane, application string
	cmd := &cobra.Command{
		Use:   "advise --lane NAME [FILE]",
		Short: "Print the settings with which applications match a lane",
		Long: `Advise prints settings with which applications match an applied lane: worker counts,
processors and listeners. For applications that place connections by NAPI ID, it also
prints the number of the lane's NAPIs. It adds reasons, cautions and sources. If
several files have a lane of this name, give FILE. Advise changes nothing.`,
		Args: cli.AtMost(1, "at most one lanes file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if lane == "" {
				return cli.Usagef("advise: --lane: name an applied lane")
			}
			if err := cli.NeedRoot("advise"); err != nil {
				return err
			}
			l, err := a.findLane(lane, strings.Join(args, ""))
			if err != nil {
				return err
			}
			as, err := niclaneapp.Advise(l, application)
			if err != nil {
				return cli.Usagef("advise: --for: %w", err)
			}
			if a.JSON {
				return a.PrintJSON(as)
			}
			niclaneapp.WriteAdvice(a.Stdout, l, as)
			return nil
		},
	}
	cmd.Flags().StringVar(&lane, "lane", "", "the lane's name (required)")
	cmd.Flags().StringVar(&application, "for", "", "only this `application` ("+
		strings.Join(niclaneapp.Applications(), ", ")+"); default: all")
	return cmd
}
