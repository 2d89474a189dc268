// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"

	"github.com/niclane/niclane/lane/device"
)

// Place restricts the calling thread to processors and to the memory of NUMA nodes. A program that
// the thread executes inherits this. Place is for an instance of an application whose lane is set
// up already. The caller must have called runtime.LockOSThread.
func Place(cpus, mems []int) error {
	if err := setAffinity(0, cpus); err != nil {
		return err
	}
	return bind(mems)
}

// findHomes sets the node of each listener. All threads that could serve the listener must run on
// that node: all threads of the processes that have the listener open. So the node can be known
// even if the serving thread is not.
func (ld *leader) findHomes(ls []Listening, d descriptors) {
	for i := range ls {
		var cpus []int
		for _, h := range d.holders[ls[i].Inode] {
			for _, tid := range threads(h.pid) {
				if on, err := affinity(tid); err == nil {
					cpus = append(cpus, on...)
				}
			}
		}
		if n := home(ld.record.Lane.Nodes, cpus); n >= 0 {
			ls[i].Home = homeName(ld.record.Lane.Nodes[n])
		}
	}
}

// homeName returns a node's name for Listening.Home: the list of its processors.
func homeName(node []int) string { return device.FormatCPUList(node) }

// home returns the index of the node that contains all cpus, -1 if none does.
func home(nodes [][]int, cpus []int) int {
	if len(cpus) == 0 {
		return -1
	}
	return slices.IndexFunc(nodes, func(node []int) bool {
		return !slices.ContainsFunc(cpus, func(cpu int) bool { return !slices.Contains(node, cpu) })
	})
}

// tablesByNode distributes the queues of each node over the listeners of that node. A queue on a
// node without listeners, or on no known node, gets no list: the kernel's hash chooses for it.
func (ld *leader) tablesByNode(ls []Listening) (s spreading, placed int) {
	s.queues, s.lists = ld.queues, make([][]int, len(ld.queues))
	for _, q := range ld.queues {
		if i := uint32(q.Index); !slices.Contains(s.devices, i) {
			s.devices = append(s.devices, i)
		}
	}
	for _, node := range ld.record.Lane.Nodes {
		var queues, queueCPUs, listeners, listenerCPUs []int
		for i, q := range ld.queues {
			if slices.Contains(node, q.CPU) {
				queues, queueCPUs = append(queues, i), append(queueCPUs, q.CPU)
			}
		}
		for i, l := range ls {
			if l.Home != homeName(node) {
				continue
			}
			placed++
			listeners = append(listeners, i)
			// A listener that may run anywhere on the node counts as near to each of the node's queues.
			cpu := l.CPU
			if cpu == unknown && len(queueCPUs) > 0 {
				cpu = queueCPUs[0]
			}
			listenerCPUs = append(listenerCPUs, cpu)
		}
		for i, list := range spread(queueCPUs, listenerCPUs) {
			for _, l := range list {
				s.lists[queues[i]] = append(s.lists[queues[i]], listeners[l])
			}
		}
	}
	return s, placed
}
