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
// something.
var metric = regexp.MustCompile(`([0-9.]+) ns-(\S+)/([0-9]+)`)

// table writes the results of a benchmark: thousands of packets per second on one processor, and
// the difference from the way "none" (no lane) in the same run. per is what the numbers are for. It
// returns an error if a number is missing.
func (s *section) table(w io.Writer, per string) error {
	cost := map[string]map[int]float64{}
	var ways []string
	var numbers []int
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
			if !slices.Contains(numbers, n) {
				numbers = append(numbers, n)
			}
		}
	}
	if len(cost["none"]) == 0 {
		return fmt.Errorf("%s: no numbers for a device without a lane", s.name)
	}
	slices.Sort(numbers)
	slices.SortFunc(ways, func(a, b string) int { // the cheapest way for the greatest number comes first
		last := numbers[len(numbers)-1]
		return int(cost[a][last] - cost[b][last])
	})
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "kpkt/s (of none)\t")
	for _, n := range numbers {
		fmt.Fprintf(t, "%d %s\t", n, per)
	}
	fmt.Fprintln(t)
	for _, way := range ways {
		fmt.Fprintf(t, "%s\t", way)
		for _, n := range numbers {
			fmt.Fprintf(t, "%.2f (%.2f)\t", 1e6/cost[way][n], cost["none"][n]/cost[way][n])
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
