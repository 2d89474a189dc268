// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	niclaneapp "github.com/niclane/niclane/app"
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
		Args: atMost(1, "at most one lanes file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if lane == "" {
				return usagef("advise: --lane: name an applied lane")
			}
			if err := needRoot("advise"); err != nil {
				return err
			}
			l, err := a.findLane(lane, strings.Join(args, ""))
			if err != nil {
				return err
			}
			as, err := niclaneapp.Advise(l, application)
			if err != nil {
				return usagef("advise: --for: %w", err)
			}
			if a.json {
				return a.printJSON(as)
			}
			niclaneapp.WriteAdvice(a.stdout, l, as)
			return nil
		},
	}
	cmd.Flags().StringVar(&lane, "lane", "", "the lane's name (required)")
	cmd.Flags().StringVar(&application, "for", "", "one application ("+strings.Join(niclaneapp.Applications(), ", ")+")")
	return cmd
}
