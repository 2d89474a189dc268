// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/niclane/niclane/lane/intent"
)

// TestMembership: members that come and go are checked as all are that are there.
func TestMembership(t *testing.T) {
	const text = `version: 1
globals: {dev: eth0, rxusecs: 50}
lanes:
  a: {queues: 1, mode: shared, members: []}
  b: {queues: 1, mode: shared, members: []}
`
	rnd := rand.New(rand.NewPCG(3, 4))
	member := func(i int) *intent.Member {
		m := &intent.Member{Name: fmt.Sprint("m", i%25), Protocol: "tcp", Ports: []uint16{80}, Addrs: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32), netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 15: byte(i)}), 128),
		}}
		switch i {
		case 20, 21:
			m.Addrs = m.Addrs[1:]
			m.Addrs[0] = netip.MustParsePrefix("fd00::1/128")
			m.Ports = []uint16{uint16(i + 60)} // 80 of 1's address, and 81
		case 22:
			m.Addrs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/29")}
		case 23: // narrower than 2, and may be in its lane
			m.Addrs, m.RemotePorts = []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32")}, []uint16{5}
		case 24, 25: // in two lanes
			m.Cgroup = "/pod"
		case 26:
			m.RemoteAddrs = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
			m.Addrs = m.Addrs[1:]
		case 27, 29: // both are too many
			for port := range uint16(150) {
				m.Ports, m.RemotePorts = append(m.Ports, port+1), append(m.RemotePorts, port+1)
			}
		case 18, 19:
			m.Name = ""
		}
		return m
	}
	one := &intent.Member{Protocol: "tcp", Ports: []uint16{4}, Addrs: member(99).Addrs}
	for _, other := range []string{
		"",
		"  c: {queues: 1, mode: exclusive, members: [{ports: 1}]}\n",
		"  d: {queues: 1, mode: shared, ports: [2]}\n",
	} {
		text := text + other
		f, err := ParseFile("lanes.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		pool := make([]*intent.Member, 30)
		for i := range pool {
			pool[i] = member(i)
		}
		s, in, refused, alone := f.Membership(), map[int]int{}, 0, 0
		for range 3000 {
			i := rnd.IntN(len(pool))
			if in[i] = (in[i] + rnd.IntN(3)) % 3; i >= 20 && rnd.IntN(3) > 0 {
				in[i] = 0 // most are what pods are
			}
			if rnd.IntN(9) == 0 {
				pool[i] = member(i)
			}
			lists, all := map[string][]*intent.Member{}, map[string][]intent.Member{}
			put := func(lane string, m *intent.Member) {
				lists[lane], all[lane] = append(lists[lane], m), append(all[lane], *m)
			}
			plain := other == ""
			for i, m := range pool {
				if in[i] > 0 {
					put([]string{"", "a", "b"}[in[i]], m)
					plain = plain && m.Cgroup == "" && !hasRange(m.Addrs)
				}
			}
			for range []int{1, 1, 1, 1, 1, 1, 0, 2}[rnd.IntN(8)] {
				put("c", one)
			}
			if rnd.IntN(50) == 0 {
				put("a", pool[rnd.IntN(20)]) // twice, maybe
			}
			quick := s.change(lists)
			if quick && !s.change(lists) {
				t.Fatal("members that stay were checked with themselves")
			}
			got, err := s.With(lists)
			if quick {
				alone++
			} else if plain && err == nil {
				t.Fatal("members that come were not checked alone")
			}
			want, werr := f.WithMembers(all)
			if fmt.Sprint(err) != fmt.Sprint(werr) {
				t.Fatalf("got %v, want %v", err, werr)
			}
			if err != nil {
				refused++
				clear(in)
				continue
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("got %+v\nwant %+v", got, want)
			}
		}
		if refused < 20 || refused > 2000 || (alone > 500) != (other == "") {
			t.Errorf("%d of 3000 were refused, %d checked alone", refused, alone)
		}
	}
	// As many as a file may have, one more, and one less again.
	f, err := ParseFile("lanes.yaml", []byte(text[:strings.Index(text, "  b:")]))
	if err != nil {
		t.Fatal(err)
	}
	s := f.Membership()
	var list []*intent.Member
	for i := range 4097 {
		list = append(list, &intent.Member{Name: fmt.Sprint(i), Protocol: "tcp", Addrs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)}})
	}
	for _, n := range []int{4095, 4096, 4097, 4096} {
		if _, err := s.With(map[string][]*intent.Member{"a": list[:n]}); (err != nil) != (n > 4096) {
			t.Errorf("%d members: %v", n, err)
		}
	}
}
