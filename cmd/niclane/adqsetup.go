// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/migrate/adqsetup"
	"github.com/niclane/niclane/watch/systemd"
)

// The kinds of values that adqsetup's options take.
const (
	takesText = iota
	takesNumber
	takesOnOff // on or off; the option alone means on
	takesNothing
)

// adqOptions are the options of adqsetup 2.0.2 that are also keys of [globals] in its files.
var adqOptions = []struct {
	name, short string
	takes       int
	usage       string
}{
	{"dev", "d", takesText, "the network `device`"},
	{"queues", "q", takesNumber, "number of queues of the default lane"},
	{"cpus", "", takesText, "processors of the default lane"},
	{"optimize", "o", takesOnOff, "set the private flag channel-pkt-inspect-optimize of Intel's own driver (`on|off`)"},
	{"bpstop", "s", takesOnOff, "accepted without effect: a private flag of Intel's own driver (`on|off`)"},
	{"bpstop-cfg", "", takesOnOff, "accepted without effect: a private flag of Intel's own driver (`on|off`)"},
	{"busypoll", "b", takesNumber, "net.core.busy_poll in microseconds"},
	{"busyread", "", takesNumber, "net.core.busy_read in microseconds"},
	{"rxadapt", "", takesOnOff, "adaptive interrupt moderation on receive (`on|off`)"},
	{"rxusecs", "", takesNumber, "interrupt moderation on receive, in microseconds"},
	{"rxring", "", takesNumber, "size of each receive ring, in descriptors"},
	{"txadapt", "", takesOnOff, "adaptive interrupt moderation on transmit (`on|off`)"},
	{"txusecs", "", takesNumber, "interrupt moderation on transmit, in microseconds"},
	{"txring", "", takesNumber, "size of each transmit ring, in descriptors"},
	{"arpfilter", "f", takesNothing, "answer ARP for the device's own addresses only"},
	{"priority", "p", takesText, "only skbedit: niclane always sends a lane's packets by the lane's queues"},
}

// An adqRun is one run of adqsetup's command line.
type adqRun struct {
	*app
	flags                  *pflag.FlagSet
	json, verbose, debug   bool
	reload, version        bool
	dryRun                 bool
	within                 time.Duration
	driver, log, directory string
}

func (a *app) adqsetupCommand() *cobra.Command {
	r := &adqRun{app: a}
	cmd := &cobra.Command{
		Use:   "adqsetup [OPTION]... COMMAND [PARAMETER]...",
		Short: "Accept the command line of adqsetup",
		Long: `Adqsetup accepts the command line of Intel's adqsetup 2.0.2. It writes the settings to
a lanes file, adqsetup/DEV.yaml in the state directory, and plans and applies that file
as niclane apply does. So status, verify and rollback work on these lanes.

  apply [FILE|-]              apply a file of adqsetup, or standard input
  create [NAME] KEY VALUE ... [NAME] KEY VALUE ...
                              apply the settings in the words; NAME in brackets
  reset                       undo apply and create on this host, or on --dev
  persist [FILE|-]            make the lanes at boot, and keep them
  examples                    write adqsetup's examples and their lanes files to a
                              new directory, examples
  install                     do nothing: niclane is installed
  help                        print this help

adqsetup's options can stand anywhere. They replace the values in the file.
docs/migrating-from-adqsetup.md lists the differences from adqsetup.`,
		Example: `  niclane adqsetup apply memcached.conf
  niclane adqsetup --dev=eth4 --dry-run apply nginx.conf
  niclane adqsetup create [app1] queues 6 ports 80,443
  niclane adqsetup reset`,
		// adqWords parses the options instead, because adqsetup has the syntax of Python's argparse: an
		// on/off option may stand alone, or have its value in the next word.
		DisableFlagParsing: true,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cmd.DisableFlagParsing = false
		if err := cmd.ParseFlags(adqWords(cmd.Flags(), args)); err != nil {
			return cmd.FlagErrorFunc()(cmd, err)
		}
		r.flags = cmd.Flags()
		if help, _ := cmd.Flags().GetBool("help"); help {
			return cmd.Help()
		}
		return r.run(cmd, cmd.Flags().Args())
	}
	f := cmd.Flags()
	f.SortFlags = false
	for _, o := range adqOptions {
		f.StringP(o.name, o.short, "", o.usage)
		switch o.takes {
		case takesOnOff, takesNothing:
			f.Lookup(o.name).NoOptDefVal = "on"
		}
	}
	f.BoolVarP(&r.debug, "debug", "D", false, "the same as --verbose")
	f.BoolVarP(&r.verbose, "verbose", "v", false, "print the lanes file and the plan first")
	f.StringVar(&r.driver, "driver", "", "refused: niclane loads no driver")
	f.StringVarP(&r.log, "log", "l", "", "write equivalent command lines to this `file`")
	f.BoolVarP(&r.json, "json", "j", false, "the file is JSON; niclane detects this also without the option")
	f.BoolVarP(&r.reload, "reload", "r", false, "refused: niclane loads no driver")
	f.BoolVarP(&r.version, "version", "V", false, "print the version")
	f.BoolVar(&r.dryRun, "dry-run", false, "niclane's own: show what apply and create would do, and change nothing")
	cli.TimeVar(f, &r.within, "confirm-within",
		`niclane's own: undo after this time unless niclane confirm comes first ("60s"; default: never)`)
	f.StringVar(&r.directory, "unit-dir", systemd.DefaultDir, "niclane's own: `directory` to which persist "+
		"writes units")
	return cmd
}

// run runs one of adqsetup's commands.
func (r *adqRun) run(cmd *cobra.Command, args []string) error {
	if r.version {
		fmt.Fprintf(r.Stdout, "niclane %s, with the command line of adqsetup 2.0.2\n", version)
		return nil
	}
	if len(args) == 0 {
		return cli.Usagef("adqsetup: no command, want apply, create, reset, persist, examples, install or help")
	}
	if r.driver != "" || r.reload {
		return cli.Usagef("adqsetup: niclane loads no driver: load the driver, wait for its device, and leave out " +
			"--driver and --reload")
	}
	if r.flags.Changed("confirm-within") && r.within < time.Second {
		return cli.Usagef("adqsetup: --confirm-within %v: want at least 1s", r.within)
	}
	name, params := args[0], args[1:]
	limit, known := map[string]int{"apply": 1, "persist": 1, "create": len(params), "reset": 0, "examples": 0,
		"install": 0, "help": 0}[name]
	if !known {
		return cli.Usagef("adqsetup: unknown command %q, want apply, create, reset, persist, examples, install or help",
			name)
	}
	if len(params) > limit {
		return cli.Usagef("adqsetup %s: found %q, want no more than %s", name, params[limit],
			cli.Plural(limit, "parameter"))
	}
	options, err := r.options()
	if err != nil {
		return err
	}
	switch name {
	case "apply", "create":
		return r.setUp(cmd.Context(), name, params, options)
	case "persist":
		return r.keep(name, params, options)
	case "reset":
		return r.reset(cmd.Context())
	case "examples":
		return r.examples("examples")
	case "install":
		fmt.Fprintln(r.Stdout, "nothing to do: niclane is installed, and adqsetup is one of its commands")
		return nil
	}
	return cmd.Help()
}

// options returns the options of the command line that are also keys of [globals]. A wrong value is
// an error.
func (r *adqRun) options() ([]adqsetup.Option, error) {
	var out []adqsetup.Option
	for _, o := range adqOptions {
		if !r.flags.Changed(o.name) {
			continue
		}
		v := r.flags.Lookup(o.name).Value.String()
		switch {
		case o.takes == takesNumber && !strictyaml.IsDecimal(v):
			return nil, cli.Usagef("adqsetup: --%s: found %q, want a number", o.name, v)
		case o.takes == takesOnOff && !adqsetup.IsBoolean(v):
			return nil, cli.Usagef("adqsetup: --%s: found %q, want on or off", o.name, v)
		case o.takes == takesNothing && v != "on":
			return nil, cli.Usagef("adqsetup: --%s: found %q, want the option without a value", o.name, v)
		case o.name == "priority" && v != "skbedit":
			return nil, cli.Usagef("adqsetup: --priority: found %q, want skbedit", v)
		case v == "":
			return nil, cli.Usagef("adqsetup: --%s: found nothing, want a value", o.name)
		}
		out = append(out, adqsetup.Option{Key: o.name, Value: v})
	}
	return out, nil
}

// adqWords converts arguments in the syntax of Python's argparse to that of pflag. In argparse, the
// beginning of an option's name is enough if no other option begins so. And on or off may be in the
// word after the option.
func adqWords(f *pflag.FlagSet, args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		word := args[i]
		if word == "--" {
			return append(out, args[i:]...)
		}
		var flag *pflag.Flag
		switch name, rest, joined := strings.Cut(strings.TrimPrefix(word, "--"), "="); {
		case strings.HasPrefix(word, "--"):
			if flag = byBeginning(f, name); flag == nil {
				break
			}
			if word = "--" + flag.Name; joined {
				word, flag = word+"="+rest, nil
			}
		case len(word) > 1 && word[0] == '-':
			flag = f.ShorthandLookup(word[1:2])
			if flag != nil && takesWord(flag) && len(word) > 2 && word[2] != '=' { // as in -oon
				word, flag = "--"+flag.Name+"="+word[2:], nil
			} else if len(word) > 2 {
				flag = nil
			}
		}
		out = append(out, word)
		switch {
		case flag == nil || i+1 == len(args):
		case takesWord(flag) && adqsetup.IsBoolean(args[i+1]):
			i++
			out[len(out)-1] = "--" + flag.Name + "=" + args[i]
		case flag.NoOptDefVal == "": // the next word is its value, even if it looks like an option
			i++
			out = append(out, args[i])
		}
	}
	return out
}

// takesWord reports whether the word after an option may be its value on or off.
func takesWord(flag *pflag.Flag) bool {
	for _, o := range adqOptions {
		if o.name == flag.Name {
			return o.takes == takesOnOff
		}
	}
	return false
}

// byBeginning returns the option with this name, or the only option whose name begins with it. If
// there is none or several, it returns nil.
func byBeginning(f *pflag.FlagSet, name string) (found *pflag.Flag) {
	if flag := f.Lookup(name); flag != nil || name == "" {
		return flag
	}
	several := false
	f.VisitAll(func(flag *pflag.Flag) {
		if strings.HasPrefix(flag.Name, name) {
			several = several || found != nil
			found = flag
		}
	})
	if several {
		return nil
	}
	return found
}
