// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHome(t *testing.T) {
	nodes := [][]int{{0, 1, 4, 5}, {2, 3, 6, 7}}
	for _, tt := range []struct {
		name string
		cpus []int
		want int
	}{
		{"one processor", []int{5}, 0},
		{"all of a node", []int{2, 3, 6, 7, 2}, 1},
		{"of two nodes", []int{1, 2}, -1},
		{"one of no node", []int{1, 8}, -1},
		{"none", nil, -1},
	} {
		if got := home(nodes, tt.cpus); got != tt.want {
			t.Errorf("%s: node %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestTablesByNode: for any numbers of queues and listeners, connections stay on the node where
// they arrive.
func TestTablesByNode(t *testing.T) {
	const a, b = "0-1", "2-3"
	tests := []struct {
		name   string
		queues []int // by processor
		ls     []Listening
		want   [][]int // listeners by queue
		placed int
	}{
		{
			"one listener each, served by any thread",
			[]int{0, 1, 2, 3},
			[]Listening{{CPU: unknown, Home: a}, {CPU: unknown, Home: b}},
			[][]int{{0}, {0}, {1}, {1}}, 2,
		},
		{
			"workers that are pinned, nearer ones first",
			[]int{0, 1, 2},
			[]Listening{{CPU: 1, Home: a}, {CPU: 0, Home: a}, {CPU: 3, Home: b}},
			[][]int{{1}, {0}, {2}}, 3,
		},
		{
			"a node without a listener, and one without a queue",
			[]int{0, 1},
			[]Listening{{CPU: unknown, Home: b}},
			[][]int{nil, nil}, 1,
		},
		{
			"a queue and a listener that are nowhere",
			[]int{unknown, 2},
			[]Listening{{CPU: unknown}, {CPU: unknown, Home: b}},
			[][]int{nil, {1}}, 1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ld := leader{record: &Record{Lane: Lane{Nodes: [][]int{{0, 1}, {2, 3}}}}}
			for i, cpu := range tt.queues {
				ld.queues = append(ld.queues, QueueCPU{Index: 7, Queue: i, CPU: cpu})
			}
			s, placed := ld.tables(tt.ls)
			// Compare which listeners a list has, not how often.
			got := make([][]int, len(s.lists))
			for i, list := range s.lists {
				got[i] = shares(list)
			}
			want := make([][]int, len(tt.want))
			for i, list := range tt.want {
				want[i] = shares(list)
			}
			if diff := cmp.Diff(want, got); diff != "" || placed != tt.placed {
				t.Errorf("%d placed, want %d; (-want +got):\n%s", placed, tt.placed, diff)
			}
		})
	}
}

// TestLinesByNode: for a listener without a known processor, the text names the processors of its
// node.
func TestLinesByNode(t *testing.T) {
	g := ListenGroup{Led: true, Listeners: []Listening{
		{CPU: unknown, Home: "0-1", PID: 7, Why: "process 7 has 4 threads"}, {CPU: 2, Home: "2-3", PID: 8},
		{CPU: unknown, Home: "2-3"},
	}}
	want := []string{"  any of processors 0-1: process 7", "  processor 2: process 8", "  any of processors 2-3"}
	if diff := cmp.Diff(want, g.Lines()[1:]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// shares returns the listeners of a list, each once, in their order.
func shares(list []int) []int {
	var out []int
	for _, l := range list {
		if len(out) == 0 || out[len(out)-1] != l {
			out = append(out, l)
		}
	}
	return out
}
