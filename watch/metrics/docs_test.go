// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/niclane/niclane/watch"
)

// TestReference compares docs/reference/metrics.md with the metrics at /metrics: names, types and
// labels. Package k8s/agent tests the page's part about niclane-agent, and live/metrics that about
// waits.
func TestReference(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	ours, _, found := strings.Cut(string(page), "\n## Metrics of niclane-agent alone\n")
	if !found {
		t.Fatal("the page has no part about niclane-agent")
	}
	ours, _, _ = strings.Cut(ours, "\n## Waits\n")
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(niclane_\\w+)` \\| (\\w+) \\| ([\\w, ]+) \\|").
		FindAllStringSubmatch(ours, -1) {
		documented = append(documented, row[1]+" "+row[2]+" "+row[3])
	}
	slices.Sort(documented)
	if diff := cmp.Diff(shown(t), documented); diff != "" {
		t.Errorf("docs/reference/metrics.md (-code +page):\n%s", diff)
	}
}

// shown returns the name, type and labels of each metric at /metrics.
func shown(t *testing.T) []string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{series: newSeries(), read: reading, keeper: &keeper{conditions: []watch.Condition{
		{Config: "/l.yaml", Waits: map[string]string{"d0": "is down"}},
	}}})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if len(labels) == 0 {
			labels = []string{"none"}
		}
		out = append(out, f.GetName()+" "+strings.ToLower(f.GetType().String())+" "+strings.Join(labels, ", "))
	}
	if len(out) != len(newSeries().all) {
		t.Errorf("%d metrics are shown, %d described", len(out), len(newSeries().all))
	}
	return out
}
