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
		Short: "Say how applications are set to match a lane",
		Long: `Advise prints the settings of applications that match a lane which is applied:
worker counts, processors, listeners, and for those that place connections by
NAPI ID as many of these as the lane has; with reasons, cautions and sources. It
changes nothing.`,
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
	cmd.Flags().StringVar(&application, "for", "", "one `application` ("+strings.Join(niclaneapp.Applications(), ", ")+
		")")
	return cmd
}
