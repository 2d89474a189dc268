// SPDX-License-Identifier: Apache-2.0

package adqsetup_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// onCard plans a file of adqsetup for a recorded card. after is the card's state after the plan was
// applied, and owned the objects that niclane then owns.
func onCard(t *testing.T, card, source string, change func(*device.State)) (p *plan.Plan, after *device.State,
	owned plan.Owned) {
	t.Helper()
	text, err := os.ReadFile("../../lane/plan/testdata/" + card + ".json")
	must.Do(t, err)
	st := &device.State{}
	must.Do(t, json.Unmarshal(text, st))
	if change != nil {
		change(st)
	}
	in, _ := lanesOn(t, "sim0", source)
	if p, err = plan.Make(in, st, plan.Owned{}); err != nil {
		t.Fatal(err)
	}
	var changes []device.Change
	for _, s := range p.Steps {
		changes = append(changes, device.Change{Old: s.Old, New: s.New})
		owned.Records = append(owned.Records, plan.Record{Original: s.Old, Last: s.New, Part: s.Part, Cause: s.Cause})
	}
	return p, st.After(changes), owned
}

const everyFlag = `[globals]
queues = 2
optimize = on
bpstop = on
bpstop-cfg = on
[web]
queues = 2
pollers = 2
ports = 80
`

// TestW4AnyCard tests weakness 4: adqsetup supports six cards by PCI ID, and only with Intel's own
// driver. niclane must make lanes from one file on two different cards, one with traffic classes
// and one with contexts.
func TestW4AnyCard(t *testing.T) {
	const source = "[globals]\nqueues = 2\n[web]\nqueues = 2\nports = 80\n"
	for card, kind := range map[string]string{"simcard-ice": "flower", "simcard-contexts": "rule"} {
		p, _, _ := onCard(t, card, source, nil)
		n := 0
		for _, s := range p.Steps {
			if s.Object().Kind() == kind {
				n++
			}
		}
		if n != 2 { // one for IPv4 and one for IPv6
			t.Errorf("%s: %d objects of kind %s, want 2", card, n, kind)
		}
	}
}

// TestW8PrivateFlags tests weakness 8: adqsetup switches private flags off, both in its clean-up
// and in its apply. niclane must write only the flag that the file names, and restore it.
func TestW8PrivateFlags(t *testing.T) {
	for _, on := range []bool{true, false} {
		p, after, owned := onCard(t, "simcard-ice", everyFlag, func(st *device.State) {
			for name := range st.Devices[0].PrivFlags {
				st.Devices[0].PrivFlags[name] = on
			}
		})
		if len(after.Devices[0].PrivFlags) == 0 || len(p.Steps) == 0 {
			t.Fatalf("%d flags, %d steps", len(after.Devices[0].PrivFlags), len(p.Steps))
		}
		for name, is := range after.Devices[0].PrivFlags {
			if asked := name == "channel-pkt-inspect-optimize"; is != (on || asked) {
				t.Errorf("%s is %v, was %v", name, is, on)
			}
		}
		var lines []string
		for _, s := range append(p.Steps, plan.Undo(after, owned)...) {
			for _, line := range s.Commands() {
				if strings.Contains(line, "priv-flags") {
					lines = append(lines, line)
				}
			}
		}
		const set = "ethtool --set-priv-flags sim0 channel-pkt-inspect-optimize "
		want := []string{set + "on", set + "off"}
		if on {
			want = nil // it is as asked for
		}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("on %v (-want +got):\n%s", on, diff)
		}
	}
}

// TestW9Rules tests weakness 9: adqsetup prints "cleared any flow rules" but leaves some rules.
// niclane must remove every rule that it has made.
func TestW9Rules(t *testing.T) {
	p, after, owned := onCard(t, "simcard-contexts",
		"[globals]\nqueues = 2\n[redis]\nmode = shared\nports = 6379-6382\n", nil)
	made := map[string]bool{}
	for _, s := range p.Steps {
		if s.Object().Kind() == "rule" {
			made[s.Key()] = true
		}
	}
	if len(made) != 8 { // four ports, each for IPv4 and IPv6
		t.Errorf("%d rules made, want 8", len(made))
	}
	for _, s := range plan.Undo(after, owned) {
		if s.New == nil {
			delete(made, s.Key())
		}
	}
	if len(made) > 0 {
		t.Errorf("rules that stay: %v", made)
	}
}

// TestOneAfterTheOther applies one file after another, which adqsetup allows for any two files.
// Some cards make all their classes at once. On such a card, the planner refuses the change with a
// plan.Errors, and the command niclane adqsetup handles it. Without the earlier lanes, the plan is
// valid.
func TestOneAfterTheOther(t *testing.T) {
	_, after, owned := onCard(t, "simcard-ice", "[globals]\nqueues = 2\n[web]\nqueues = 6\nports = 80\n", nil)
	in, _ := lanesOn(t, "sim0",
		"[globals]\nqueues = 2\n[web]\nqueues = 2\nports = 80\n[db]\nqueues = 4\nports = 5432\n")
	if _, err := plan.Make(in, after, owned); !errors.As(err, new(plan.Errors)) {
		t.Errorf("from one to the other: %v, want plan.Errors", err)
	}
	var changes []device.Change
	for _, s := range plan.Undo(after, owned) {
		changes = append(changes, device.Change{Old: s.Old, New: s.New})
	}
	if _, err := plan.Make(in, after.After(changes), plan.Owned{}); err != nil {
		t.Errorf("without the ones of before: %v", err)
	}
}
