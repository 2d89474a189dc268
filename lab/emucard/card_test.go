// SPDX-License-Identifier: Apache-2.0

package emucard

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

// newCard makes a card on a new BPF file system, and its programs.
func newCard(t *testing.T, cfg Config) (*Card, *Programs) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	root := t.TempDir()
	must.Do(t, unix.Mount("bpf", root, "bpf", 0, ""))
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	cfg.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	cfg.Arbiter = 1 // the index of lo; a test run of a program redirects no packet
	p, err := create(root, cfg)
	must.Do(t, err)
	c, err := open(dir(root, cfg.MAC))
	must.Do(t, err)
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
	return c, p
}

var small = Config{Queues: 4, Rules: 3, Contexts: 3, LinkRate: 1e9}

// table repeats queues until the list is as long as an indirection table.
func table(queues ...int) []int {
	var t []int
	for len(t) < TableSize {
		t = append(t, queues...)
	}
	return t[:TableSize]
}

func TestOpenAbsent(t *testing.T) {
	_, err := open(t.TempDir() + "/card-020000000001")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}

func TestNewCard(t *testing.T) {
	c, _ := newCard(t, small)
	if got, want := c.Info(), (Info{Queues: 4, Rules: 3, Contexts: 3, LinkRate: 1e9}); got != want {
		t.Errorf("info: got %+v, want %+v", got, want)
	}
	got, configured, err := c.RSS(0)
	must.Do(t, err)
	if diff := cmp.Diff(table(0, 1, 2, 3), got); diff != "" || configured {
		t.Errorf("default table, configured %v (-want +got):\n%s", configured, diff)
	}
	if ids, err := c.Contexts(); err != nil || !slices.Equal(ids, []int{0}) {
		t.Errorf("contexts: %v, %v", ids, err)
	}
	if rules, err := c.Rules(); err != nil || len(rules) != 0 {
		t.Errorf("rules: %v, %v", rules, err)
	}
}

func TestContextsRoundTrip(t *testing.T) {
	c, _ := newCard(t, small)
	must.Do(t, c.CreateContext(2, table(2, 3)))
	must.Do(t, c.SetRSS(0, table(0, 1)))
	for id, want := range map[int][]int{0: table(0, 1), 2: table(2, 3)} {
		got, configured, err := c.RSS(id)
		if err != nil || !configured {
			t.Errorf("context %d: configured %v, %v", id, configured, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("context %d (-want +got):\n%s", id, diff)
		}
	}
	if ids, err := c.Contexts(); err != nil || !slices.Equal(ids, []int{0, 2}) {
		t.Errorf("contexts: %v, %v; want [0 2]", ids, err)
	}
	must.Do(t, c.DeleteContext(2))
	must.Do(t, c.ResetRSS())
	got, configured, err := c.RSS(0)
	if err != nil || configured {
		t.Errorf("after reset: configured %v, %v", configured, err)
	}
	if diff := cmp.Diff(table(0, 1, 2, 3), got); diff != "" {
		t.Errorf("after reset (-want +got):\n%s", diff)
	}
}

func tcp4(port uint16) device.Match {
	return device.Match{Family: 4, Protocol: "tcp", LocalPort: port}
}

func TestRefusals(t *testing.T) {
	add := func(r Rule) func(*Card) error { return func(c *Card) error { return c.AddRule(r) } }
	tests := []struct {
		name string
		do   func(*Card) error
		want error
	}{
		{"short table", func(c *Card) error { return c.SetRSS(0, []int{0, 1}) }, unix.EINVAL},
		{"queue too high in a table", func(c *Card) error { return c.SetRSS(0, table(4)) }, unix.EINVAL},
		{"negative queue in a table", func(c *Card) error { return c.SetRSS(0, table(-1)) }, unix.EINVAL},
		{"table of no context", func(c *Card) error { return c.SetRSS(2, table(0)) }, unix.ENOENT},
		{"context beyond the last", func(c *Card) error { return c.CreateContext(3, table(0)) }, unix.EINVAL},
		{"context twice", func(c *Card) error { return c.CreateContext(1, table(0)) }, unix.EEXIST},
		{"delete the default context", func(c *Card) error { return c.DeleteContext(0) }, unix.EINVAL},
		{"delete no context", func(c *Card) error { return c.DeleteContext(2) }, unix.ENOENT},
		{"delete a context in use", func(c *Card) error { return c.DeleteContext(1) }, unix.EBUSY},
		{"location taken", add(Rule{0, tcp4(81), 0, 1}), unix.EEXIST},
		{"match taken", add(Rule{1, tcp4(80), 0, 1}), unix.EEXIST},
		{"location beyond the last", add(Rule{3, tcp4(81), 0, 1}), unix.EINVAL},
		{"negative location", add(Rule{-2, tcp4(81), 0, 1}), unix.EINVAL},
		{"queue beyond the last", add(Rule{1, tcp4(81), 0, 4}), unix.EINVAL},
		{"no such context", add(Rule{1, tcp4(81), 2, 0}), unix.EINVAL},
		{"context and queue", add(Rule{1, tcp4(81), 1, 1}), unix.EINVAL},
		{"protocol", add(Rule{1, device.Match{Family: 4, Protocol: "sctp"}, 0, 1}), unix.EINVAL},
		{"delete no rule", func(c *Card) error { _, err := c.DeleteRule(tcp4(81)); return err }, unix.ENOENT},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := newCard(t, small)
			must.Do(t, errors.Join(c.CreateContext(1, table(3)), c.AddRule(Rule{0, tcp4(80), 1, 0})))
			before := dump(t, c)
			if err := tt.do(c); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if diff := cmp.Diff(before, dump(t, c)); diff != "" {
				t.Errorf("it changed something (-before +after):\n%s", diff)
			}
		})
	}
}

// contents is the part of a card's state that can be changed.
type contents struct {
	Tables     map[int][]int
	Configured map[int]bool
	Rules      []Rule
	Patterns   []string
}

func dump(t *testing.T, c *Card) contents {
	t.Helper()
	s := contents{Tables: map[int][]int{}, Configured: map[int]bool{}}
	ids, err := c.Contexts()
	must.Do(t, err)
	for _, id := range ids {
		if s.Tables[id], s.Configured[id], err = c.RSS(id); err != nil {
			t.Fatal(err)
		}
	}
	if s.Rules, err = c.Rules(); err != nil {
		t.Fatal(err)
	}
	patterns, err := c.patterns()
	must.Do(t, err)
	for _, p := range patterns {
		s.Patterns = append(s.Patterns, fmt.Sprintf("%x used %d", *p.Mask.Bytes(), p.Used))
	}
	return s
}

func TestRulesRoundTrip(t *testing.T) {
	c, _ := newCard(t, Config{Queues: 4, Rules: 8, Contexts: 2})
	must.Do(t, c.CreateContext(1, table(3)))
	want := []Rule{
		{0, device.Match{Family: 4, Protocol: "tcp", LocalPort: 11211}, 1, 0},
		{1, device.Match{Family: 6, Protocol: "udp", LocalPort: 53, Local: "fd00::1/128"}, 0, 2},
		{3, device.Match{Family: 4, Protocol: "tcp", Remote: "10.0.0.0/8", RemotePort: 443, VLAN: 7}, 0, 0},
		{7, device.Match{Family: 6, Protocol: "tcp"}, 1, 0},
	}
	for _, i := range []int{2, 0, 3, 1} {
		must.Do(t, c.AddRule(want[i]))
	}
	got, err := c.Rules()
	must.Do(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	anywhere := Rule{Anywhere, tcp4(9999), 0, 1}
	must.Do(t, c.AddRule(anywhere))
	if r, err := c.Rule(anywhere.Match); r.Location != 2 || err != nil {
		t.Errorf("a rule that may go anywhere went to %d, %v; the lowest free location is 2", r.Location, err)
	}
	anywhere.Location = 2
	want = append(want, anywhere)
	for _, r := range want {
		if back, err := c.DeleteRule(r.Match); err != nil || back != r {
			t.Errorf("deleted %+v, %v; want %+v", back, err, r)
		}
	}
	ps, err := c.patterns()
	if err != nil || ps != [maxPatterns]pattern{} {
		t.Errorf("patterns left: %v, %v", ps, err)
	}
}

func TestCapacity(t *testing.T) {
	c, _ := newCard(t, small)
	for i := range 3 {
		must.Do(t, c.AddRule(Rule{i, tcp4(uint16(80 + i)), 0, 1}))
	}
	must.Refuse(t, "one rule too many", c.AddRule(Rule{Anywhere, tcp4(9999), 0, 1}), unix.ENOSPC)
	// Make the state that a DeleteRule leaves if it is killed between its two writes.
	l, err := c.locations()
	must.Do(t, err)
	if _, err := c.DeleteRule(tcp4(81)); err != nil {
		t.Fatal(err)
	}
	must.Do(t, c.setLocations(l))
	if err := c.AddRule(Rule{Anywhere, tcp4(81), 0, 1}); err != nil {
		t.Errorf("into a location that nothing is at: %v", err)
	}
	if r, err := c.Rule(tcp4(81)); r.Location != 1 || err != nil {
		t.Errorf("it went to location %d, %v; want 1", r.Location, err)
	}
	if _, err := c.Rule(tcp4(9999)); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a rule that was never added: %v, want %v", err, unix.ENOENT)
	}
}

func TestPatternsRunOut(t *testing.T) {
	c, _ := newCard(t, Config{Queues: 4, Rules: 64, Contexts: 1})
	rule := func(i int) Rule {
		p := netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), 8+i)
		return Rule{i, device.Match{Family: 4, Protocol: "tcp", Remote: p.String()}, 0, 1}
	}
	for i := range maxPatterns {
		must.Do(t, c.AddRule(rule(i)))
	}
	must.Refuse(t, "one pattern too many", c.AddRule(rule(maxPatterns)), unix.ENOSPC)
	// Make the state that a DeleteRule leaves if it is killed between its two writes.
	f, _, err := flow.Encode(rule(5).Match)
	must.Do(t, err)
	must.Do(t, c.maps["card_rules"].Delete(flow.Key{Pattern: 5, Flow: f}))
	if err := c.AddRule(rule(maxPatterns)); err != nil {
		t.Errorf("after a recount: %v", err)
	}
}
