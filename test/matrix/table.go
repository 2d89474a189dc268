// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"text/tabwriter"
)

// metric matches one metric in go test's output: the ns per packet of a way, for a number of
// members.
var metric = regexp.MustCompile(`([0-9.]+) ns-(\S+)/([0-9]+)`)

// table writes the results of a benchmark: thousands of packets per second on one processor, and
// the difference from the way "none" (nothing attached) in the same run. It returns an error if a
// number is missing.
func (s *section) table(w io.Writer) error {
	cost := map[string]map[int]float64{}
	var ways []string
	var members []int
	for _, line := range s.text {
		for _, m := range metric.FindAllStringSubmatch(line, -1) {
			ns, err := strconv.ParseFloat(m[1], 64)
			if err != nil || ns <= 0 {
				return fmt.Errorf("%s: %q: want a number above 0", s.name, m[0])
			}
			n, err := strconv.Atoi(m[3])
			if err != nil {
				return fmt.Errorf("%s: %q: %w", s.name, m[0], err)
			}
			if cost[m[2]] == nil {
				cost[m[2]] = map[int]float64{}
				ways = append(ways, m[2])
			}
			cost[m[2]][n] = ns
			if !slices.Contains(members, n) {
				members = append(members, n)
			}
		}
	}
	if len(cost["none"]) == 0 {
		return fmt.Errorf("%s: no numbers for a device with nothing attached", s.name)
	}
	slices.Sort(members)
	slices.SortFunc(ways, func(a, b string) int { // the cheapest way with the most members comes first
		last := members[len(members)-1]
		return int(cost[a][last] - cost[b][last])
	})
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "kpkt/s (of none)\t")
	for _, n := range members {
		fmt.Fprintf(t, "%d members\t", n)
	}
	fmt.Fprintln(t)
	for _, way := range ways {
		fmt.Fprintf(t, "%s\t", way)
		for _, n := range members {
			fmt.Fprintf(t, "%.2f (%.2f)\t", 1e6/cost[way][n], cost["none"][n]/cost[way][n])
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
