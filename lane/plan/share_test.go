// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// TestNoShareNoShaper plans lanes on every device of the fixtures. Lanes that ask for no share of
// the link get no shaper. The same lanes with a guarantee get one, so that the test can fail.
func TestNoShareNoShaper(t *testing.T) {
	paths, _ := filepath.Glob("testdata/*.json")
	more, _ := filepath.Glob("../device/testdata/*.json")
	shapers := map[string]bool{}
	planned := 0
	for _, path := range append(paths, more...) {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		st := fixture(t, name)
		for _, d := range st.Devices {
			for _, share := range []string{"", "guarantee: 10%, ", "ceiling: 10%, ", "rank: 2, "} {
				text := fmt.Sprintf("version: 1\nglobals: {dev: %s, link-rate: 1gbit}\nlanes:\n  a: {%squeues: 1, "+
					"ports: [80]}\n",
					d.Name, share)
				p, err := makePlan(t, "lanes.yaml", text, st, plan.Owned{})
				if err != nil {
					continue // this device cannot have these lanes
				}
				planned++
				for _, s := range p.Steps {
					if what := shaper(s.New); what != "" && share == "" {
						t.Errorf("%s, %s: lanes without a share get %s: %s", name, d.Name, what, s.Reason)
					} else if what != "" {
						shapers[what] = true
					}
				}
				cost := strings.Contains(strings.Join(p.Notes, "\n"), "no lane asks for a share of the link")
				if cost != (share == "") {
					t.Errorf("%s, %s, %q: the notes are %q", name, d.Name, share, p.Notes)
				}
			}
		}
	}
	if planned < 20 || len(shapers) < 3 {
		t.Errorf("%d plans, with shapers %v", planned, shapers)
	}
}

// shaper returns the kind of an object that limits or orders packets by lane, "" for other objects.
func shaper(o device.Object) string {
	switch o := o.(type) {
	case device.Class:
		return "a class"
	case device.Shaper:
		return "a shaper of the card"
	case device.Qdisc:
		if o.Type == "mqprio" && len(o.MaxRates)+len(o.MinRates) == 0 || o.Type == "clsact" {
			return ""
		}
		return "a qdisc " + o.Type
	case device.File:
		if strings.HasSuffix(o.Path, "/tx_maxrate") {
			return "tx_maxrate"
		}
	}
	return ""
}
