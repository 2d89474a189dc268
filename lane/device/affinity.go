// SPDX-License-Identifier: Apache-2.0

package device

import (
	"slices"
	"strconv"
	"strings"
)

// An Affinity says on which processors the interrupts of a queue are handled.
// The numbers of interrupts are the kernel's; they come and go with the queue.
type Affinity struct {
	Dev   string `json:"dev"`
	Queue int    `json:"queue"`
	// CPUs are lists ("0-3,8"), one for each of the queue's interrupts by
	// ascending number: most cards have one, virtio_net two.
	CPUs []string `json:"cpus"`
}

// Kind implements Object.
func (Affinity) Kind() string { return "affinity" }

// Key implements Object.
func (a Affinity) Key() string { return "affinity/" + a.Dev + "/" + strconv.Itoa(a.Queue) }

// IRQPath is the file that says on which processors an interrupt is handled.
func IRQPath(number int) string { return "/proc/irq/" + strconv.Itoa(number) + "/smp_affinity_list" }

// Affinities are those of the queues that a device's interrupts serve, by what
// read gives of their files. A queue of which a file cannot be read is left out.
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

// affinities are those of the queues of a device of s. Some drivers keep the
// interrupts of queues that they had (mlx5).
func (s *State) affinities(d *Device) []Affinity {
	all := Affinities(d.Name, d.IRQs, func(path string) (string, bool) {
		f, ok := s.Files[path]
		return f.Value, ok
	})
	return slices.DeleteFunc(all, func(a Affinity) bool { return a.Queue >= max(d.RxQueues, d.TxQueues) })
}

// putAffinity writes the files of a queue's interrupts. A queue that came with
// more channels has one whose number is not known: a negative one stands for it.
func (s *State) putAffinity(a Affinity, new Object) {
	d := s.Device(a.Dev)
	if d == nil {
		return
	}
	unknown := -1 - a.Queue
	if new == nil {
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

// QueueOf returns the queue below whose directory in sysfs a file of a device
// is, -1 if it is none.
func QueueOf(path, dev string) int {
	rest, ok := strings.CutPrefix(path, "/sys/class/net/"+dev+"/queues/")
	if !ok {
		return -1
	}
	dir, _, _ := strings.Cut(rest, "/")
	_, number, _ := strings.Cut(dir, "-")
	q, err := strconv.Atoi(number)
	if err != nil {
		return -1
	}
	return q
}
