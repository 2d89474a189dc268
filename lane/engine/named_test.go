// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// TestNamed: an applied file can be named by its path, by one of its devices or by its bond.
func TestNamed(t *testing.T) {
	j := journal.New(journal.Head{Config: "/l.yaml", Devices: []string{"x0", "x1"}, Plan: new(plan.Plan),
		ConfigText: "version: 1\nglobals: {bond: bond9}\nlanes: {a: {queues: 1, ports: [80]}}\n"})
	for of, found := range map[string]bool{
		"": true, "/l.yaml": true, "x0": true, "x1": true, "bond9": true, "bond": false, "x2": false,
	} {
		js, err := named([]*journal.Journal{j}, of)
		if (err == nil && len(js) == 1) != found {
			t.Errorf("%q: %d journals, %v; want found %t", of, len(js), err, found)
		}
	}
}
