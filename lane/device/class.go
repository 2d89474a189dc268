// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"slices"
)

// A Class is an HTB class. Rates are bit/s, bursts bytes.
type Class struct {
	Dev     string `json:"dev"`
	ID      string `json:"id"`     // "1:10"
	Parent  string `json:"parent"` // "1:" or "1:1"
	Rate    uint64 `json:"rate"`
	Ceil    uint64 `json:"ceil"`
	Burst   uint32 `json:"burst"`
	CBurst  uint32 `json:"cburst"`
	Quantum uint32 `json:"quantum"`
	// Prio is 0 (first) to 7 (last).
	Prio uint32 `json:"prio"`
	// Overhead is added to the bytes of each packet.
	Overhead uint16 `json:"overhead,omitempty"`
	// Offload: the card implements the class, as it does the htb qdisc, with one transmit queue for
	// it. Quantum is then 0, because the card does not use it.
	Offload bool `json:"offload,omitempty"`
}

// Kind implements Object.
func (Class) Kind() string { return "class" }

// Key implements Object.
func (c Class) Key() string { return "class/" + c.Dev + "/" + c.ID }

// Brief implements Object.
func (c Class) Brief() string {
	if c.Offload {
		return fmt.Sprintf("rate %s ceil %s", RateText(c.Rate), RateText(c.Ceil))
	}
	return fmt.Sprintf("rate %s ceil %s prio %d%s", RateText(c.Rate), RateText(c.Ceil), c.Prio, c.overhead())
}

func (c Class) commands(change Change) []string {
	if change.New == nil {
		return one(fmt.Sprintf("tc class del dev %s classid %s", c.Dev, c.ID))
	}
	line := fmt.Sprintf("tc class %s dev %s parent %s classid %s htb rate %dbit ceil %dbit burst %d cburst %d",
		change.verb("add", "change", "del"), c.Dev, c.Parent, c.ID, c.Rate, c.Ceil, c.Burst, c.CBurst)
	if c.Offload {
		return one(line) // the kernel or the card refuses further parameters
	}
	return one(line + fmt.Sprintf(" quantum %d prio %d", c.Quantum, c.Prio) + c.overhead())
}

func (c Class) overhead() string {
	if c.Overhead == 0 {
		return ""
	}
	return fmt.Sprintf(" overhead %d", c.Overhead)
}

func (c Class) standsOn() []string {
	return []string{Class{Dev: c.Dev, ID: c.Parent}.Key(), Qdisc{Dev: c.Dev, Parent: "root"}.Key()}
}

func (c Class) equal(o Object) bool {
	b, ok := o.(Class)
	return ok && c.asKept() == b.asKept()
}

func (d *Device) putClass(c Class, next Object) {
	leaves := d.Leaves()
	replace(&d.Classes, c, next)
	d.TxQueues += d.Leaves() - leaves
}

// Kind implements Object.
func (CgroupClass) Kind() string { return "cgroup-class" }

// asKept returns c as the kernel stores it: rates in bytes/s and bursts in ticks of 64 ns.
func (c Class) asKept() Class {
	c.Rate, c.Ceil = c.Rate/8, c.Ceil/8
	c.Burst, c.CBurst = BurstTicks(c.Rate, c.Burst), BurstTicks(c.Ceil, c.CBurst)
	return c
}

// Leaves returns the number of transmit queues that the device has for offloaded HTB classes, one
// for each class without child classes. These queues come after those of the channels.
func (d *Device) Leaves() (n int) {
	for _, c := range d.Classes {
		parent := func(x Class) bool { return x.Parent == c.ID }
		if c.Offload && !slices.ContainsFunc(d.Classes, parent) {
			n++
		}
	}
	return n
}
