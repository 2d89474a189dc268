// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

var end4 = End{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")}

// A fakeMachine has one device. Its lanes write one file.
type fakeMachine struct {
	state  device.State
	left   bool // rollback leaves a change
	apply  error
	refuse string // the planner refuses lanes files that contain this text
	finds  []verify.Finding
	downs  int
	flaps  int // how often each apply makes the link go down
	during func()
	log    []string
}

func (m *fakeMachine) State(context.Context) (*device.State, error) {
	st := m.state
	st.Files = map[string]device.File{}
	for k, v := range m.state.Files {
		st.Files[k] = v
	}
	return &st, nil
}

func (m *fakeMachine) Plan(_ context.Context, lanes string) (*plan.Plan, []string, error) {
	if m.refuse != "" && strings.Contains(lanes, m.refuse) {
		return nil, []string{"not on this card"}, nil
	}
	return &plan.Plan{
		Steps:   []plan.Step{{Old: file("0"), New: file("1"), Reason: "a qdisc", Disruptive: true}},
		Choices: []plan.Choice{{Part: device.PartQueueSet, Mechanism: plan.ByRSSContext}},
		Lanes:   []plan.FittedLane{{Name: LaneName, Queues: []int{2, 3}}},
	}, nil, nil
}

func file(v string) device.File { return device.File{Path: "/sys/x", Value: v} }

func (m *fakeMachine) Apply(context.Context, string, time.Duration) error {
	m.log = append(m.log, "apply")
	if m.apply != nil {
		return m.apply
	}
	m.downs += m.flaps
	m.state.Files["/sys/x"] = file("1")
	return nil
}

func (m *fakeMachine) Watch(context.Context, time.Duration) (verify.Watched, []verify.Finding, error) {
	if m.during != nil {
		m.during()
	}
	return verify.Watched{Received: []verify.Cell{{Lane: LaneName, Queue: 2, Packets: 7}}}, m.finds, nil
}

func (m *fakeMachine) Rollback(ctx context.Context) error {
	m.log = append(m.log, "rollback")
	if ctx.Err() != nil {
		return errors.New("rollback with a context that has ended")
	}
	if !m.left {
		m.state.Files["/sys/x"] = file("0")
	}
	return nil
}

func (m *fakeMachine) LinkDowns() (*int, bool) { n := m.downs; return &n, true }

func newMachine() *fakeMachine {
	return &fakeMachine{
		state: device.State{Files: map[string]device.File{"/sys/x": file("0")},
			Devices: []device.Device{{Name: "eth0", Driver: "ice", RxQueues: 8, TxQueues: 8}}},
		finds: []verify.Finding{{Severity: verify.OK, Lane: LaneName, Part: device.PartSteering,
			Meaning: "as it should be"}},
	}
}

// try tries all cases without traffic. Connections are tested in the lab.
func try(ctx context.Context, m *fakeMachine) (*runner, error) {
	r := &runner{target: Target{Device: "eth0", Port: 17411, Ends: []End{end4}}, c: Config{Within: time.Minute}, m: m,
		r: &Record{}, peer: nowhere{}}
	cases, err := r.prepare(ctx)
	if err != nil {
		return r, err
	}
	for _, p := range cases {
		before, _ := m.State(ctx)
		made, err := r.plan(ctx, &p.Case)
		if err == nil && made != nil {
			err = r.finish(ctx, &p, before, r.lanes(ctx, &p.Case, p.kind, new(int)), nil)
		}
		r.r.Cases = append(r.r.Cases, p.Case)
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

type nowhere struct{}

func (nowhere) Start(context.Context, string, string, any) (Task, error) {
	return nil, errors.New("nowhere")
}
func (nowhere) Asks(context.Context, netip.AddrPort) error { return nil }

func TestOutcomes(t *testing.T) {
	unseen := verify.Finding{Severity: verify.Unknown, Lane: LaneName, Part: device.PartMapper, Meaning: "nothing seen"}
	drift := verify.Finding{Severity: verify.Drift, Lane: LaneName, Part: device.PartSteering,
		Meaning: "others' packets arrived there"}
	others := verify.Finding{Severity: verify.Unknown, Lane: "default", Part: device.PartMapper,
		Meaning: "nothing seen"}
	for name, c := range map[string]struct {
		change func(m *fakeMachine)
		want   Outcome // outcome of the first case
		reason string
		stops  error
	}{
		"ok": {func(*fakeMachine) {}, OK, "", nil},
		"drift": {func(m *fakeMachine) { m.finds = append(m.finds, drift) }, Failed,
			"steering: others' packets arrived there", nil},
		"unseen": {func(m *fakeMachine) { m.finds = append(m.finds, unseen) }, Unproven,
			"mapper: nothing seen", nil},
		"drift, unseen": {func(m *fakeMachine) { m.finds = append(m.finds, drift, unseen) }, Failed,
			"steering: others' packets arrived there", nil},
		"others' unseen":  {func(m *fakeMachine) { m.finds = append(m.finds, others) }, OK, "", nil},
		"nothing watched": {func(m *fakeMachine) { m.finds = nil }, Unproven, "niclane verify reported nothing", nil},
		"refused":         {func(m *fakeMachine) { m.refuse = "lanes:" }, Refused, "not on this card", nil},
		"apply fails": {func(m *fakeMachine) { m.apply = errors.New("device or resource busy") }, Failed,
			"apply: device or resource busy", nil},
		"left": {func(m *fakeMachine) { m.left = true }, Failed, "1 objects are not as before", errLeft},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine()
			c.change(m)
			r, err := try(t.Context(), m)
			if !errors.Is(err, c.stops) {
				t.Fatalf("got error %v, want %v", err, c.stops)
			}
			first := r.r.Cases[0]
			if first.Outcome != c.want || c.reason != "" && !slices.Contains(first.Reasons, c.reason) ||
				c.reason == "" && len(first.Reasons) > 0 {
				t.Errorf("got %s %q, want %s %q", first.Outcome, first.Reasons, c.want, c.reason)
			}
			if got, want := count(len(m.log), "call"),
				count(2*(len(r.r.Cases)-r.r.Count(Refused)), "call"); m.apply == nil && got != want {
				t.Errorf("got %s, want %s: %v", got, want, m.log)
			}
			if c.stops != nil && len(r.r.Cases) != 1 {
				t.Errorf("%d cases were tried after something was left", len(r.r.Cases)-1)
			}
		})
	}
}

// TestDatagramsUnproven checks that, for datagrams, only received packets decide the outcome.
func TestDatagramsUnproven(t *testing.T) {
	m := newMachine()
	m.finds = append(m.finds, verify.Finding{Severity: verify.Unknown, Lane: LaneName, Part: device.PartMapper})
	r, err := try(t.Context(), m)
	must.Do(t, err)
	for _, c := range r.r.Cases {
		want := Unproven
		if strings.HasPrefix(c.Kind, "udp") {
			want = OK
		}
		if c.Outcome != want {
			t.Errorf("%s: got %s, want %s", c.Name, c.Outcome, want)
		}
	}
}

// TestInterrupted interrupts a case while its traffic is watched. The rollback must run with a
// context that has not ended.
func TestInterrupted(t *testing.T) {
	m := newMachine()
	ctx, cancel := context.WithCancel(t.Context())
	m.during = cancel
	r, err := try(ctx, m)
	if !errors.Is(err, context.Canceled) || m.state.Files["/sys/x"] != file("0") || len(r.r.Cases) != 1 {
		t.Errorf("got %v, %v, %d cases; calls %v", err, m.state.Files, len(r.r.Cases), m.log)
	}
}

func TestFlapsAreWatchedLonger(t *testing.T) {
	m := newMachine()
	m.flaps = 1
	r := &runner{c: Config{Within: time.Minute, During: time.Second}, m: m, peer: nowhere{}}
	began := time.Now().Add(-3 * time.Second)
	if d, _, err := r.settle(t.Context(), kind{end: end4}, new(int), began); err != nil || d != time.Second {
		t.Errorf("without a flap: got %v, %v", d, err)
	}
	_ = m.Apply(t.Context(), "", 0)
	if d, _, err := r.settle(t.Context(), kind{end: end4}, new(int), began); err != nil || d < 4*time.Second {
		t.Errorf("with a flap: got %v, %v", d, err)
	}
}

// TestFlapsAreWatchedAgain checks that a watch is repeated if the link went down during it, because
// traffic stops while the link is down.
func TestFlapsAreWatchedAgain(t *testing.T) {
	for _, c := range []struct{ flaps, want int }{{0, 1}, {1, 2}, {10, maxWatches}} {
		m := newMachine()
		watches := 0
		m.during = func() {
			if watches < c.flaps {
				m.downs++
			}
			watches++
		}
		r := &runner{c: Config{Within: time.Minute}, m: m, peer: nowhere{}}
		if err := r.lanes(t.Context(), &Case{}, kind{end: end4}, new(int)); err != nil || watches != c.want {
			t.Errorf("%d flaps: watched %d times, %v; want %d", c.flaps, watches, err, c.want)
		}
	}
}

// TestCases checks that each mechanism that the planner did not choose is forced in exactly one
// case.
func TestCases(t *testing.T) {
	target := Target{Device: "eth0", Port: 17411, Queues: 2,
		Ends: []End{end4, {netip.MustParseAddr("fd09::1"), netip.MustParseAddr("fd09::2")}}}
	all := target.cases([]plan.Choice{{Part: device.PartQueueSet, Mechanism: plan.ByRSSContext}})
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
		for part, r := range c.Force {
			if !strings.Contains(c.Lanes, "  force:\n    "+part+": "+r+"\n") {
				t.Errorf("%s is not in the file:\n%s", c.Name, c.Lanes)
			}
		}
	}
	for _, want := range []string{"tcp4 port", "udp6 port", "tcp6 remote prefix and port", "queue-set mqprio-channel",
		"bandwidth htb", "poller softirq"} {
		if !slices.Contains(names, want) {
			t.Errorf("no case %q in %q", want, names)
		}
	}
	if slices.Contains(names, "queue-set rss-context") {
		t.Error("what is chosen is forced as well")
	}
	const want = "version: 1\nglobals:\n  dev: eth0\nlanes:\n  selftest:\n    queues: 2\n    ports: [17411]\n    " +
		"remote-addrs: [\"10.9.0.0/28\"]\n"
	if diff := cmp.Diff(want, all[3].Lanes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := only(all, []string{"tcp4 port", "nothing"}); err == nil ||
		!strings.Contains(err.Error(), `no case "nothing" here; there are:`) {
		t.Errorf("got %v", err)
	}
}

func TestScrub(t *testing.T) {
	s := &Scrubber{Own: []netip.Addr{end4.Own, netip.MustParseAddr("fd09::1")}, Peer: []netip.Addr{end4.Peer},
		Names: []string{"db7.example", ""}, Devices: []string{"eth0"}}
	for in, want := range map[string]string{
		"tcp4,local=10.9.0.1/32,port=80":     "tcp4,local=$own/32,port=80",
		"dial 10.9.0.2:7411: refused":        "dial $peer:7411: refused",
		"[fd09::1]:80 and fd09::1.":          "[$own]:80 and $own.",
		"to fd09::/64, 10.9.0.11":            "to $address/64, $address",
		"host DB7.example (agent x):":        "host $host (agent x):",
		"filter/eth0/egress, eth01":          "filter/$dev/egress, eth01",
		"mac 02:fc:00:00:00:01!":             "mac $mac!",
		"class 1:10, 5.15, 12:30, 100.5 ms.": "class 1:10, 5.15, 12:30, 100.5 ms.",
		"listen on 0.0.0.0 and 127.0.0.1":    "listen on 0.0.0.0 and 127.0.0.1",
		"::ffff:10.9.0.1":                    "$own",
		"fe80::1%eth0":                       "$address%$dev",
	} {
		if got := s.scrub(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// fixture returns a record with addresses in every possible place.
func fixture() *Record {
	n := 1
	d := []Difference{{Key: "rule/eth0/10.9.0.1", Before: "10.9.0.1", After: "10.9.0.2"}}
	return &Record{
		Schema: Schema, Niclane: "v1", Partial: "host db7.example: 10.9.0.2 is lost", System: System{Kernel: "6.12"},
		Device: Device{Driver: "ice", Firmware: "220.0.59.0", Channels: &device.Channels{Dev: "eth0"},
			MaxChannels:  &device.Channels{Dev: "eth0"},
			Capabilities: device.Capabilities{"rules": {Answer: device.No, Why: "asked 10.9.0.1"}}},
		Cases: []Case{{
			Name: "tcp4 port", Kind: "tcp4 port", Lanes: "addrs: [10.9.0.1]", Outcome: Failed,
			Reasons: []string{"10.9.0.1 <b>"}, Disruptive: []string{"10.9.0.1"},
			LinkDowns: &n, Findings: []verify.Finding{{Severity: verify.Drift, Device: "eth0", Key: "x/10.9.0.1",
				Want: "10.9.0.1", Found: "10.9.0.1", Meaning: "10.9.0.1", Repair: "10.9.0.1",
				With: []string{"10.9.0.1"}}},
			Connections: []Connections{{Whose: Lanes, Asked: 8, Lost: 2, Error: "read 10.9.0.2"},
				{Whose: Others, Asked: 8, Lost: 1}}, Differences: slices.Clone(d),
			Queues: []int{2}, Received: []Cell{{Lane: LaneName, Queue: 2, Packets: 41}, {Queue: 0, Packets: 43}},
		}},
		Choices: []plan.Choice{{Device: "eth0", Part: device.PartQueueSet, Reason: "10.9.0.1",
			Rejected: []plan.Rejection{{Mechanism: "x", Why: "10.9.0.1"}}}},
		Latency: &Latency{Lanes: "10.9.0.1", Rounds: 2,
			Percentiles: []Percentile{{P: 99, Missing: []string{"too few"}}}, Warnings: []string{"10.9.0.1"}},
		Left: d, Warnings: []string{"10.9.0.1"},
	}
}

// TestRecordIsScrubbed checks that no output of a record identifies the host. The driver's firmware
// version must stay, although it looks like an address.
func TestRecordIsScrubbed(t *testing.T) {
	r := fixture()
	(&Scrubber{Own: []netip.Addr{end4.Own}, Peer: []netip.Addr{end4.Peer}, Names: []string{"db7.example"},
		Devices: []string{"eth0"}}).Record(r)
	for name, write := range map[string]func(*bytes.Buffer) error{
		"json": func(b *bytes.Buffer) error { return Write(b, r) },
		"page": func(b *bytes.Buffer) error { return WritePage(b, r) },
		"text": func(b *bytes.Buffer) error { return WriteText(b, r) },
		"row":  func(b *bytes.Buffer) error { return WriteRow(b, r) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, secret := range []string{"10.9.0", "db7", "eth0"} {
			if strings.Contains(b.String(), secret) {
				t.Errorf("%s: %s is in it:\n%s", name, secret, b.String())
			}
		}
		if !strings.Contains(b.String(), "220.0.59.0") {
			t.Errorf("%s: the firmware's version is not in it", name)
		}
	}
}

func TestPage(t *testing.T) {
	var b bytes.Buffer
	must.Do(t, WritePage(&b, fixture()))
	for _, want := range []string{
		"Selftest: ice, firmware 220.0.59.0", "1 failed; 1 link flap, 3 connections lost", "2 of 8 lost",
		"10.9.0.1 &lt;b&gt;", `2 <span class="badge">lane</span>`, ">41<", ">43<",
		"default-src &#39;none&#39;", "The selftest ended early: host db7.example", "too few", "Not as before",
	} {
		if !strings.Contains(b.String(), want) &&
			!strings.Contains(b.String(), strings.ReplaceAll(want, "&#39;", "'")) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	for _, external := range []string{"http://", "https://", "<script", "src="} {
		if strings.Contains(b.String(), external) {
			t.Errorf("%s is in the page", external)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	var b bytes.Buffer
	must.Do(t, Write(&b, fixture()))
	if _, err := decode(b.Bytes()); err != nil {
		t.Errorf("what was written is refused: %v", err)
	}
	for text, want := range map[string]string{
		"{}":                                  "no schema",
		`{"schema": "niclane.result/2"}`:      `schema "niclane.result/2", this niclane reads`,
		`{"schema": "niclane.selftest/1", "x`: "ends in the middle",
		`{"schema": "niclane.selftest/1", "cased": 1}`: "unknown field",
	} {
		if _, err := decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// TestDifferences checks that the comparison includes everything that a plan can write.
func TestDifferences(t *testing.T) {
	st := func(v string) *device.State {
		return &device.State{Files: map[string]device.File{"/sys/x": file(v), "/sys/y": {Path: "/sys/y", Value: "1"}}}
	}
	if d := differences(st("1"), st("1")); len(d) > 0 {
		t.Errorf("equal states differ: %v", d)
	}
	gone := st("1")
	delete(gone.Files, "/sys/y")
	got, err := json.Marshal(append(differences(st("1"), st("2")), differences(st("1"), gone)...))
	must.Do(t, err)
	const want = `[{"key":"file/sys/x","before":"\"1\"","after":"\"2\""},{"key":"file/sys/y","before":"\"1\"","after":""}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
