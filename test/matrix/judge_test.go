// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/lanetest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// guestSaid is the output of a guest, shortened.
const guestSaid = `=#= begin internal/kernel/tc
=== RUN   TestDump
--- PASS: TestDump (1.16s)
=== RUN   TestParts
=== RUN   TestParts/one
    netns_test.go:10: no such thing
    netns_test.go:11: want 1, got 2
    time=12:00 level=INFO msg="went on"
=== RUN   TestParts/two
--- FAIL: TestParts (0.01s)
    --- FAIL: TestParts/one (0.00s)
    --- PASS: TestParts/two (0.00s)
=== RUN   TestOld
    netns_test.go:12: no napi-set in this kernel
--- SKIP: TestOld (0.00s)
FAIL

=#= end internal/kernel/tc in 3.2s: exit status 1
=#= begin kernel messages
[    1.0] virtio_net virtio0 eth0: renamed
=#= end kernel messages in 0s: ok
=#= done
`

func TestJudge(t *testing.T) {
	const failed = "internal/kernel/tc: TestParts/one failed: netns_test.go:11: want 1, got 2"
	const skippedText = "internal/kernel/tc: TestOld was skipped, but this kernel should run it: " +
		"netns_test.go:12: no napi-set in this kernel"
	old := skip{suite: "internal/kernel/tc", test: "TestOld", before: "6.13", said: "no napi-set",
		why: "napi-set is new in 6.13"}
	for _, tt := range []struct {
		name    string
		release string
		skips   []skip
		edit    func(string) string
		want    []string
	}{
		{name: "a skip that is listed", release: "6.12.1-amd64", skips: []skip{old}, want: []string{failed}},
		{name: "a skip on a kernel that should not need it", release: "6.13.0", skips: []skip{old},
			want: []string{failed, skippedText}},
		{name: "a skip for another reason", release: "6.12.0", skips: []skip{old},
			edit: func(s string) string { return strings.ReplaceAll(s, "no napi-set in this kernel", "no veth") },
			want: []string{failed,
				"internal/kernel/tc: TestOld was skipped, but this kernel should run it: netns_test.go:12: no veth",
				"internal/kernel/tc: TestOld is listed as skipped (napi-set is new in 6.13), but was not skipped"}},
		{name: "a listed skip that passed", release: "6.1.0", skips: []skip{old},
			edit: func(s string) string { return strings.Replace(s, "--- SKIP: TestOld", "--- PASS: TestOld", 1) },
			want: []string{failed,
				"internal/kernel/tc: TestOld is listed as skipped (napi-set is new in 6.13), but was not skipped"}},
		{name: "a test whose last words are not its own", release: "6.1.0", skips: []skip{old},
			edit: func(s string) string {
				a, b := strings.Index(s, "    netns_test.go:10"), strings.Index(s, "    time=")
				return s[:a] + s[b:]
			},
			want: []string{`internal/kernel/tc: TestParts/one failed: time=12:00 level=INFO msg="went on"`}},
		{name: "a suite that ends badly without a failed test", release: "6.1.0", skips: []skip{old},
			edit: func(s string) string { return strings.ReplaceAll(s, "--- FAIL", "--- PASS") },
			want: []string{"internal/kernel/tc: exit status 1"}},
		{name: "a suite that hangs after a failure", release: "6.1.0", skips: []skip{old},
			edit: func(s string) string { return strings.Replace(s, "exit status 1", "not finished after 5m0s", 1) },
			want: []string{failed, "internal/kernel/tc: not finished after 5m0s"}},
		{name: "no test in it", release: "6.1.0",
			edit: func(s string) string {
				a, b := strings.Index(s, "=== RUN"), strings.Index(s, "\n=#= end internal/kernel/tc")
				return strings.Replace(s[:a]+"ok"+s[b:], "exit status 1", "ok", 1)
			},
			want: []string{"internal/kernel/tc: no test ran"}},
		{name: "a suite that did not run", release: "6.1.0",
			edit: func(s string) string { return s[strings.Index(s, beginMark+kernelSection):] },
			want: []string{"internal/kernel/tc: did not run"}},
		{name: "a kernel that finds itself wrong", release: "6.1.0", skips: []skip{old},
			edit: func(s string) string {
				return strings.Replace(s, "[    1.0]",
					"[    0.9] WARNING: CPU: 1 PID: 2 at net/core/dev.c:1\n[    1.0]", 1)
			},
			want: []string{failed, "the kernel says: [    0.9] WARNING: CPU: 1 PID: 2 at net/core/dev.c:1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := guestSaid
			if tt.edit != nil {
				text = tt.edit(text)
			}
			r, err := parse(tt.release, []byte(text))
			must.Do(t, err)
			if diff := cmp.Diff(tt.want, r.judge([]suite{{name: "internal/kernel/tc"}}, tt.skips, nil)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestJudgeKnown(t *testing.T) {
	tc := []suite{{name: "internal/kernel/tc"}}
	odd := []defect{{suite: "internal/kernel/tc", since: "6.1", before: "6.2", why: "the kernel is odd"}}
	r, err := parse("6.1.0", []byte(guestSaid))
	must.Do(t, err)
	if got := r.judge(tc, nil, odd); len(got) != 0 {
		t.Errorf("a failure that is known: %q", got)
	}
	r.release = "6.2.0"
	if got := r.judge(tc, nil, odd); len(got) == 0 {
		t.Error("a failure that is known of another kernel: no problem")
	}
	if r, err = parse("6.1.0", []byte(strings.Replace(guestSaid, "exit status 1", "ok", 1))); err != nil {
		t.Fatal(err)
	}
	if got := r.judge(tc, nil, odd); len(got) != 1 || !strings.Contains(got[0],
		"passed, but is known to fail: the kernel is odd") {
		t.Errorf("a pass that was not expected: %q", got)
	}
}

func TestSuitesOf(t *testing.T) {
	chosen := []suite{{name: "lane"}, {name: "lane, traffic"}, {name: "lab"}}
	names := func(problems ...string) (names []string) {
		for _, s := range suitesOf(problems, chosen) {
			names = append(names, s.name)
		}
		return names
	}
	if diff := cmp.Diff([]string{"lane, traffic", "lab"}, names("lane, traffic: exit status 1", "lab: TestUp failed: x",
		"lab: TestDown failed: y")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := names("lab: TestUp failed: x", "the kernel says: BUG: y"); got != nil {
		t.Errorf("with a problem of the kernel's: %q, want none", got)
	}
}

// TestParseCutOff checks that, if a guest died, the error says after which suite.
func TestParseCutOff(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "before the first suite"},
		{guestSaid[:strings.Index(guestSaid, "--- SKIP")], "in or after internal/kernel/tc"},
		{strings.TrimSuffix(guestSaid, doneMark+"\n"), "in or after " + kernelSection},
	} {
		if _, err := parse("6.1.0", []byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d bytes: %v, want %q", len(tt.text), err, tt.want)
		}
	}
}

func TestJudgeTable(t *testing.T) {
	table := []expectation{
		{capability: device.CapTCX, since: "6.6"},
		{capability: device.CapNAPIs, unknown: "family netdev", untold: "6.8"},
		{capability: device.CapRules, never: true},
	}
	caps := func(tcx, napis, rules device.Answer) device.Capabilities {
		return device.Capabilities{
			device.CapTCX:   {Answer: tcx, Why: "it said"},
			device.CapNAPIs: {Answer: napis, Why: "no netlink family netdev"},
			device.CapRules: {Answer: rules, Why: "it said"},
		}
	}
	for _, tt := range []struct {
		name    string
		release string
		caps    device.Capabilities
		want    []string // texts that the problems must contain
	}{
		{"as an old kernel is", "6.1.0-56-amd64", caps(device.No, device.Unknown, device.No), nil},
		{"as a new kernel is", "6.12.117+deb12-amd64", caps(device.Yes, device.Yes, device.No), nil},
		{"missing", "6.6.1", caps(device.No, device.Unknown, device.No), []string{"tcx is no (it said), want yes"}},
		{"unknown for yes", "6.6.1", caps(device.Unknown, device.Unknown, device.No),
			[]string{"tcx is unknown (it said), want yes"}},
		{"too early", "6.5.9", caps(device.Yes, device.Unknown, device.No), []string{"tcx is yes (it said), want no"}},
		{"unknown where it can be told", "6.8.0", caps(device.Yes, device.Unknown, device.No),
			[]string{"napis is unknown"}},
		{"what cannot be", "7.2.13", caps(device.Yes, device.Yes, device.Yes),
			[]string{"rules is yes (it said), want no"}},
		{"no answers", "7.2.13", nil, []string{"no answer for tcx", "no answer for napis", "no answer for rules"}},
		{"not in the table", "7.2.13", device.Capabilities{device.CapTCX: {Answer: device.Yes},
			device.CapNAPIs: {Answer: device.Yes},
			device.CapRules: {Answer: device.No}, device.CapXPS: {Answer: device.Yes, Why: "new"}},
			[]string{"xps is yes (new), but is not in the table"}},
		{"unknown for another reason", "6.1.0",
			device.Capabilities{device.CapTCX: {Answer: device.No}, device.CapRules: {Answer: device.No},
				device.CapNAPIs: {Answer: device.Unknown, Why: "operation not permitted"}},
			[]string{`napis is unknown because of "operation not permitted"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := judgeTable("thing", tt.release, tt.caps, table)
			if len(got) != len(tt.want) {
				t.Fatalf("%q, want %q", got, tt.want)
			}
			for i := range got {
				if !strings.Contains(got[i], tt.want[i]) {
					t.Errorf("%q, want %q", got[i], tt.want[i])
				}
			}
		})
	}
}

// TestJudgeCapabilities checks that probe's answers are compared with the right tables.
func TestJudgeCapabilities(t *testing.T) {
	const release = "7.2.13+deb14-amd64"
	as := func(table []expectation) device.Capabilities {
		caps := device.Capabilities{}
		for _, e := range table {
			caps[e.capability] = device.Finding{Answer: e.answer(release), Why: e.unknown}
		}
		return caps
	}
	st := device.State{
		Kernel:       device.Kernel{Release: release},
		Capabilities: as(ofKernel),
		Devices: []device.Device{
			{Name: "mveth0", Driver: "veth", Capabilities: as(ofVeth)}, {Name: "mveth1", Driver: "veth"},
			{Name: "eth0", Driver: "virtio_net", Capabilities: as(ofCard)},
		},
	}
	judge := func() []string {
		t.Helper()
		text, err := json.Marshal(st)
		must.Do(t, err)
		r := results{release: release}
		return r.judgeCapabilities([]string{"$ niclane probe", probed + string(text)})
	}
	if got := judge(); len(got) != 0 {
		t.Errorf("as the tables say: %q", got)
	}
	st.Devices[0].Capabilities[device.CapChannelsSet] = device.Finding{Answer: device.No}
	st.Devices = st.Devices[:2]
	st.Kernel.Release = "6.18.1"
	got := strings.Join(judge(), "\n")
	for _, want := range []string{"runs 6.18.1", "veth: channels-set is no", "shows no virtio_net"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
}

// TestOnKernel checks that some suites run only on the oldest and the newest kernel.
func TestOnKernel(t *testing.T) {
	all := []suite{{name: "lab"}, {name: lanesSuite, ends: true}}
	for series, want := range map[string]int{oldest: 2, "6.12": 1, newest: 2} {
		if got := onKernel(series, all); len(got) != want || got[0].name != "lab" {
			t.Errorf("%s: %+v", series, got)
		}
	}
}

// TestPast: not all suites run on the kernel that is only for some.
func TestPast(t *testing.T) {
	if err := run(t.Context(), []string{past}, "", false); err == nil || !strings.Contains(err.Error(), "5.10 with -only") {
		t.Errorf("all suites on %s: %v", past, err)
	}
}

// TestTables: each capability that probe answers has a row, before a guest says so.
func TestTables(t *testing.T) {
	vethtest.NeedRoot(t)
	st := lanetest.Observe(t, "lo")
	for name, c := range map[string]struct {
		answers device.Capabilities
		table   []expectation
	}{
		"kernel":     {st.Capabilities, ofKernel},
		"veth":       {st.Device("lo").Capabilities, ofVeth},
		"virtio_net": {st.Device("lo").Capabilities, ofCard},
	} {
		var rows []device.Capability
		for _, e := range c.table {
			rows = append(rows, e.capability)
		}
		slices.Sort(rows)
		if diff := cmp.Diff(slices.Sorted(maps.Keys(c.answers)), rows); diff != "" {
			t.Errorf("%s (-answered +in the table):\n%s", name, diff)
		}
	}
}
