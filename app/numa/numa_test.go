// SPDX-License-Identifier: Apache-2.0

package numa_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/lane/observe"
)

func TestNodes(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  []numa.Node
		err   string
	}{
		{
			name: "a hole, a node without memory, one without processors, one offline",
			files: map[string]string{
				"cpu/online": "0-2", "cpu/present": "0-3", "node/online": "0,2-3",
				"node/node0/cpulist": "0-1", "node/node0/meminfo": "Node 0 MemTotal: 8 kB\n",
				"node/node0/distance": "10 21 14",
				"node/node2/cpulist":  "2",
				"node/node2/meminfo":  "\nNode 2 MemTotal:       0 kB\nNode 2 MemFree: 0 kB\n",
				"node/node2/distance": "21 10 24",
				"node/node3/cpulist":  "", "node/node3/meminfo": "Node 3 MemTotal: 16 kB\n",
				"node/node3/distance":    "14 24 10",
				"cpu/cpu3/node2/cpulist": "",
			},
			want: []numa.Node{
				{ID: 0, CPUs: []int{0, 1}, Memory: 8 << 10, Distance: map[int]int{0: 10, 2: 21, 3: 14}},
				{ID: 2, CPUs: []int{2}, Offline: []int{3}, Distance: map[int]int{0: 21, 2: 10, 3: 24}},
				{ID: 3, Memory: 16 << 10, Distance: map[int]int{0: 14, 2: 24, 3: 10}},
			},
		},
		{
			name:  "a kernel without NUMA",
			files: map[string]string{"cpu/online": "0,2", "cpu/present": "0-2"},
			want:  []numa.Node{{ID: 0, CPUs: []int{0, 2}, Offline: []int{1}, Memory: 1, Distance: map[int]int{0: 10}}},
		},
		{
			name: "distances of more nodes than there are",
			files: map[string]string{
				"cpu/online": "0", "cpu/present": "0", "node/online": "0",
				"node/node0/cpulist": "0", "node/node0/meminfo": "Node 0 MemTotal: 8 kB\n",
				"node/node0/distance": "10 20",
			},
			err: "distance",
		},
		{
			name: "no total",
			files: map[string]string{
				"cpu/online": "0", "cpu/present": "0", "node/online": "0",
				"node/node0/cpulist": "0", "node/node0/meminfo": "Node 0 MemFree: 8 kB\n",
			},
			err: "no MemTotal",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range tt.files {
				path := filepath.Join(root, "sys/devices/system", name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := numa.Sys(root).Nodes()
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestHere: the nodes of this machine have memory, and each online processor is on exactly one
// node.
func TestHere(t *testing.T) {
	nodes, err := numa.Sys("/").Nodes()
	if err != nil {
		t.Fatal(err)
	}
	var cpus []int
	memory := uint64(0)
	for _, n := range nodes {
		cpus = append(cpus, n.CPUs...)
		memory += n.Memory
	}
	slices.Sort(cpus)
	st, err := observe.Observe(t.Context(), observe.Options{Devices: []string{"lo"}, NoProbes: true})
	if err != nil {
		t.Skip(err)
	}
	if diff := cmp.Diff(st.OnlineCPUs(), cpus); diff != "" {
		t.Errorf("processors (-online +of nodes):\n%s", diff)
	}
	if memory == 0 {
		t.Error("no memory")
	}
	if node, err := numa.Sys("/").Storage("/proc"); node != -1 || err != nil {
		t.Errorf("proc is on node %d, %v", node, err)
	}
	if _, err := numa.Sys("/").Storage("/nothing/there"); !os.IsNotExist(err) {
		t.Errorf("a path that is not there: %v", err)
	}
}
