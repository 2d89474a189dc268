// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats/search"
	"github.com/niclane/niclane/internal/testing/must"
)

// TestServerOf: serverOf uses the first source of power that has a rate per watt. If a variant has
// no such source, the error says why.
func TestServerOf(t *testing.T) {
	rate, per := power.Interval{Value: 10, Low: 9, High: 11}, power.Interval{Value: 0.5, Low: 0.4, High: 0.6}
	p := result.PointSummary{Variants: []result.VariantSummary{
		{Name: "dark", Power: []result.PowerSummary{{Provenance: power.Provenance{Source: "rapl"},
			Missing: "no sensor"}}},
		{Name: "lane", Power: []result.PowerSummary{
			{Provenance: power.Provenance{Source: "rapl"}, Missing: "no sensor"},
			{Provenance: power.Provenance{Source: "pdu"}, Derived: &power.Derived{Rate: &rate, RatePerWatt: &per}},
		}},
		{Name: "plain"},
	}}
	s, err := serverOf(p, "lane")
	if err != nil || s.Rate != rate || s.RatePerWatt != per || s.Source != "pdu" {
		t.Errorf("%+v, %v", s, err)
	}
	for variant, want := range map[string]string{
		"dark":  "power was not measured by rapl: no sensor",
		"plain": "power was not measured",
		"gone":  `no variant "gone": there are dark, lane, plain`,
	} {
		if _, err := serverOf(p, variant); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", variant, err, want)
		}
	}
}

// TestRefreshRequests: servers for a rate of requests come from the highest load that meets each SLA, or
// from the search for that SLA.
func TestRefreshRequests(t *testing.T) {
	t.Chdir(t.TempDir())
	keep := func(name string, slas ...experiment.SLA) *result.Result {
		r := smallResult("6.18")
		if len(slas) > 0 {
			r.Experiment.SLA, r.Experiment.MoreSLAs = &slas[0], slas[1:]
		}
		must.Do(t, result.WriteFile(name, r))
		return r
	}
	loose, tight := experiment.SLA{Percentile: 99, At: 1e6}, experiment.SLA{Percentile: 99, At: 70_000}
	r := keep("a.json", loose, tight) // idle takes 50 µs, lane 100 µs
	keep("other.json", experiment.SLA{Percentile: 99, At: 2e6})
	keep("none.json")
	r.Searches = []result.Search{
		{Variant: "lane", Config: search.Config{Goal: search.Goal{Percentile: 99, Limit: 3e6}},
			Result: &search.Result{Rate: 7000}},
		{Variant: "lane", Config: search.Config{Goal: search.Goal{Percentile: 99, Limit: 1e6}},
			Result: &search.Result{Rate: 2500, Beyond: 3000}}}
	must.Do(t, result.WriteFile("searched.json", r))
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"a.json#lane a.json#idle --requests 4500", 0, []string{"within   P99 ≤ 1.00 ms, 4500 requests per second",
			"old      a.json#lane: 1000/s each: 5 servers\n", "saved    0 servers: 5 become 5",
			"old      a.json#lane: within it at no rate that was measured",
			"new      a.json#idle: 1000/s each: 5 servers"}},
		{"a.json#idle searched.json#lane --requests 4500", 0, []string{"1000/s each: 5 servers",
			"2500/s each, not 3000/s: 2 servers\n", "from the search", "saved    3 servers: 5 become 2"}},
		{"a.json#idle a.json#lane --requests 4500 --json", 0, []string{`"savedServers": 0`}},
		{"a.json#idle a.json#lane --requests 0", 2, []string{"--requests: 0 requests per second: want more than 0"}},
		{"a.json#idle paper:2x6780E/live/48 --requests 1", 1, []string{"want DIR#VARIANT with --requests"}},
		{"a.json#idle a.json#gone --requests 1", 1, []string{`no variant "gone": there are idle, lane`}},
		{"a.json#idle none.json#idle --requests 1", 1, []string{"none.json#idle: its experiment has no sla"}},
		{"a.json#idle other.json#idle --requests 1", 1, []string{"no SLA is in both: OLD has P99 ≤ 1.00 ms, " +
			"P99 ≤ 70.0 µs, NEW has P99 ≤ 2.00 ms"}},
	} {
		var out, errs bytes.Buffer
		args := append([]string{"refresh"}, strings.Fields(c.args)...)
		if code := run(args, nil, &out, &errs); code != c.code {
			t.Errorf("%s: exit code %d, want %d: %s", c.args, code, c.code, errs.String())
		}
		for _, w := range c.want {
			if !strings.Contains(out.String()+errs.String(), w) {
				t.Errorf("%s: want %q in\n%s%s", c.args, w, out.String(), errs.String())
			}
		}
		if strings.Contains(c.args, "--json") {
			if err := conforms(t, args, out.Bytes()); err != nil {
				t.Error(err)
			}
		}
	}
}
