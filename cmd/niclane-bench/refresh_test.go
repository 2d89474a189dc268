// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/result"
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
