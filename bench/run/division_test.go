// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/part/nodes"
)

const gib = 1 << 30

// twoSockets returns a machine with a card on the first node.
func twoSockets() nodes.Machine {
	return nodes.Machine{
		Nodes: []numa.Node{
			{ID: 0, CPUs: []int{0, 1, 2, 3}, Memory: gib, Distance: map[int]int{0: 10, 1: 21}},
			{ID: 1, CPUs: []int{4, 5, 6, 7}, Memory: gib, Distance: map[int]int{0: 21, 1: 10}},
		},
		Devices: []numa.Device{{Name: "eth0", Node: 0}},
	}
}

func TestDivide(t *testing.T) {
	one := nodes.Machine{Nodes: []numa.Node{{CPUs: []int{0, 1}, Memory: gib}},
		Devices: []numa.Device{{Name: "eth0", Node: -1}}}
	cxl := twoSockets()
	cxl.Nodes = append(cxl.Nodes, numa.Node{ID: 2, Memory: gib})
	bare := twoSockets()
	bare.Nodes[1].Memory, bare.Nodes[1].Offline = 0, []int{8}
	cards := twoSockets()
	cards.Devices = append(cards.Devices, numa.Device{Name: "eth1", Node: 1})
	for _, tt := range []struct {
		name    string
		machine nodes.Machine
		cpus    []int
		want    string // node: processors, memory, arrival; ...
		others  []int
		notes   []string
	}{
		{"two sockets", twoSockets(), []int{1, 2, 3, 4, 5, 6, 7},
			"0: [1 2 3] [0] [0 1 2 3]; 1: [4 5 6 7] [1] [4 5 6 7]", nil,
			[]string{"no card is on node 1: packets for its instance cross from a card of another node"}},
		{"a card each", cards, []int{1, 5}, "0: [1] [0] [0 1 2 3]; 1: [5] [1] [4 5 6 7]", nil, nil},
		{"the server on one", twoSockets(), []int{5, 6}, "1: [5 6] [1] [4 5 6 7]", []int{0, 1, 2, 3},
			[]string{"node 0 gets no instance: the server has none of its processors (0-3)",
				"there is one node with processors for it: one instance, nothing is divided"}},
		{"one node", one, []int{0, 1}, "0: [0 1] [0] [0 1]", nil,
			[]string{"there is one node with processors for it: one instance, nothing is divided"}},
		{"a node without memory, and offline", bare, []int{0, 4}, "0: [0] [0] [0 1 2 3]; 1: [4] [0] [4 5 6 7]", nil,
			[]string{
				"node 1: processors 8 are offline", "node 1 has no memory of its own: its instance gets node 0's",
				"no card is on node 1: packets for its instance cross from a card of another node"}},
		{"memory alone", cxl, []int{0, 4}, "0: [0] [0] [0 1 2 3]; 1: [4] [1] [4 5 6 7]", nil, []string{
			"node 2 gets no instance: it has memory and no processors",
			"no card is on node 1: packets for its instance cross from a card of another node"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := divide(tt.machine, tt.cpus, 8443)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, x := range d.instances {
				got = append(got, fmt.Sprintf("%d: %v %v %v", x.Node, x.CPUs, x.Mems, d.arrival[i]))
			}
			if s := strings.Join(got, "; "); s != tt.want {
				t.Errorf("%s, want %s", s, tt.want)
			}
			if diff := cmp.Diff(tt.notes, d.notes); diff != "" || !slices.Equal(d.others, tt.others) {
				t.Errorf("others %v, notes (-want +got)\n%s", d.others, diff)
			}
		})
	}
	_, err := divide(twoSockets(), []int{64}, 8443)
	errtest.Says(t, "a processor that there is not", err, "no node has processors for an instance")
}

const serverLanes = `version: 1
globals: {dev: eth0}
lanes:
  web: {queues: 2, ports: [8443], cgroup: /server}
  dns: {protocol: udp, queues: 1, ports: [53]}
`

// TestLanesAreDivided: only the server's lane is divided, over the server's processors.
func TestLanesAreDivided(t *testing.T) {
	cpus := []int{1, 2, 3, 5, 6, 7}
	d, err := divide(twoSockets(), cpus, 8443)
	if err != nil {
		t.Fatal(err)
	}
	text, notes, err := d.lanes(serverLanes, cpus, 8443)
	if err != nil {
		t.Fatal(err)
	}
	want := "version: 1\nglobals:\n  dev: eth0\nlanes:\n  web:\n    queues: 4\n    ports:\n      - 8443\n    cpus: " +
		"1-2,5-6\n  dns:\n    protocol: udp\n    queues: 1\n    ports:\n      - 53\n"
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := strings.Join(notes, "; "); !strings.Contains(got, "control group /server is left out") {
		t.Errorf("notes %s", got)
	}
	// The only lane does not have the server's port. It is divided nevertheless.
	free := strings.NewReplacer("ports: [8443], cgroup: /server", "ports: [1]",
		"  dns: {protocol: udp, queues: 1, ports: [53]}\n", "").Replace(serverLanes)
	if text, _, err := d.lanes(free, cpus, 8443); err != nil || !strings.Contains(text, "cpus: 1-2,5-6") {
		t.Errorf("the only lane: %v\n%s", err, text)
	}
	other := strings.Replace(serverLanes, "8443", "80", 1)
	if text, notes, err := d.lanes(other, cpus, 8443); err != nil || text != other || len(notes) != 1 {
		t.Errorf("no lane has the port: %v, %q\n%s", err, notes, text)
	}
	single, err := divide(twoSockets(), []int{1}, 8443)
	if err != nil {
		t.Fatal(err)
	}
	if text, notes, err := single.lanes(serverLanes, []int{1}, 8443); err != nil || text != serverLanes ||
		notes != nil {
		t.Errorf("one instance: %v, %q\n%s", err, notes, text)
	}
}

// TestHalves: if possible, the SUT and the other hosts each get processors of every node.
func TestHalves(t *testing.T) {
	smt := twoSockets().Nodes
	smt[0].CPUs, smt[1].CPUs = []int{0, 1, 4, 5}, []int{2, 3, 6}
	single := twoSockets().Nodes
	single[1].CPUs = []int{4}
	for name, tt := range map[string]struct {
		nodes        []numa.Node
		upper, lower []int
	}{
		"two sockets":      {twoSockets().Nodes, []int{2, 3, 6, 7}, []int{0, 1, 4, 5}},
		"numbered in turn": {smt, []int{3, 4, 5, 6}, []int{0, 1, 2}},
		"and memory alone": {append(twoSockets().Nodes, numa.Node{ID: 2, Memory: gib}), []int{2, 3, 6, 7},
			[]int{0, 1, 4, 5}},
		"one processor on a node":   {single, nil, nil},
		"one node: the lab chooses": {twoSockets().Nodes[:1], nil, nil},
	} {
		upper, lower := halves(tt.nodes)
		if !slices.Equal(upper, tt.upper) || !slices.Equal(lower, tt.lower) {
			t.Errorf("%s: %v and %v, want %v and %v", name, upper, lower, tt.upper, tt.lower)
		}
	}
}
