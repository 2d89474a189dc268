// SPDX-License-Identifier: Apache-2.0

package labtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/internal/testing/must"
)

// Nodes are two NUMA nodes with one CPU each. They are the machine's own nodes or simulated ones.
type Nodes struct {
	// CPUs has one CPU of each node. Node has the node of each CPU. Mem has, for each node, the node
	// that gives it memory.
	CPUs      []int
	Node, Mem map[int]int
	// Fake is a directory with simulated nodes, which Shown mounts over /sys/devices/system/node. It
	// is "" if the machine has two nodes.
	Fake string
}

// TwoNodes returns two nodes. If the machine has fewer, it writes two simulated nodes into dir; one
// of them has no memory. It skips the test if there is only one CPU.
func TwoNodes(t *testing.T, dir string) *Nodes {
	t.Helper()
	n := &Nodes{Node: map[int]int{}, Mem: map[int]int{}}
	nodes, err := numa.Sys("/").Nodes()
	must.Do(t, err)
	var with []numa.Node
	var online []int
	for _, x := range nodes {
		online = append(online, x.CPUs...)
		if len(x.CPUs) > 0 && x.Memory > 0 {
			with = append(with, x)
		}
	}
	if len(with) > 1 {
		for _, x := range with[:2] {
			n.CPUs, n.Node[x.CPUs[0]], n.Mem[x.ID] = append(n.CPUs, x.CPUs[0]), x.ID, x.ID
		}
		return n
	}
	if len(online) < 2 {
		t.Skip("one processor: it is on one node")
	}
	n.CPUs, n.Fake = online[:2], filepath.Join(dir, "node")
	n.Node[online[0]], n.Node[online[1]] = 0, 1
	for id, memory := range []int{1 << 20, 0} {
		below := fmt.Sprintf("node%d/", id)
		n.write(t, below+"cpulist", fmt.Sprintln(online[id]))
		n.write(t, below+"meminfo", fmt.Sprintf("Node %d MemTotal: %d kB\n", id, memory))
		n.write(t, below+"distance", []string{"10 21\n", "21 10\n"}[id])
		n.Mem[id] = 0
	}
	n.write(t, "online", "0-1\n")
	return n
}

func (n *Nodes) write(t *testing.T, name, text string) {
	t.Helper()
	name = filepath.Join(n.Fake, name)
	must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)))
}

// Shown returns a command line that runs argv. argv then sees these nodes.
func (n *Nodes) Shown(argv ...string) []string {
	if n.Fake == "" {
		return argv
	}
	return append([]string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /sys/devices/system/node && exec "$@"`,
		n.Fake}, argv...)
}
