// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/lane/config"
)

// TestReadsAsText makes 500 random lanes files, valid and invalid ones. Make does not parse the
// text of the file, but reads its values. The test checks that the parsed text gives the same
// intent and the same errors.
func TestReadsAsText(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	spec := &v1alpha1.LanePolicySpec{Classes: []v1alpha1.Class{
		{Name: "redis", Queues: 1, Capacity: 2, Tuning: v1alpha1.Tuning{Guarantee: "10%", CoalesceRx: "0us"}},
		{Name: "web", Mode: v1alpha1.Shared, Queues: 2, Capacity: 100, Aligned: true},
	}}
	member := func(i int) *Member {
		m := &Member{
			Name: fmt.Sprintf("pod-%d", i), Lane: []string{"redis-0", "redis-1", "web"}[i%3], Protocol: "tcp",
			Ports: []string{"80", "8000-8010"},
			Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/32", i+1)),
				netip.MustParsePrefix(fmt.Sprintf("fd00::%d/128", i+1))},
		}
		switch i {
		case 20: // has the address of member 3, which is in another lane
			m.Addrs = []netip.Prefix{netip.MustParsePrefix("10.0.0.4/32")}
		case 21:
			m.Ports = []string{"none"}
		case 22: // has address and port of member 4, which is in the same lane
			m = &Member{Name: "again", Lane: "redis-1", Protocol: "tcp", Ports: []string{"80"},
				Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32")}}
		case 23: // has the name of member 5, which is in the same lane
			m.Name = "pod-5"
		case 24:
			m.Ports, m.Addrs = nil, nil
		case 25:
			m.Cgroup = "/kubepods/pod25"
		case 26: // its group is inside that of member 25, which is in another lane
			m.Cgroup = "/kubepods/pod25/container"
		}
		return m
	}
	var members []*Member
	for i := range 27 {
		members = append(members, member(i))
	}
	refused, ceilings := 0, []uint64{0, 5e8}
	for range 500 {
		if i := rnd.IntN(27); rnd.IntN(3) == 0 {
			members[i] = member(i) // a new pod with the same name and address
		}
		spec.Classes[1].Aligned = rnd.IntN(10) > 0
		n := Node{Device: "eth0", Ceilings: map[string]uint64{"redis-0": ceilings[rnd.IntN(2)]}}
		for i := range 27 {
			if i < 20 && rnd.IntN(2) == 0 || rnd.IntN(20) == 0 {
				n.Members = append(n.Members, members[i])
			}
		}
		f, err := Make("k.yaml", spec, n)
		b := &builder{paths: map[string]string{}, byLane: map[string][]*Member{}}
		for _, m := range n.Members {
			b.byLane[m.Lane] = append(b.byLane[m.Lane], m)
		}
		text := b.file(spec, n).Text()
		read, terr := config.ParseFile("k.yaml", text)
		if terr != nil {
			refused++
			want := (&File{paths: b.paths}).inPolicy(terr)
			if diff := cmp.Diff(want, err, lines); diff != "" {
				t.Fatalf("%s(-text +values)\n%s", text, diff)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s\n%v", text, err)
		}
		if diff := cmp.Diff(heading+string(text), string(f.Text)); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(read.Intent, f.Intent, cmp.Comparer(func(a, b netip.Prefix) bool {
			return a == b
		})); diff != "" {
			t.Fatalf("%s\n(-text +values)\n%s", text, diff)
		}
	}
	if refused < 50 || refused > 450 {
		t.Errorf("%d of 500 files were refused", refused)
	}
}

// lines returns the errors as a sorted list without line numbers, because only the text has lines.
var lines = cmp.Transformer("lines", func(err error) []string {
	var out []string
	var errs Errors
	if !errors.As(err, &errs) {
		return []string{err.Error()}
	}
	for _, s := range errs {
		out = append(out, numbers.ReplaceAllString(s, "line N"))
	}
	slices.Sort(out)
	return out
})

var numbers = regexp.MustCompile(`(first in )?line \d+`)

// TestMemberText checks the text of a member with all its fields.
func TestMemberText(t *testing.T) {
	prefixes := func(texts ...string) (out []netip.Prefix) {
		for _, s := range texts {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	for _, c := range []struct {
		member  Member
		aligned bool
		want    string
	}{
		{Member{
			Name: "every\"thing", Lane: "web", Protocol: "udp", Ports: []string{"80", "8000-8010"},
			RemotePorts: []string{"1024-2047", "53"},
			Addrs:       prefixes("10.0.0.1/32", "10.1.0.0/16", "fd00::1/128"),
			RemoteAddrs: prefixes("fd01::/64", "::ffff:10.0.0.2/128"), Cgroup: "/a b",
		}, true, `name: "every\"thing"
protocol: udp
ports: ["80", "8000-8010"]
remote-ports: ["1024-2047", "53"]
addrs: ["10.0.0.1", "10.1.0.0/16", "fd00::1"]
remote-addrs: ["fd01::/64", "::ffff:10.0.0.2"]
cgroup: "/a b"
aligned: true
`},
		{Member{Name: "nothing", Protocol: "tcp"}, false, `name: nothing
protocol: tcp
`},
	} {
		if diff := cmp.Diff(c.want, string(c.member.values(c.aligned).Text())); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}
