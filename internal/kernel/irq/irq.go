// SPDX-License-Identifier: Apache-2.0

// Package irq finds the interrupts of a device's queues, and reads and writes their CPUs:
// device.Affinity objects. The kernel reports the interrupts if the driver links queues,
// NAPIs and interrupts (Linux 6.8). Otherwise the package uses the interrupts' names. It
// chooses no CPUs, and refuses a queue whose interrupts it does not know.
package irq

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/kernel/netdev"
	"github.com/niclane/niclane/lane/device"
)

// Files reads and writes files of procfs; package internal/kernel/hostfs implements it.
type Files interface {
	ReadFile(name string) ([]byte, error)
	ReadLink(name string) (string, error)
	WriteFile(name, value string) error
}

// Links returns a device's driver; package internal/kernel/ethtool implements it.
type Links interface {
	DriverInfo(dev string) (ethtool.DriverInfo, error)
}

// A Client reads and writes device.Affinity objects.
type Client struct {
	Files Files
	Links Links
	// Queues is nil if the kernel lacks the netdev family.
	Queues *netdev.Client
}

// Add adds the interrupt number to irqs and returns irqs. irqs were found by their names; the
// kernel has reported number and queue (-1 if it knows no queue). If irqs has the interrupt
// already, the kernel's queue replaces the queue from the name.
func Add(irqs []device.IRQ, number, queue int, name string) []device.IRQ {
	for i := range irqs {
		if irqs[i].Number == number {
			if queue >= 0 {
				irqs[i].Queue = queue
			}
			return irqs
		}
	}
	return append(irqs, device.IRQ{Number: number, Name: name, Queue: queue})
}

// device returns a device's interrupts, ascending by number.
func (c *Client) device(dev string) ([]device.IRQ, error) {
	text, err := os.ReadFile("/proc/interrupts")
	if err != nil {
		return nil, err
	}
	info, err := c.Links.DriverInfo(dev)
	if err != nil {
		return nil, err
	}
	parent := ""
	if link, err := c.Files.ReadLink("/sys/class/net/" + dev + "/device"); err == nil {
		parent = path.Base(link)
	}
	all := Parse(string(text))
	irqs := Of(all, info.Driver, dev, info.Bus, parent)
	if c.Queues == nil {
		return irqs, nil
	}
	m, err := c.Queues.Map(dev)
	if errors.Is(err, unix.EOPNOTSUPP) { // Linux 6.3 to 6.7 have the family without these commands
		return irqs, nil
	}
	if err != nil {
		return nil, err
	}
	for _, n := range m.NAPIs {
		if n.IRQ != 0 {
			irqs = Add(irqs, n.IRQ, m.RxQueue(n.ID), strings.Join(all[n.IRQ], ", "))
		}
	}
	slices.SortFunc(irqs, func(a, b device.IRQ) int { return cmp.Compare(a.Number, b.Number) })
	return irqs, nil
}

// Read returns the affinity of a queue's interrupts, or nil if none of them is known.
func (c *Client) Read(o device.Object) (device.Object, error) {
	all, err := c.ReadMany([]device.Object{o})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// ReadMany returns what Read returns, for each object. It reads each device's interrupts once.
func (c *Client) ReadMany(objects []device.Object) ([]device.Object, error) {
	out := make([]device.Object, len(objects))
	known := map[string][]device.Affinity{}
	for i, o := range objects {
		a, ok := o.(device.Affinity)
		if !ok {
			return nil, fmt.Errorf("object kind %q is not an interrupt's", o.Kind())
		}
		have, ok := known[a.Dev]
		if !ok {
			irqs, err := c.device(a.Dev)
			if err != nil && !errors.Is(err, unix.ENODEV) {
				return nil, err
			}
			have = device.Affinities(a.Dev, irqs, func(name string) (string, bool) {
				b, err := c.Files.ReadFile(name)
				return string(b), err == nil
			})
			known[a.Dev] = have
		}
		if at := slices.IndexFunc(have, func(h device.Affinity) bool { return h.Queue == a.Queue }); at >= 0 {
			out[i] = have[at]
		}
	}
	return out, nil
}

// Write moves a queue's interrupts to the CPUs of next. If next is nil, Write changes nothing,
// because the interrupts appear and disappear with their queue.
func (c *Client) Write(old, next device.Object) error {
	if next == nil {
		return nil
	}
	a, ok := next.(device.Affinity)
	if !ok {
		return fmt.Errorf("object kind %q is not an interrupt's", next.Kind())
	}
	irqs, err := c.device(a.Dev)
	if err != nil {
		return err
	}
	irqs = slices.DeleteFunc(irqs, func(i device.IRQ) bool { return i.Queue != a.Queue })
	if len(irqs) == 0 {
		return fmt.Errorf("%s: no interrupt is known to serve queue %d of %s: %w", a.Key(), a.Queue, a.Dev, unix.ENOENT)
	}
	for i, irq := range irqs {
		cpus := a.CPUs[min(i, len(a.CPUs)-1)]
		if err := c.Files.WriteFile(device.IRQPath(irq.Number), cpus); err != nil {
			return fmt.Errorf("interrupt %s of %s to processors %s: %w", irq.Name, a.Dev, cpus, err)
		}
	}
	return nil
}
