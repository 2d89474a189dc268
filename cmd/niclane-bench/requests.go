// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/papers/refresh"
)

// serving counts the servers of a rate of requests, for each SLA that both results have.
func (r *refreshing) serving(old, next string) error {
	var sides [2]map[experiment.SLA]refresh.Serving
	var order []experiment.SLA
	var texts [2][]string
	for i, name := range []string{old, next} {
		x, variant, err := readVariant(name)
		if err != nil {
			return fmt.Errorf("refresh: %w", err)
		}
		sides[i] = map[experiment.SLA]refresh.Serving{}
		s := result.Summarize(x)
		for _, a := range s.SLAs {
			k := slices.IndexFunc(a.Variants, func(v result.SLAVariant) bool { return v.Name == variant })
			if k < 0 {
				return fmt.Errorf("refresh: %s: variant %q has no load point", name, variant)
			}
			serving := servingOf(s, a.Variants[k], a.SLA)
			serving.Name = name
			sides[i][a.SLA], texts[i] = serving, append(texts[i], a.Text)
			if i == 0 {
				order = append(order, a.SLA)
			}
		}
		if len(s.SLAs) == 0 {
			return fmt.Errorf("refresh: %s: its experiment has no sla; --requests needs one", name)
		}
	}
	var out []refresh.Requests
	for i, sla := range order {
		next, both := sides[1][sla]
		if !both {
			continue
		}
		one, err := refresh.ForRequests(texts[0][i], r.requests, sides[0][sla], next)
		if err != nil {
			return cli.Usagef("refresh: --requests: %w", err)
		}
		out = append(out, one)
	}
	if len(out) == 0 {
		return fmt.Errorf("refresh: no SLA is in both: OLD has %s, NEW has %s", strings.Join(texts[0], ", "),
			strings.Join(texts[1], ", "))
	}
	if r.JSON {
		return r.PrintJSON(out)
	}
	return refresh.WriteRequests(r.Stdout, out)
}

// readVariant reads DIR#VARIANT and checks that the result has the variant.
func readVariant(name string) (*result.Result, string, error) {
	path, variant, ok := strings.Cut(name, "#")
	if !ok || strings.HasPrefix(name, fromPaper) || strings.Contains(variant, "#") {
		return nil, "", fmt.Errorf("%s: want DIR#VARIANT with --requests", name)
	}
	x, err := readResult(path)
	if err != nil {
		return nil, "", err
	}
	var names []string
	for _, v := range x.Variants {
		if names = append(names, v.Name); v.Name == variant {
			return x, variant, nil
		}
	}
	return nil, "", fmt.Errorf("%s: no variant %q: there are %s", path, variant, strings.Join(names, ", "))
}

// servingOf returns the rate of one server within an SLA: the one that the search for it found, or the
// highest load that meets it.
func servingOf(s *result.Summary, v result.SLAVariant, sla experiment.SLA) refresh.Serving {
	for _, x := range s.Searches {
		g := x.Config.Goal
		if x.Variant == v.Name && g.Percentile == sla.Percentile && g.Limit == sla.At && x.Result != nil &&
			x.Result.Rate > 0 {
			return refresh.Serving{Rate: x.Result.Rate, Beyond: x.Result.Beyond,
				Source: "the search for the highest rate"}
		}
	}
	out := refresh.Serving{Source: "its load points: " + v.Text}
	if v.Holds != nil {
		out.Rate = v.Holds.Achieved
	}
	if v.Exceeds != nil && v.Holds != nil {
		out.Beyond = s.Points[v.Exceeds.Point].Rate // 0 for a closed loop
	}
	return out
}
