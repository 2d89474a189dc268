// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// TestReference compares a section of docs/reference/metrics.md with the metrics that the agent
// exports in addition to those of niclane watch.
func TestReference(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, ours, found := strings.Cut(string(page), "\n## Metrics of niclane-agent alone\n")
	if !found {
		t.Fatal("the page has no part about niclane-agent")
	}
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(niclane_\\w+)` \\| (\\w+) \\| ([\\w, ]+) \\|").
		FindAllStringSubmatch(ours, -1) {
		documented = append(documented, row[1]+" "+row[2]+" "+row[3])
	}
	slices.Sort(documented)
	if diff := cmp.Diff(described(newPods(nil), newTook()), documented); diff != "" {
		t.Errorf("docs/reference/metrics.md (-code +page):\n%s", diff)
	}
}

// described returns the name, type and labels of each metric. A description has no type, so
// described derives it from the name, by Prometheus' conventions.
func described(collectors ...prometheus.Collector) []string {
	descs := make(chan *prometheus.Desc, 100)
	for _, c := range collectors {
		c.Describe(descs)
	}
	close(descs)
	var out []string
	for d := range descs {
		m := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([\w,]*)\}`).FindStringSubmatch(d.String())
		labels := strings.Split(m[2], ",")
		slices.Sort(labels)
		kind := "gauge"
		switch {
		case strings.HasSuffix(m[1], "_total"):
			kind = "counter"
		case strings.HasSuffix(m[1], "_seconds"):
			kind = "histogram"
		}
		out = append(out, m[1]+" "+kind+" "+strings.Join(labels, ", "))
	}
	slices.Sort(out)
	return out
}
