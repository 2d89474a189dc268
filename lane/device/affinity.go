// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// An Affinity holds the processors that handle the interrupts of a queue. The kernel assigns
// interrupt numbers when it makes a queue, so the key has the queue and no interrupt number.
type Affinity struct {
	Dev   string `json:"dev"`
	Queue int    `json:"queue"`
	// CPUs has one list ("0-3,8") for each of the queue's interrupts, in the order of the interrupt
	// numbers. Most cards have one interrupt per queue, virtio_net two.
	CPUs []string `json:"cpus"`
}

// Kind implements Object.
func (Affinity) Kind() string { return "affinity" }

// Key implements Object.
func (a Affinity) Key() string { return "affinity/" + a.Dev + "/" + strconv.Itoa(a.Queue) }

// Brief implements Object.
func (a Affinity) Brief() string { return "CPUs " + strings.Join(a.CPUs, " and ") }

func (a Affinity) commands(c Change) []string {
	if c.New == nil {
		return nil // the kernel removes it with its queue
	}
	var lines []string
	for i, cpus := range a.CPUs {
		which := ""
		if len(a.CPUs) > 1 {
			which = fmt.Sprintf(", %d of %d", i+1, len(a.CPUs))
		}
		lines = append(lines, fmt.Sprintf("echo %s > /proc/irq/<interrupt of %s rx-%d%s>/smp_affinity_list", cpus,
			a.Dev, a.Queue, which))
	}
	return lines
}

func (a Affinity) queue() int { return a.Queue }

// IRQPath returns the file with the processors that handle an interrupt.
func IRQPath(number int) string { return "/proc/irq/" + strconv.Itoa(number) + "/smp_affinity_list" }

// Affinities returns the affinity of each queue that irqs serve. read returns the content of a
// file. If a file of a queue cannot be read, the queue is left out.
func Affinities(dev string, irqs []IRQ, read func(path string) (string, bool)) []Affinity {
	byQueue := map[int]*Affinity{}
	var queues []int
	for _, i := range irqs {
		if i.Queue < 0 {
			continue
		}
		if byQueue[i.Queue] == nil {
			queues = append(queues, i.Queue)
			byQueue[i.Queue] = &Affinity{Dev: dev, Queue: i.Queue}
		}
		v, _ := read(IRQPath(i.Number))
		a := byQueue[i.Queue]
		a.CPUs = append(a.CPUs, normalFile(FileCPUList, v))
	}
	slices.Sort(queues)
	var out []Affinity
	for _, q := range queues {
		if a := byQueue[q]; !slices.Contains(a.CPUs, "") {
			out = append(out, *a)
		}
	}
	return out
}

// affinities yields the affinities of the devices' queues. It skips queues that no longer exist:
// some drivers keep their interrupts (mlx5).
func (s *State) affinities(yield func(Object)) {
	for _, d := range s.Devices {
		for _, a := range Affinities(d.Name, d.IRQs, func(path string) (string, bool) {
			f, ok := s.Files[path]
			return f.Value, ok
		}) {
			if a.Queue < max(d.RxQueues, d.TxQueues) {
				yield(a)
			}
		}
	}
}

// putAffinity writes the affinity files of a queue's interrupts. The interrupt of a new queue has
// no number yet; -1 minus the queue stands for it.
func (s *State) putAffinity(a Affinity, next Object) {
	d := s.Device(a.Dev)
	if d == nil {
		return
	}
	unknown := -1 - a.Queue
	if next == nil {
		delete(s.Files, IRQPath(unknown))
		d.IRQs = slices.DeleteFunc(slices.Clone(d.IRQs), func(i IRQ) bool { return i.Number == unknown })
		return
	}
	if !slices.ContainsFunc(d.IRQs, func(i IRQ) bool { return i.Queue == a.Queue }) {
		d.IRQs = append(slices.Clone(d.IRQs), IRQ{Number: unknown, Queue: a.Queue})
	}
	at := 0
	for _, i := range d.IRQs {
		if i.Queue == a.Queue {
			cpus := a.CPUs[min(at, len(a.CPUs)-1)]
			s.Files[IRQPath(i.Number)] = File{Path: IRQPath(i.Number), Format: FileCPUList, Value: cpus}
			at++
		}
	}
}
