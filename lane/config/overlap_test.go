// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/intent"
)

// TestOverlapsOfMany checks checkOverlaps against a simple comparison of each member with all
// earlier ones: both must report the same first overlapping member.
func TestOverlapsOfMany(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	one := func(choices ...string) (out []netip.Prefix) {
		for _, s := range strings.Fields(choices[r.IntN(len(choices))]) {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	found := 0
	for range 60 {
		var all []intent.Member
		n := 2 + r.IntN(40)
		split := r.IntN(n)
		for i := range n {
			a, b := r.IntN(12), r.IntN(4)
			m := intent.Member{Name: fmt.Sprint("m", i), Protocol: []string{"tcp", "tcp", "udp"}[r.IntN(3)]}
			m.Addrs = one(fmt.Sprintf("10.0.%d.%d/32", b, a), fmt.Sprintf("10.0.%d.%d/32 fd00::%d:%d/128", b, a, b, a),
				fmt.Sprintf("fd00::%d:%d/128", b, a), fmt.Sprintf("10.0.%d.%d/32 10.0.%d.%d/32", b, a, b, a+1),
				fmt.Sprintf("10.0.%d.0/30", b), "")
			for p := range r.IntN(3) {
				m.Ports = append(m.Ports, uint16(80+10*p+r.IntN(3)))
			}
			if m.RemoteAddrs = one("192.0.2.1/32", "192.0.2.0/24", "", "", ""); len(m.Addrs) == 1 &&
				m.Addrs[0].Addr().Is6() {
				m.RemoteAddrs = nil
			}
			if len(m.Addrs)+len(m.Ports)+len(m.RemoteAddrs) == 0 {
				m.Ports = []uint16{81}
			}
			all = append(all, m)
		}
		path := func(i int) string {
			if i < split {
				return fmt.Sprintf("lanes.a.members[%d]", i)
			}
			return fmt.Sprintf("lanes.b.members[%d]", i-split)
		}
		var want, got []string
		for j := range all {
			for i := range j {
				_, ok := common(&all[i], &all[j])
				if ok && ((i < split) != (j < split) || samePattern(&all[i], &all[j])) {
					want = append(want, path(j)+" "+path(i))
					break
				}
			}
		}
		_, err := FromValues("lanes.yaml", values(map[string][]intent.Member{"a": all[:split], "b": all[split:]}))
		if errs := (Errors)(nil); errors.As(err, &errs) {
			for _, e := range errs {
				fields := strings.Fields(e.Message)
				got = append(got, e.Path+" "+fields[1])
				found++
			}
		}
		slices.Sort(got) // Parse sorts errors by line, but members from values have no lines
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("overlaps of %d members:\n%s\nwant:\n%s", n, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if found < 100 {
		t.Errorf("%d overlaps: too few to say anything", found)
	}
}

// values returns a lanes file with two lanes that have these members.
func values(members map[string][]intent.Member) strictyaml.Map {
	texts := func(ps []netip.Prefix) (out []string) {
		for _, p := range ps {
			out = append(out, p.String())
		}
		return out
	}
	var lanes strictyaml.Map
	for _, lane := range []string{"a", "b"} {
		list := []strictyaml.Map{}
		for _, m := range members[lane] {
			v := strictyaml.Map{{Key: "name", Value: m.Name}, {Key: "protocol", Value: m.Protocol}}
			if len(m.Ports) > 0 {
				v.Set("ports", strings.Fields(strings.Trim(fmt.Sprint(m.Ports), "[]")))
			}
			if len(m.Addrs) > 0 {
				v.Set("addrs", texts(m.Addrs))
			}
			if len(m.RemoteAddrs) > 0 {
				v.Set("remote-addrs", texts(m.RemoteAddrs))
			}
			list = append(list, v)
		}
		lanes.Set(lane, strictyaml.Map{{Key: "queues", Value: 1}, {Key: "mode", Value: "shared"},
			{Key: "members", Value: list}})
	}
	return strictyaml.Map{{Key: "version", Value: 1},
		{Key: "globals", Value: strictyaml.Map{{Key: "dev", Value: "eth0"}}}, {Key: "lanes", Value: lanes}}
}
