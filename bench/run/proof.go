// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"fmt"
	"math"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/result"
)

// counters of a memcached: "cmd_get" and so on (doc/protocol.txt there).
type counters map[string]int64

// Names of counters.
const (
	cmdGet    = "cmd_get"
	cmdSet    = "cmd_set"
	getHits   = "get_hits"
	currItems = "curr_items"
)

// counted compares what the server counted between two readings with what the
// generators asked for.
func counted(before, after counters, w load.Work) []result.Count {
	return []result.Count{
		{Name: "gets", Sent: w.Gets, Served: after[cmdGet] - before[cmdGet]},
		{Name: "sets", Sent: w.Sets, Served: after[cmdSet] - before[cmdSet]},
		{Name: "hits", Sent: w.GetHits, Served: after[getHits] - before[getHits]},
	}
}

// prove holds the server's own counts of a window against what the generators
// sent and against the workload of the file. Requests that were never answered
// may have reached the server or not; nothing else may differ.
func prove(w experiment.Workload, counts []result.Count, unanswered int64) error {
	var errs []error
	served := map[string]int64{}
	for _, c := range counts {
		served[c.Name] = c.Served
		if d := c.Served - c.Sent; d > unanswered || -d > unanswered {
			errs = append(errs, fmt.Errorf("the server counted %d %s, the generators %d (%d requests were not answered)", c.Served, c.Name, c.Sent, unanswered))
		}
	}
	gets, sets := served["gets"], served["sets"]
	if n := float64(gets + sets); n > 0 {
		// Gets and sets are drawn: five standard deviations of that, and one.
		want := float64(w.Gets) / float64(w.Gets+w.Sets)
		if off := math.Abs(float64(gets) - n*want); off > 1+5*math.Sqrt(n*want*(1-want))+float64(unanswered) {
			errs = append(errs, fmt.Errorf("the server had gets:sets of %d:%d, the workload says get-set: %d:%d", gets, sets, w.Gets, w.Sets))
		}
	}
	if have, least := served["hits"], int64(w.LeastHits); least > 0 && (have+unanswered)*1000 < gets*least {
		errs = append(errs, fmt.Errorf("the server had what was asked for in %d of %d gets (%.1f %%), the workload wants least-hits: %.1f%%",
			have, gets, 100*float64(have)/float64(gets), float64(least)/10))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the workload is not proven: %w", err)
	}
	return nil
}

// proveFilled holds the server's counters after the prefill against the keys.
func proveFilled(w experiment.Workload, before, after counters) error {
	sets, items := after[cmdSet]-before[cmdSet], after[currItems]
	if sets < int64(w.Keys) || items < int64(w.Keys) {
		return fmt.Errorf("the prefill is not proven: the server counted %d sets and holds %d items, want %d keys (is server.memory too small?)", sets, items, w.Keys)
	}
	return nil
}
