// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"fmt"
	"math"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/counters"
	"github.com/niclane/niclane/bench/result"
)

// counted returns how many gets, sets and hits the generators and the server counted between two
// readings of the server's counters. It leaves out what the server does not count.
func counted(before, after counters.Counters, w load.Work) []result.Count {
	var out []result.Count
	for _, x := range []struct {
		name          string
		before, after counters.Counter
		sent          int64
	}{{gets, before.Gets, after.Gets, w.Gets}, {sets, before.Sets, after.Sets, w.Sets},
		{hits, before.Hits, after.Hits, w.GetHits}} {
		if x.after.Name != "" {
			out = append(out, result.Count{Name: x.name, Sent: x.sent, Served: x.after.Value - x.before.Value})
		}
	}
	return out
}

// Names of counts.
const (
	gets = "gets"
	sets = "sets"
	hits = "hits"
)

// prove compares the server's own counts of a window with the workload of the file. Package
// counters compares them with the generators' counts.
func prove(w experiment.Workload, counts []result.Count, unanswered int64) error {
	served := map[string]int64{}
	for _, c := range counts {
		served[c.Name] = c.Served
	}
	g, s := served[gets], served[sets]
	var errs []error
	if n := float64(g + s); n > 0 {
		// Each request is a get or a set at random: allow five standard deviations, plus one.
		want := float64(w.Gets) / float64(w.Gets+w.Sets)
		if off := math.Abs(float64(g) - n*want); off > 1+5*math.Sqrt(n*want*(1-want))+float64(unanswered) {
			errs = append(errs, fmt.Errorf("the server had gets:sets of %d:%d, the workload says get-set: %d:%d", g, s,
				w.Gets, w.Sets))
		}
	}
	if have, least := served[hits], int64(w.LeastHits); least > 0 && (have+unanswered)*1000 < g*least {
		errs = append(errs, fmt.Errorf("the server had the value for %d of %d gets (%.1f %%), the workload "+
			"wants least-hits: %.1f%% (does the server have the memory for all keys?)",
			have, g, 100*float64(have)/float64(g), float64(least)/10))
	}
	return unproven(errors.Join(errs...))
}

// unproven adds to an error that the workload is not proven.
func unproven(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the workload is not proven: %w", err)
}
