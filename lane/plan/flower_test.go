// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// TestFlowerElsewhere: niclane's filter is gone, and another program has made a filter for the
// same packets with another preference. The plan must not touch that filter, although the journal
// has niclane's filter for these packets.
func TestFlowerElsewhere(t *testing.T) {
	const lanes = "version: 1\nglobals: {dev: sim0, queues: 2}\nlanes: {a: {queues: 2, ports: [%s], poller: " +
		"interrupt}}\n"
	st := fixture(t, "simcard-ice")
	p, err := makePlan(t, "lanes.yaml", strings.ReplaceAll(lanes, "%s", "80"), st, plan.Owned{})
	if err != nil {
		t.Fatal(err)
	}
	owned := run(st, plan.Owned{}, p.Steps)
	own, ok := st.Objects()["flower/sim0/tcp4,port=80"].(device.Flower)
	if !ok {
		t.Fatal("no filter for port 80")
	}
	theirs := own
	theirs.Pref = 49152
	st.Put(own, theirs)
	for _, s := range plan.Undo(st, owned) {
		if s.Key() == own.Key() {
			t.Errorf("rollback: %s", mustJSON(t, s))
		}
	}
	p, err = makePlan(t, "lanes.yaml", strings.ReplaceAll(lanes, "%s", "81"), st, owned)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range p.Steps {
		if s.Key() == own.Key() {
			t.Errorf("the member is gone from the file: %s", mustJSON(t, s))
		}
	}
	_, err = makePlan(t, "lanes.yaml", strings.ReplaceAll(lanes, "%s", "80"), st, owned)
	if err == nil || !strings.Contains(err.Error(),
		"already has a flower filter for tcp4,port=80 that niclane did not make") {
		t.Errorf("the member is in the file: %v", err)
	}
}
