// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/papers/refresh"
)

// fromPaper is the start of an argument that names a row in the content-delivery paper's table.
const fromPaper = "paper:"

// A refreshing holds the command's arguments.
type refreshing struct {
	*app
	refresh.Assumptions
	units    []int
	rule     string
	requests float64
}

func (a *app) refreshCommand() *cobra.Command {
	r := &refreshing{app: a}
	cmd := &cobra.Command{
		Use:   "refresh OLD NEW | refresh --list",
		Short: "Count the racks, servers and watts that new servers save",
		Long: `Refresh does the arithmetic of a server vendor's promise, "200 racks become 72",
and prints its rule and what it assumes. OLD and NEW are results of "niclane bench
run" that measured power, or rows of the content-delivery paper's table:

    DIR#VARIANT          a variant of a result with one load point
    DIR#VARIANT#POINT    a variant at that load point, as report names it
    paper:2x6252N/live/48

Refresh does not check that both did the same work.

With --requests it counts the servers that a rate of requests takes within the
experiment's SLA. OLD and NEW are DIR#VARIANT. The rate of one server is the one that
the search found, or the highest load that meets the SLA.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if list, _ := cmd.Flags().GetBool("list"); list {
				return cli.Exactly(0, "none with --list")(cmd, args)
			}
			return cli.Exactly(2, "OLD and NEW")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return r.list()
			}
			if cmd.Flags().Changed("requests") {
				return r.serving(args[0], args[1])
			}
			return r.run(args[0], args[1])
		},
	}
	f := cmd.Flags()
	f.Bool("list", false, "print the rows of the paper's table")
	f.StringVar(&r.rule, "rule", string(refresh.ByPower),
		fmt.Sprintf("what limits a rack: one of %v", refresh.Rules))
	f.IntVar(&r.Racks, "racks", 200, "racks of old servers")
	f.Float64Var(&r.RackPower, "rack-power", 0,
		"power that the servers of a full rack take, kW, for --rule power (default: only ratios)")
	f.IntVar(&r.RackUnits, "rack-units", 42, "units of a rack that servers may take, for --rule units")
	f.IntSliceVar(&r.units, "units", nil,
		"rack units of an old and a new server (\"1,2\"), for --rule units with results")
	f.Float64Var(&r.PUE, "pue", 1, "power of the site divided by that of its servers")
	f.Float64Var(&r.requests, "requests", 0, "count servers for this `rate` of requests per second, within the SLA")
	f.Float64Var(&r.Price, "price", 0, "price of 1 kWh")
	return cmd
}

func (r *refreshing) list() error {
	rows := refresh.Paper()
	if r.JSON {
		return r.PrintJSON(rows)
	}
	fmt.Fprintln(r.Stdout, refresh.PaperSource)
	w := tabwriter.NewWriter(r.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tGbit/s\tGbit/s per W\track units\t")
	for _, s := range rows {
		fmt.Fprintf(w, "%s%s\t%.2f\t%.2f\t%d\t\n", fromPaper, s.Name, s.Rate.Value, s.RatePerWatt.Value, s.Units)
	}
	return w.Flush()
}

func (r *refreshing) run(old, next string) error {
	if len(r.units) != 0 && len(r.units) != 2 {
		return cli.Usagef("refresh: --units: %d numbers, want two, of an old and a new server", len(r.units))
	}
	var servers [2]refresh.Server
	for i, name := range []string{old, next} {
		var err error
		if servers[i], err = readServer(name); err != nil {
			return fmt.Errorf("refresh: %w", err)
		}
		if len(r.units) == 2 {
			servers[i].Units = r.units[i]
		}
	}
	r.Rule = refresh.Rule(r.rule)
	r.RackPower *= 1000
	out, err := refresh.Replace(servers[0], servers[1], r.Assumptions)
	if err != nil {
		return cli.Usagef("refresh: %w", err)
	}
	if r.JSON {
		return r.PrintJSON(out)
	}
	return out.WriteText(r.Stdout)
}

// readServer returns the server that an argument names: a variant in a result, or a row of the
// paper's table.
func readServer(name string) (refresh.Server, error) {
	if row, ok := strings.CutPrefix(name, fromPaper); ok {
		return refresh.FromPaper(row)
	}
	f := strings.Split(name, "#")
	if len(f) < 2 || len(f) > 3 {
		return refresh.Server{}, fmt.Errorf("%s: want DIR#VARIANT, DIR#VARIANT#POINT or %sROW", name, fromPaper)
	}
	path := f[0]
	x, err := readResult(path)
	if err != nil {
		return refresh.Server{}, err
	}
	summary := result.Summarize(x)
	points := summary.Points
	if len(f) == 3 {
		points = slices.DeleteFunc(slices.Clone(points), func(p result.PointSummary) bool { return p.Name != f[2] })
	}
	if len(points) != 1 {
		var names []string
		for _, p := range summary.Points {
			names = append(names, fmt.Sprintf("%q", p.Name))
		}
		return refresh.Server{}, fmt.Errorf("%s has the load points %s: give one, as %s#%s#POINT", path,
			strings.Join(names, ", "), f[0], f[1])
	}
	s, err := serverOf(points[0], f[1])
	if err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	s.Name, s.Source = name, fmt.Sprintf("%s, %s; power by %s", path, points[0].Name, s.Source)
	return s, nil
}

// serverOf returns the rate and the rate per watt of a variant at a load point. It takes both from
// the first source of power that has them.
func serverOf(p result.PointSummary, variant string) (refresh.Server, error) {
	var names []string
	for _, v := range p.Variants {
		names = append(names, v.Name)
		if v.Name != variant {
			continue
		}
		missing := errors.New("power was not measured")
		for _, w := range v.Power {
			if d := w.Derived; d != nil && d.Rate != nil && d.RatePerWatt != nil {
				return refresh.Server{Rate: *d.Rate, RatePerWatt: *d.RatePerWatt, Source: w.Provenance.Source}, nil
			}
			missing = fmt.Errorf("power was not measured by %s: %s", w.Provenance.Source, w.Missing)
		}
		return refresh.Server{}, fmt.Errorf("variant %s: %w: a refresh needs Gbit/s per W", variant, missing)
	}
	return refresh.Server{}, fmt.Errorf("no variant %q: there are %s", variant, strings.Join(names, ", "))
}
