// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/lab"
)

// words is a function that returns the possible values of an argument, for shell completion.
type words func() ([]string, cobra.ShellCompDirective)

// addCompletion adds shell completion to the subcommands of root.
func (a *app) addCompletion(root *cobra.Command) {
	first := map[string]words{
		"probe": a.devices, "suggest": a.devices, "status": a.laneDevices, "top": a.laneDevices,
		"verify": a.laneDevicesOrFile, "rollback": a.laneDevicesOrFile,
		"check": lanesFile, "plan": lanesFile, "apply": lanesFile, "watch": lanesFile, "persist": lanesFile,
		"exec": hosts,
	}
	for _, c := range append(root.Commands(), subcommand(root, "lab")...) {
		if complete := first[c.Name()]; complete != nil {
			c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
				if len(args) > 0 {
					return nil, cobra.ShellCompDirectiveDefault
				}
				return complete()
			}
		}
		for name, complete := range map[string]words{"lane": a.lanes, "dev": a.devices, "card": cards} {
			if c.Flags().Lookup(name) != nil {
				// RegisterFlagCompletionFunc fails only for an unknown option.
				_ = c.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string,
					cobra.ShellCompDirective) {
					return complete()
				})
			}
		}
	}
}

func subcommand(root *cobra.Command, name string) []*cobra.Command {
	for _, c := range root.Commands() {
		if c.Name() == name {
			return c.Commands()
		}
	}
	return nil
}

func (a *app) devices() ([]string, cobra.ShellCompDirective) {
	entries, err := os.ReadDir("/sys/class/net")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// laneDevices returns the devices with lanes, or all devices if the user may not read the
// journals.
func (a *app) laneDevices() ([]string, cobra.ShellCompDirective) {
	_, names, err := a.Engine().Fitted("")
	if err != nil {
		return a.devices()
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) laneDevicesOrFile() ([]string, cobra.ShellCompDirective) {
	names, _ := a.laneDevices()
	return names, cobra.ShellCompDirectiveDefault
}

func (a *app) lanes() ([]string, cobra.ShellCompDirective) {
	fitted, _, err := a.Engine().Fitted("")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, l := range fitted {
		if !slices.Contains(names, l.Name) {
			names = append(names, l.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func lanesFile() ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

func hosts() ([]string, cobra.ShellCompDirective) {
	return []string{lab.SUT, lab.Client, lab.Noise, lab.Switch}, cobra.ShellCompDirectiveNoFileComp
}

func cards() ([]string, cobra.ShellCompDirective) {
	return []string{lab.CardEmulated, lab.CardNone}, cobra.ShellCompDirectiveNoFileComp
}
