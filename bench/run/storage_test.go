// SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/bench/agent"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/lab"
)

// TestStorageOfInstances: each instance has the directory of its own node. If the drive is on
// another node, there is a note.
func TestStorageOfInstances(t *testing.T) {
	drives := func(a, b int) []numa.Storage {
		return []numa.Storage{{Path: "/srv/a/run", Node: a}, {Path: "/srv/b/run", Node: b}}
	}
	both := map[int]string{0: "/srv/a/run", 1: "/srv/b/run"}
	const crosses = "no card is on node 1: packets for its instance cross from a card of another node"
	for _, tt := range []struct {
		name   string
		stored map[int]string
		drives []numa.Storage
		cpus   []int
		want   []string // $storage of each instance
		notes  []string
		err    string
	}{
		{"of their nodes", both, drives(0, 1), []int{1, 5}, []string{"/srv/a/run", "/srv/b/run"}, []string{crosses},
			""},
		{"the other way round", map[int]string{1: "/srv/a/run", 0: "/srv/b/run"}, drives(1, 0), []int{1, 5},
			[]string{"/srv/b/run", "/srv/a/run"}, []string{crosses}, ""},
		{"none", nil, nil, []int{1, 5}, []string{"/scratch/instance0", "/scratch/instance1"}, []string{crosses}, ""},
		{"of another node", both, drives(0, 0), []int{1, 5}, []string{"/srv/a/run", "/srv/b/run"},
			[]string{crosses, "storage /srv/b of node 1: its drive is on node 0, reads cross from there"}, ""},
		{"of no node", both, drives(-1, 1), []int{1, 5}, []string{"/srv/a/run", "/srv/b/run"},
			[]string{crosses, "storage /srv/a of node 0: not on a drive of one known NUMA node"}, ""},
		{"nobody has looked", both, nil, []int{5}, []string{"/srv/b/run"}, []string{
			"node 0 gets no instance: the server has none of its processors (0-3)",
			"there is one node with processors for it: one instance, nothing is divided",
			"storage /srv/b of node 1: not on a drive of one known NUMA node",
			"storage /srv/a of node 0: there is no instance"}, ""},
		{"one too few", map[int]string{0: "/srv/a/run"}, drives(0, 1), []int{1, 5}, nil, nil,
			"server.split: sut.storage of the hosts file has nothing for node 1, want a directory for each node " +
				"that has an instance"},
		{"of other nodes", map[int]string{2: "/srv/a/run", 3: "/srv/b/run"}, drives(0, 1), []int{1, 5}, nil, nil,
			"has nothing for node 0, 1, want"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := twoSockets()
			m.Storage = tt.drives
			x, h := undivided(t, m, tt.cpus)
			h.stored = tt.stored
			r, err := x.StartServer(t.Context(), x.e.Variants[0])
			if tt.err != "" {
				if errtest.Says(t, tt.name, err, tt.err); len(h.launched) > 0 {
					t.Errorf("started %q", h.launched)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, what := range []string{"the server on node 0", "the server on node 1"} {
				if len(tt.want) == 1 {
					what = "the server"
				}
				if argv := h.places[what].argv; i < len(tt.want) && argv[4] != tt.want[i]+"/cache" {
					t.Errorf("%s: %q, want storage %s", what, argv, tt.want[i])
				}
			}
			if d := cmp.Diff(tt.notes, r.Notes); d != "" {
				t.Errorf("notes (-want +got)\n%s", d)
			}
		})
	}
}

// TestStorageOnHosts: only the SUT's agent is asked for storage, and only if instances can use
// it. The directories it makes are listed by node.
func TestStorageOnHosts(t *testing.T) {
	s := onHosts(t)
	s.h.SUT.Storage = map[int]string{3: "/srv/d", 0: "/srv/a", 1: "/srv/b"}
	if got := s.storageOn(lab.SUT); got != nil {
		t.Errorf("a server that is not split: %q", got)
	}
	s.e.Server.Split = "numa"
	if d := cmp.Diff([]string{"/srv/a", "/srv/b", "/srv/d"}, s.storageOn(lab.SUT)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if got := s.storageOn(lab.Client); got != nil {
		t.Errorf("on a client: %q", got)
	}
	s.agents[lab.SUT] = on(agent.Host{Storage: []string{"/srv/a/x", "/srv/b/x", "/srv/d/x"}})
	if d := cmp.Diff(map[int]string{0: "/srv/a/x", 1: "/srv/b/x", 3: "/srv/d/x"}, s.storage()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	s.agents[lab.SUT].Host.Storage = nil
	if got := s.storage(); len(got) > 0 {
		t.Errorf("none was made: %v", got)
	}
}
