// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// drifts returns the key and the found value of each drift.
func drifts(t *testing.T, a Applied, now []device.Device) []string {
	t.Helper()
	var out []string
	for _, f := range State(a, &device.State{Devices: now}) {
		if f.Severity == Drift {
			// A watch does not repair a device that is down, so the finding must name the bond.
			if strings.HasPrefix(f.Key, "bond/") && f.Device != "bond0" {
				t.Errorf("%s is said of %s, want it of the bond", f.Key, f.Device)
			}
			out = append(out, f.Key+": "+f.Found)
		}
	}
	return out
}

func TestSlaves(t *testing.T) {
	a := Applied{Config: "l.yaml", Bond: "bond0", Ended: true,
		Lanes: []plan.FittedLane{{Name: "web", Device: "a"}, {Name: "web", Device: "b"}}}
	slave := func(name, master string) device.Device { return device.Device{Name: name, Master: master} }
	for name, c := range map[string]struct {
		bond string
		now  []device.Device
		want []string
	}{
		"as applied": {"bond0", []device.Device{slave("a", "bond0"), slave("b", "bond0"), {Name: "bond0"}}, nil},
		"one left": {"bond0", []device.Device{slave("a", "bond0"), slave("b", ""), {Name: "bond0"}},
			[]string{"bond/bond0/b: no slave of it"}},
		"another's now": {"bond0", []device.Device{slave("a", "bond0"), slave("b", "bond1"), {Name: "bond0"}},
			[]string{"bond/bond0/b: no slave of it"}},
		"one came": {"bond0", []device.Device{slave("a", "bond0"), slave("b", "bond0"), slave("c", "bond0")},
			[]string{"bond/bond0/c: a slave of it"}},
		"one is gone":   {"bond0", []device.Device{slave("a", "bond0")}, []string{"device/b: absent"}},
		"not by a bond": {"", []device.Device{slave("a", "bond0"), slave("b", ""), slave("c", "bond0")}, nil},
		"everybody left": {"bond0", []device.Device{slave("a", ""), slave("b", "")},
			[]string{"bond/bond0/a: no slave of it", "bond/bond0/b: no slave of it"}},
	} {
		t.Run(name, func(t *testing.T) {
			a.Bond = c.bond
			if diff := cmp.Diff(c.want, drifts(t, a, c.now)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSharing: if the bond sends on other slaves than at the apply, the lanes' rates must be
// planned again.
func TestSharing(t *testing.T) {
	slave := func(name string, idle bool) device.Device {
		return device.Device{Name: name, Master: "bond0", Idle: idle}
	}
	both := []string{"a", "b"}
	for name, c := range map[string]struct {
		sharing []string
		now     []device.Device
		want    []string
	}{
		"as applied": {both, []device.Device{slave("a", false), slave("b", false)}, nil},
		"one is idle": {both, []device.Device{slave("a", false), slave("b", true)},
			[]string{"bond/bond0/rates: by a"}},
		"it is back": {[]string{"a"}, []device.Device{slave("a", false), slave("b", false)},
			[]string{"bond/bond0/rates: by a and b"}},
		"all are idle":        {both, []device.Device{slave("a", true), slave("b", true)}, nil},
		"each has them whole": {nil, []device.Device{slave("a", false), slave("b", true)}, nil},
		"one left": {both, []device.Device{slave("a", false), {Name: "b"}},
			[]string{"bond/bond0/b: no slave of it"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := Applied{Config: "l.yaml", Bond: "bond0", Sharing: c.sharing, Ended: true,
				Lanes: []plan.FittedLane{{Name: "web", Device: "b"}, {Name: "web", Device: "a"}}}
			if diff := cmp.Diff(c.want, drifts(t, a, c.now)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
