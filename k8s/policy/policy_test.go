// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

func named(name string, priority int32, labels map[string]string) *v1alpha1.LanePolicy {
	p := &v1alpha1.LanePolicy{}
	p.Name, p.Spec.Priority = name, priority
	if labels != nil {
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: labels}
	}
	return p
}

// TestFault12NodeWithoutPolicy checks that a node that no policy selects gets no policy and no
// error. Two policies with the same priority give an error that names both.
func TestFault12NodeWithoutPolicy(t *testing.T) {
	edge := named("edge", 1, map[string]string{"role": "edge"})
	all := named("all", 0, nil)
	node := map[string]string{"role": "edge"}
	choose := func(node map[string]string, all ...*v1alpha1.LanePolicy) string {
		var cs []Candidate
		for _, p := range all {
			cs = append(cs, NewCandidate(p, nil))
		}
		i, conflicted := Choose(cs, node, "")
		if i < 0 {
			return fmt.Sprint("none ", conflicted)
		}
		return fmt.Sprint(all[i].Name, " ", conflicted)
	}
	if got := choose(map[string]string{"role": "db"}, edge); got != "none []" {
		t.Errorf("got %s, want none", got)
	}
	if got := choose(node, all, edge); got != "edge []" {
		t.Errorf("got %s, want the one with the higher priority", got)
	}
	if got := choose(node, named("other", 1, nil), edge, all); got != "edge [0]" {
		t.Errorf("got %s, want the first by name, and the other one", got)
	}
}

func TestMake(t *testing.T) {
	nice := 5
	spec := &v1alpha1.LanePolicySpec{
		Uplink: v1alpha1.Uplink{LinkRate: "10G", Unshaped: []string{"10.2.0.0/16", "fd00:2::/48"}, Queues: 2, Tuning: v1alpha1.Tuning{Rank: 7}},
		Classes: []v1alpha1.Class{
			{Name: "redis", Queues: 2, Capacity: 3, DSCP: ptr.To(intstr.FromString("EF")),
				Tuning: v1alpha1.Tuning{Guarantee: "10%", Poller: "Busy", Pollers: 1, PollerNice: &nice}},
			{Name: "web", Mode: v1alpha1.Shared, Queues: 1, DSCP: ptr.To(intstr.FromInt32(63)), Tuning: v1alpha1.Tuning{NUMA: ptr.To(intstr.FromInt32(1)), Ceiling: "2G"}},
		},
	}
	f, err := Make("kubernetes.yaml", spec, Node{
		Device: "eth0",
		Joined: []Joining{{"redis", 1, 2}},
		Members: []*Member{
			{Name: "a", Lane: "redis-1", Protocol: "tcp", Ports: []string{"6379"},
				Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}},
			{Name: "b", Lane: "web", Protocol: "tcp", Ports: []string{"80", "8000-8010"},
				Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32"), netip.MustParsePrefix("fd00::2/128")}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `# Written by niclane-agent from a LanePolicy; changes here are lost.
version: 1
globals:
  dev: eth0
  link-rate: "10000000000bit"
  unshaped: ["10.2.0.0/16", "fd00:2::/48"]
  queues: 2
  rank: 7
lanes:
  redis-0:
    mode: shared
    queues: 2
    dscp: ef
    guarantee: "10%"
    poller: busy
    pollers: 1
    poller-nice: 5
    members: []
  redis-1:
    mode: shared
    queues: 4
    dscp: ef
    guarantee: "20%"
    poller: busy
    pollers: 2
    poller-nice: 5
    members:
      - name: a
        protocol: tcp
        ports: ["6379"]
        addrs: ["10.0.0.1"]
  web:
    mode: shared
    queues: 1
    dscp: 63
    numa: 1
    ceiling: "2000000000bit"
    members:
      - name: b
        protocol: tcp
        ports: ["80", "8000-8010"]
        addrs: ["10.0.0.2", "fd00::2"]
`
	if diff := cmp.Diff(want, string(f.Text)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if n := len(f.Intent.Lanes); n != 3 {
		t.Errorf("%d lanes", n)
	}
	if at := f.Locate("lanes.redis-1.queues"); at != "spec.classes[0].queues" {
		t.Errorf("got %s", at)
	}
}

// TestFault19Validated checks that Make refuses contradictory policies. The errors have paths in
// the policy, not in the lanes file.
func TestFault19Validated(t *testing.T) {
	for name, c := range map[string]struct {
		spec v1alpha1.LanePolicySpec
		want string
	}{
		"guarantees above the link": {v1alpha1.LanePolicySpec{Classes: []v1alpha1.Class{{Name: "a", Queues: 1,
			Capacity: 3, Tuning: v1alpha1.Tuning{Guarantee: "40%"}}}}, "spec.classes[0].guarantee"},
		"a rate in bytes": {v1alpha1.LanePolicySpec{Uplink: v1alpha1.Uplink{LinkRate: "10gbps"},
			Classes: []v1alpha1.Class{{Name: "a", Queues: 1}}}, "spec.uplink.linkRate"},
		"two lanes of one name": {v1alpha1.LanePolicySpec{Classes: []v1alpha1.Class{{Name: "a", Queues: 1},
			{Name: "a-0", Mode: v1alpha1.Shared, Queues: 1}}}, "spec.classes[1].name"},
		"a newline in a name": {v1alpha1.LanePolicySpec{Classes: []v1alpha1.Class{{Name: "a\n  b:", Queues: 1}}},
			"found the name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Make("k.yaml", &c.spec, Node{Device: "eth0"})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	if _, err := Make("k.yaml", &v1alpha1.LanePolicySpec{Classes: []v1alpha1.Class{{Name: "a", Queues: 1}}},
		Node{}); err == nil || !strings.Contains(err.Error(), "InternalIP") {
		t.Errorf("without a device: %v", err)
	}
}

// TestCeilingAboveLink checks the ceiling of a pod with an egress bandwidth above the link's rate:
// it becomes the link's rate. The annotation allows up to 1P (1e15 bit/s).
func TestCeilingAboveLink(t *testing.T) {
	for _, rate := range []v1alpha1.Rate{"", "5G"} {
		for bits, want := range map[uint64]string{1e9: "1000000000bit", 25e9: "10000000000bit",
			1e15: "10000000000bit"} {
			if rate != "" {
				want = strings.Replace(want, "10000000000bit", "5000000000bit", 1)
			}
			spec := &v1alpha1.LanePolicySpec{Uplink: v1alpha1.Uplink{LinkRate: rate, Queues: 2},
				Classes: []v1alpha1.Class{{Name: "cache", Queues: 2, Capacity: 1}}}
			f, err := Make("k.yaml", spec,
				Node{Device: "eth0", Link: 10e9, Ceilings: map[string]uint64{"cache-0": bits}})
			if err != nil || !strings.Contains(string(f.Text), `ceiling: "`+want+`"`) {
				t.Errorf("linkRate %q, %d bit/s: %v, want %s in\n%s", rate, bits, err, want, f.Text)
			}
		}
	}
}

// TestFault7SeveralUnits checks a container that asks for two queue sets. It gets both as one lane,
// or an error if they are not consecutive. It never gets only one of them.
func TestFault7SeveralUnits(t *testing.T) {
	j, err := Join("redis", []string{"redis-3", "redis-2"})
	if want := (Joining{"redis", 2, 2}); j != want || err != nil {
		t.Errorf("got %v, %v, want %v", j, err, want)
	}
	if l := Leader([]Joining{j}, "redis", "redis-3"); l != "redis-2" {
		t.Errorf("got %s", l)
	}
	if _, err := Join("redis", []string{"redis-0", "redis-2"}); err == nil ||
		!strings.Contains(err.Error(), "are not consecutive") {
		t.Errorf("got %v", err)
	}
	for _, id := range []string{"redis-01", "redis--1", "redis-", "redis-x", "web-0", "redis-0-0"} {
		if n := UnitNumber("redis", id); n >= 0 {
			t.Errorf("%s: got %d", id, n)
		}
	}
}

// TestFault13ClassesInUse checks that a new policy does not change the queues, sets and device of
// classes that have pods.
func TestFault13ClassesInUse(t *testing.T) {
	applied := &v1alpha1.LanePolicySpec{
		Uplink: v1alpha1.Uplink{Dev: "eth0"},
		Classes: []v1alpha1.Class{{Name: "redis", Queues: 2, Capacity: 4}, {Name: "web", Mode: v1alpha1.Shared, Queues: 1},
			{Name: "free", Queues: 1}},
	}
	wanted := &v1alpha1.LanePolicySpec{
		Uplink:  v1alpha1.Uplink{Dev: "eth1"},
		Classes: []v1alpha1.Class{{Name: "redis", Queues: 4, Capacity: 1, Tuning: v1alpha1.Tuning{Guarantee: "5%"}}},
	}
	use := Use{"redis": {{"redis-2", "default/r"}}, "web": {{"web-0", "default/w"}}}
	got, held := Keep(applied, wanted, use)
	want := &v1alpha1.LanePolicySpec{
		Uplink: v1alpha1.Uplink{Dev: "eth0"},
		Classes: []v1alpha1.Class{
			{Name: "redis", Queues: 2, Capacity: 3, Tuning: v1alpha1.Tuning{Guarantee: "5%"}},
			{Name: "web", Mode: v1alpha1.Shared, Queues: 1},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for class, part := range map[string]string{"": "default/r", "redis": "queues 2, not 4, capacity 3, not 1",
		"web": "default/w"} {
		if !strings.Contains(held[class], part) {
			t.Errorf("%q: got %q, want something with %q", class, held[class], part)
		}
	}
	if wanted.Classes[0].Queues != 4 {
		t.Error("the wanted policy was changed")
	}
	got, held = Keep(applied, wanted, nil)
	if diff := cmp.Diff(wanted, got); diff != "" || len(held) > 0 {
		t.Errorf("without pods: %s %v", diff, held)
	}
}

// TestFault16NoPatchedModules checks that go.mod replaces no module of others by a patched copy.
func TestFault16NoPatchedModules(t *testing.T) {
	b, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		if strings.Contains(line, "=>") && line != "replace github.com/niclane/niclane => ../" ||
			strings.Contains(line, "k8s.io/kubernetes ") {
			t.Errorf("go.mod: %s", line)
		}
	}
}
