// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/intent"
)

func TestWithMembers(t *testing.T) {
	const text = `version: 1
globals: {dev: eth0}
lanes:
  crowd: {queues: 1, mode: shared, members: []}
  few: {queues: 1, mode: exclusive, members: [{ports: 1}]}
  alone: {queues: 1, ports: 2}
`
	f, err := config.ParseFile("lanes.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	members := func(n int) (ms []intent.Member) {
		for i := range n {
			ms = append(ms, intent.Member{
				Name: fmt.Sprint("m", i), Protocol: "tcp", Ports: []uint16{3},
				Addrs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)},
			})
		}
		return ms
	}
	one := []intent.Member{{Protocol: "tcp", Ports: []uint16{4}}}
	for _, c := range []struct {
		crowd, few []intent.Member
		want       string
	}{
		{members(4000), one, ""},
		{members(0), one, ""},
		{members(4096), one, "lanes.few.members: brings the file to 4097 members"},
		{members(1), nil, "lanes.few.members: found 0 members in an exclusive lane"},
		{members(1), members(1), "lanes.few.members[0]: overlaps lanes.crowd.members[0]"},
		{members(1), []intent.Member{{Protocol: "tcp", Ports: []uint16{2}}}, "lanes.alone: overlaps lanes.few.members[0]"},
		{append(members(2), members(2)[1]), one, "lanes.crowd.members[2].name: a second member"},
	} {
		in, err := f.WithMembers(map[string][]intent.Member{"crowd": c.crowd, "few": c.few, "alone": members(1)})
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		if got := in.Lanes[0].Members; len(got) != len(c.crowd) || len(got) > 0 && got[len(got)-1].Path != fmt.Sprintf("lanes.crowd.members[%d]", len(got)-1) {
			t.Errorf("%d members, want %d", len(got), len(c.crowd))
		}
		if alone := in.Lanes[2].Members; len(alone) != 1 || alone[0].Ports[0] != 2 {
			t.Errorf("a lane without a list: %v", alone)
		}
	}
	if f.Intent.Lanes[0].Members != nil || len(f.Intent.Lanes[1].Members) != 1 {
		t.Error("the file itself has changed")
	}
}

func TestParseMembers(t *testing.T) {
	ms, err := config.ParseMembers("m.yaml", []byte("      - name: a\n        ports: [80]\n      - {cgroup: /a}\n"))
	if err != nil || len(ms) != 2 || ms[0].Name != "a" || ms[0].Ports[0] != 80 || ms[1].Cgroup != "/a" {
		t.Errorf("%v, %v", ms, err)
	}
	for text, want := range map[string]string{
		"a: b":               "want a list of members",
		"- {port: 80}":       "unknown key",
		"- {ports: 80}\n- x": "m.yaml:2: [1]: found",
	} {
		if _, err := config.ParseMembers("m.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
