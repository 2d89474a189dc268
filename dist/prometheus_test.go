// SPDX-License-Identifier: Apache-2.0

package dist_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestAlerts checks the alert rules with promtool, and runs the tests of the rules.
func TestAlerts(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("no promtool: it is in Debian's package prometheus")
	}
	for _, args := range [][]string{{"check", "rules", "niclane.rules.yml"}, {"test", "rules", "niclane.test.yml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestAlertsHang: each alert has a test and a section in the runbook. Each metric in an alert is in
// docs/reference/metrics.md, which another test compares with the code.
func TestAlertsHang(t *testing.T) {
	text := map[string]string{}
	for _, name := range []string{"prometheus/niclane.rules.yml", "prometheus/niclane.test.yml", "../docs/runbook.md",
		"../docs/reference/metrics.md"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text[name] = string(b)
	}
	rules := text["prometheus/niclane.rules.yml"]
	alerts := regexp.MustCompile(`- alert: (\w+)\n`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 5 {
		t.Fatalf("%d alerts: the expression finds too few", len(alerts))
	}
	for _, m := range alerts {
		name := m[1]
		if !regexp.MustCompile(`(alertname="|alertname: )` + name + `\b`).MatchString(text["prometheus/niclane.test.yml"]) {
			t.Errorf("%s has no test", name)
		}
		if !strings.Contains(text["../docs/runbook.md"], "\n### "+name+"\n") {
			t.Errorf("%s has no section in docs/runbook.md", name)
		}
		if !strings.Contains(rules, "/docs/runbook.md#"+strings.ToLower(name)+"\n") {
			t.Errorf("%s leads to no section of docs/runbook.md", name)
		}
	}
	for _, name := range regexp.MustCompile(`\bniclane_\w+`).FindAllString(rules, -1) {
		family := strings.TrimSuffix(strings.TrimSuffix(name, "_count"), "_bucket")
		if !strings.Contains(text["../docs/reference/metrics.md"], "| `"+family+"` |") {
			t.Errorf("the rules ask for %s, which docs/reference/metrics.md does not have", name)
		}
	}
}
