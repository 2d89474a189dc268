// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// twins returns a state with two devices, lane0 and lane1: both are copies of the recorded
// emulated card and slaves of bond0.
func twins(t *testing.T) *device.State {
	t.Helper()
	text, err := os.ReadFile("testdata/emulated.json")
	if err != nil {
		t.Fatal(err)
	}
	st := fixture(t, "emulated")
	var other device.State
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "lane0", "lane1")), &other); err != nil {
		t.Fatal(err)
	}
	for k, v := range other.Files {
		st.Files[k] = v
	}
	st.Devices = append(st.Devices, other.Devices...)
	for i := range st.Devices {
		st.Devices[i].Master = "bond0"
	}
	st.Devices = append([]device.Device{{Name: "bond0", Type: "bond"}}, st.Devices...)
	return st
}

// TestGroup: if a lane spans several devices, or slaves of a bond, the plan must make it in the
// same way on each of them, and must remove it from each.
func TestGroup(t *testing.T) {
	for name, globals := range map[string]string{"list": "dev: [lane0, lane1]", "bond": "bond: bond0"} {
		t.Run(name, func(t *testing.T) {
			lanes := "version: 1\nglobals: {" + globals + "}\nlanes: {a: {rank: 1, queues: 2, cpus: 1, ports: [80], " +
				"cgroup: /memcached}}\n"
			st := twins(t)
			p, err := makePlan(t, "lanes.yaml", lanes, st, plan.Owned{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"lane0", "lane1"}, p.Devices); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			// An object of a device must exist for both devices, an object of the host only once.
			count := map[string]int{}
			for _, s := range p.Steps {
				count[strings.ReplaceAll(string(mustJSON(t, s)), "lane1", "lane0")]++
			}
			for s, n := range count {
				want := 2
				if strings.Contains(s, "cpuset") {
					want = 1
				}
				if n != want {
					t.Errorf("%d times, want %d: %s", n, want, s)
				}
			}
			after := st.Clone()
			owned := run(after, plan.Owned{}, p.Steps)
			again, err := makePlan(t, "lanes.yaml", lanes, after, owned)
			if err != nil {
				t.Fatal(err)
			}
			if len(again.Steps) > 0 {
				t.Errorf("planning again gives %d steps, first %s", len(again.Steps), mustJSON(t, again.Steps[0]))
			}
			for _, s := range plan.Undo(after, owned) {
				after.Put(s.Old, s.New)
			}
			if diff := cmp.Diff(st.Objects(), after.Objects()); diff != "" {
				t.Errorf("rollback does not lead back (-start +after):\n%s", diff)
			}
		})
	}
}

func TestGroupErrors(t *testing.T) {
	for name, c := range map[string]struct{ globals, want string }{
		"no bond": {"bond: bond7", `lanes.yaml:2: globals.bond: no network device "bond7" here (have: bond0, lane0, lane1)`},
		"not one": {"bond: lane0", "lanes.yaml:2: globals.bond: lane0 is not a bond"},
		"one gone": {"dev: [lane0, lane9]",
			`lanes.yaml:2: globals.dev: no network device "lane9" here (have: bond0, lane0, lane1)`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := makePlan(t, "lanes.yaml", "version: 1\nglobals: {"+c.globals+"}\nlanes: {a: {queues: 1, "+
				"ports: [80]}}\n", twins(t), plan.Owned{})
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

// TestGroupShrinks: a device that has left the file or the bond gets its old settings back, and
// the other devices keep their lanes. If the device no longer exists, nothing is restored on it.
func TestGroupShrinks(t *testing.T) {
	const lanes = "version: 1\nglobals: {%s}\nlanes: {a: {rank: 1, queues: 2, cpus: 1, ports: [80], guarantee: 20%%}}\n"
	leave := func(st *device.State) { st.Device("lane1").Master = "" }
	gone := func(st *device.State) {
		st.Devices = slices.DeleteFunc(st.Devices, func(d device.Device) bool { return d.Name == "lane1" })
		for path := range st.Files {
			if strings.Contains(path, "/lane1/") {
				delete(st.Files, path)
			}
		}
	}
	for name, c := range map[string]struct {
		before, after string
		change        func(st *device.State)
		gone          bool
	}{
		"taken off the list":    {"dev: [lane0, lane1]", "dev: lane0", func(*device.State) {}, false},
		"left the bond":         {"bond: bond0", "bond: bond0", leave, false},
		"gone, off the list":    {"dev: [lane0, lane1]", "dev: lane0", gone, true},
		"gone, and so no slave": {"bond: bond0", "bond: bond0", gone, true},
	} {
		t.Run(name, func(t *testing.T) {
			start := twins(t)
			p, err := makePlan(t, "lanes.yaml", fmt.Sprintf(lanes, c.before), start, plan.Owned{})
			if err != nil {
				t.Fatal(err)
			}
			st := start.Clone()
			owned := run(st, plan.Owned{}, p.Steps)
			both := st.Clone()
			c.change(st)
			p, err = makePlan(t, "lanes.yaml", fmt.Sprintf(lanes, c.after), st, owned)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"lane0"}, p.Devices); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			if wantGone := map[bool][]string{true: {"lane1"}}[c.gone]; !slices.Equal(p.Gone, wantGone) {
				t.Errorf("gone: %q, want %q", p.Gone, wantGone)
			}
			if c.gone {
				for _, key := range p.Forget {
					if !strings.Contains(key, "lane1") {
						t.Errorf("%s is forgotten", key)
					}
				}
				for _, r := range owned.Records {
					if key := r.Key(); strings.Contains(key, "lane1") && !slices.Contains(p.Forget, key) {
						t.Errorf("%s is not forgotten", key)
					}
				}
				for _, s := range p.Steps {
					t.Errorf("%s: nothing is left to do", s.Key())
				}
				return
			}
			if len(p.Steps) == 0 {
				t.Fatal("no steps: lane1 keeps its lanes")
			}
			run(st, owned, p.Steps)
			for key, want := range both.Objects() {
				if strings.Contains(key, "lane1") {
					want = start.Objects()[key]
				}
				if got := st.Objects()[key]; !device.Equal(got, want) {
					t.Errorf("%s: got %v, want %v", key, got, want)
				}
			}
		})
	}
}

// TestInterruptAway: if an interrupt is missing, the record keeps the value to restore, unless
// the device is gone. Reason: while a driver makes new queues, interrupts are missing for a
// moment.
func TestInterruptAway(t *testing.T) {
	const lanes = "version: 1\nglobals: {dev: [lane0, lane1]}\nlanes: {a: {queues: 2, cpus: 1, ports: [80]}}\n"
	affinity := device.File{Path: "/proc/irq/77/smp_affinity_list", Format: device.FileCPUList, Value: "0"}
	moved := affinity
	moved.Value = "1"
	st := twins(t)
	owned := plan.Owned{Records: []plan.Record{{Original: affinity, Last: moved}}}
	p, err := makePlan(t, "lanes.yaml", lanes, st, owned)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Gone) > 0 || len(p.Forget) > 0 {
		t.Errorf("forgets %q with %q, want none: every device is there", p.Forget, p.Gone)
	}
	owned.Records = append(owned.Records, plan.Record{Last: device.Flower{Dev: "lane7"}})
	if p, err = makePlan(t, "lanes.yaml", lanes, st, owned); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{affinity.Key(), owned.Records[1].Key()}, p.Forget); diff != "" {
		t.Errorf("forgotten (-want +got):\n%s", diff)
	}
}

// TestBondRates: the slaves of a bond share guarantees and ceilings in bit/s, in proportion to
// their links. If a slave leaves, the others take over its part. Each device has the full rate
// for percentages, in bond modes where one slave carries everything, and without a bond.
func TestBondRates(t *testing.T) {
	const lanes = "version: 1\nglobals: {%s}\nlanes: {a: {queues: 2, cpus: 1, ports: [80], guarantee: 300mbit, " +
		"ceiling: 450mbit}, b: {queues: 1, cpus: 1, ports: [81], guarantee: 10%%}}\n"
	class := func(dev, id string, st *device.State) (rate, ceil uint64) {
		c, _ := st.Objects()["class/"+dev+"/"+id].(device.Class)
		return c.Rate, c.Ceil
	}
	for name, c := range map[string]struct {
		globals, mode string
		fast          string // the device with twice the link rate
		a0, a1, alone uint64 // guarantee of lane a: lane0, lane1, lane0 after lane1 has left
	}{
		"shared":        {"bond: bond0", "802.3ad", "", 150e6, 150e6, 300e6},
		"by link":       {"bond: bond0", "balance-xor", "lane0", 200e6, 100e6, 300e6},
		"active backup": {"bond: bond0", device.BondActiveBackup, "", 300e6, 300e6, 300e6},
		"broadcast":     {"bond: bond0", device.BondBroadcast, "", 300e6, 300e6, 300e6},
		"a list":        {"dev: [lane0, lane1]", "802.3ad", "", 300e6, 300e6, 300e6},
	} {
		t.Run(name, func(t *testing.T) {
			st := twins(t)
			st.Device("bond0").BondMode = c.mode
			for _, dev := range []string{"lane0", "lane1"} {
				st.Device(dev).Speed = 1e9
			}
			if c.fast != "" {
				st.Device(c.fast).Speed = 2e9
			}
			file := fmt.Sprintf(lanes, c.globals)
			var owned plan.Owned
			apply := func() {
				t.Helper()
				p, err := makePlan(t, "lanes.yaml", file, st, owned)
				if err != nil {
					t.Fatal(err)
				}
				owned = run(st, owned, p.Steps)
				if p, err = makePlan(t, "lanes.yaml", file, st, owned); err != nil || len(p.Steps) > 0 {
					t.Fatalf("planning again: %v, %d steps", err, len(p.Steps))
				}
			}
			check := func(when, dev string, want uint64) {
				t.Helper()
				rate, ceil := class(dev, "1:10", st)
				if rate != want || ceil != want*3/2 {
					t.Errorf("%s, %s: lane a has %d to %d, want %d to %d", when, dev, rate, ceil, want, want*3/2)
				}
				if rate, _ := class(dev, "1:11", st); rate != st.Device(dev).Speed/10 {
					t.Errorf("%s, %s: lane b has %d, want a tenth of the link", when, dev, rate)
				}
			}
			apply()
			check("both", "lane0", c.a0)
			check("both", "lane1", c.a1)
			if c.globals != "bond: bond0" {
				return
			}
			st.Device("lane1").Master = ""
			apply()
			check("one has left", "lane0", c.alone)
			if rate, _ := class("lane1", "1:10", st); rate != 0 {
				t.Errorf("lane1 has left, and has lane a's class with %d", rate)
			}
			st.Device("lane1").Master = "bond0"
			apply()
			check("it is back", "lane0", c.a0)
			check("it is back", "lane1", c.a1)
			// A device without a link sends nothing. The other device takes over its part, but the device
			// itself also keeps its rates for later.
			st.Device("lane1").Idle = true
			apply()
			check("one is idle", "lane0", c.alone)
			check("one is idle", "lane1", c.a1)
			st.Device("lane0").Idle = true
			apply()
			check("both are idle", "lane0", c.a0)
			check("both are idle", "lane1", c.a1)
		})
	}
}

// TestBondSharing: the plan lists the slaves that share rates, if any do.
func TestBondSharing(t *testing.T) {
	for name, c := range map[string]struct {
		mode, rates string
		idle        []string
		want        []string
	}{
		"both":           {"802.3ad", "guarantee: 300mbit", nil, []string{"lane0", "lane1"}},
		"one idle":       {"802.3ad", "ceiling: 300mbit", []string{"lane0"}, []string{"lane1"}},
		"both idle":      {"802.3ad", "guarantee: 300mbit", []string{"lane0", "lane1"}, []string{"lane0", "lane1"}},
		"shares of each": {"802.3ad", "guarantee: 20%", []string{"lane0"}, nil},
		"one for all":    {device.BondActiveBackup, "guarantee: 300mbit", []string{"lane0"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			st := twins(t)
			st.Device("bond0").BondMode = c.mode
			for _, dev := range c.idle {
				st.Device(dev).Idle = true
			}
			p, err := makePlan(t, "lanes.yaml", "version: 1\nglobals: {bond: bond0, link-rate: 1gbit}\nlanes: {a: "+
				"{queues: 2, cpus: 1, ports: [80], "+c.rates+"}}\n", st, plan.Owned{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, p.Sharing); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, dev := range []string{"lane0", "lane1"} {
				said := strings.Contains(strings.Join(p.Notes, "\n"), dev+": bond0 does not send on it now")
				if want := len(c.want) > 0 && slices.Contains(c.idle, dev); said != want {
					t.Errorf("%s is said to carry nothing: %v, want %v: %q", dev, said, want, p.Notes)
				}
			}
		})
	}
}

// TestBondSpeedUnknown: a card reports no speed while its link is down. The other slaves of the
// bond still get their lanes.
func TestBondSpeedUnknown(t *testing.T) {
	const lanes = "version: 1\nglobals: {bond: bond0}\nlanes: {a: {queues: 2, cpus: 1, ports: [80], guarantee: " +
		"300mbit}, b: {queues: 1, cpus: 1, ports: [81], guarantee: 10%}}\n"
	st := twins(t)
	st.Device("bond0").BondMode = "802.3ad"
	st.Device("lane0").Speed, st.Device("lane1").Speed = 1e9, 0
	if _, err := makePlan(t, "lanes.yaml", lanes, st, plan.Owned{}); err == nil ||
		!strings.Contains(err.Error(), "lane1 does not report its speed") {
		t.Errorf("a link that is up, of unknown speed: %v", err)
	}
	st.Device("lane1").Idle = true
	p, err := makePlan(t, "lanes.yaml", lanes, st, plan.Owned{})
	if err != nil {
		t.Fatal(err)
	}
	run(st, plan.Owned{}, p.Steps)
	for key, want := range map[string]uint64{"class/lane0/1:10": 300e6, "class/lane1/1:10": 150e6,
		"class/lane1/1:11": 100e6} {
		if c, _ := st.Objects()[key].(device.Class); c.Rate != want {
			t.Errorf("%s: rate %d, want %d", key, c.Rate, want)
		}
	}
	if note := "lane1: its link is down and reports no speed: planned with 1gbit"; !strings.Contains(strings.Join(p.Notes,
		"\n"), note) {
		t.Errorf("no note says %q: %q", note, p.Notes)
	}
}

// TestBondTooSmall: the plan refuses a guarantee that the present slaves cannot give. It accepts
// a ceiling above a slave's link, which has no effect.
func TestBondTooSmall(t *testing.T) {
	const lanes = "version: 1\nglobals: {bond: bond0}\nlanes: {a: {queues: 1, cpus: 1, ports: [80], %s}}\n"
	st := twins(t)
	st.Device("bond0").BondMode = "802.3ad"
	for _, dev := range []string{"lane0", "lane1"} {
		st.Device(dev).Speed = 1e9
	}
	if _, err := makePlan(t, "lanes.yaml", fmt.Sprintf(lanes, "guarantee: 1500mbit, ceiling: 1800mbit"), st,
		plan.Owned{}); err != nil {
		t.Error(err)
	}
	st.Device("lane1").Master = ""
	_, err := makePlan(t, "lanes.yaml", fmt.Sprintf(lanes, "guarantee: 1500mbit"), st, plan.Owned{})
	if err == nil || !strings.Contains(err.Error(), "1.5gbit is more than the 980mbit that can be given on lane0") {
		t.Errorf("got %v", err)
	}
	if _, err := makePlan(t, "lanes.yaml", fmt.Sprintf(lanes, "ceiling: 1800mbit"), st, plan.Owned{}); err != nil {
		t.Error(err)
	}
}

// TestBondOfClasses: a card cannot change the rates of its traffic classes. They stay when a
// slave leaves. The plan refuses other rates in the file.
func TestBondOfClasses(t *testing.T) {
	text, err := os.ReadFile("testdata/simcard-ice.json")
	if err != nil {
		t.Fatal(err)
	}
	st := fixture(t, "simcard-ice")
	var other device.State
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "sim0", "sim1")), &other); err != nil {
		t.Fatal(err)
	}
	for k, v := range other.Files {
		st.Files[k] = v
	}
	st.Devices = append(st.Devices, other.Devices...)
	for i := range st.Devices {
		st.Devices[i].Master, st.Devices[i].Speed = "bond0", 1e9
	}
	st.Devices = append(st.Devices, device.Device{Name: "bond0", Type: "bond", BondMode: "802.3ad"})
	const lanes = "version: 1\nglobals: {bond: bond0, queues: 2}\nlanes: {a: {queues: 2, ports: [80], ceiling: %s, " +
		"poller: interrupt}}\n"
	file := fmt.Sprintf(lanes, "400mbit")
	p, err := makePlan(t, "lanes.yaml", file, st, plan.Owned{})
	if err != nil {
		t.Fatal(err)
	}
	owned := run(st, plan.Owned{}, p.Steps)
	rates := func(dev string) string { return st.Objects()["qdisc/"+dev+"/root"].(device.Qdisc).MaxRates }
	if rates("sim0") != "0 200000000" || rates("sim1") != "0 200000000" {
		t.Fatalf("rates %q and %q", rates("sim0"), rates("sim1"))
	}
	st.Device("sim1").Master = ""
	if p, err = makePlan(t, "lanes.yaml", file, st, owned); err != nil {
		t.Fatal(err)
	}
	if note := "keep the rates for a bond of 2"; !strings.Contains(strings.Join(p.Notes, "\n"), note) {
		t.Errorf("no note says %q: %q", note, p.Notes)
	}
	owned = run(st, owned, p.Steps)
	if rates("sim0") != "0 200000000" || st.Objects()["flower/sim1/tcp4,port=80"] != nil {
		t.Errorf("sim0 has rates %q; filters of sim1: %v", rates("sim0"), st.Objects()["flower/sim1/tcp4,port=80"])
	}
	_, err = makePlan(t, "lanes.yaml", fmt.Sprintf(lanes, "300mbit"), st, owned)
	if err == nil || !strings.Contains(err.Error(), "niclane rollback first") {
		t.Errorf("other rates in the file: %v", err)
	}
}
