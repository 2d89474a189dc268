// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"path"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// fileMeaning says what the changed value of a file means for the lanes.
func (c *check) fileMeaning(o device.File, want, found device.Object) string {
	was, _ := want.(device.File)
	now, there := found.(device.File)
	before, _, _ := listed(was)
	after, _, _ := listed(now)
	extra, missing := without(after, before), without(before, after)
	dev, q := c.deviceOf(o), c.queueOf(o)
	owner := named(c.ownerOf(dev, q))
	if !there {
		if q >= 0 {
			return fmt.Sprintf("queue %d of %s is gone, or cannot be set any more", q, owner)
		}
		return "it does not exist any more"
	}
	switch path.Base(o.Path) {
	case "xps_rxqs":
		return c.rxqsMeaning(dev, q, extra, missing)
	case "xps_cpus":
		if len(extra) > 0 {
			return fmt.Sprintf("packets without a receive queue that processors %s send also leave by transmit "+
				"queue %d (%s)",
				device.FormatCPUList(extra), q, owner)
		}
		return fmt.Sprintf("packets without a receive queue that processors %s send leave by other queues than %d, "+
			"and by any queue, the lanes' included, if no queue is set for these processors",
			device.FormatCPUList(missing), q)
	case "rps_cpus", "rps_flow_cnt":
		if path.Base(o.Path) == "rps_flow_cnt" {
			return fmt.Sprintf("packets of receive queue %d (%s) are handed on to the processor where their "+
				"application ran last", q, owner)
		}
		return fmt.Sprintf("packets of receive queue %d (%s) are handed on to processors %s before the stack sees them",
			q, owner, listOr(after, "none"))
	case "smp_affinity_list":
		_, irq := c.irqOf(o.Path)
		return fmt.Sprintf("interrupt %s moved: queue %d (%s) is served on processors %s", irq.Name, q, owner,
			listOr(after, "none"))
	case "tx_maxrate":
		return fmt.Sprintf("transmit queue %d (%s) may send %s Mbit/s (0: no limit), not the lane's ceiling", q,
			owner, strings.TrimSpace(now.Value))
	case "threaded":
		if strings.TrimSpace(now.Value) == "0" {
			return "no NAPI of " + dev + " has a kernel thread any more: the lanes' packets are polled wherever " +
				"interrupts and senders run"
		}
		return "the kernel threads of the NAPIs of " + dev + " poll in another way than the lanes need"
	case "tx_queue_len":
		return "the FIFOs that the kernel makes on " + dev + " from now on hold this number of packets; with 0 they " +
			"drop every packet"
	case "cpuset.cpus":
		return fmt.Sprintf("processes of %s run on processors %s", path.Dir(o.Path), listOr(after, "of their parent"))
	case "cpuset.mems":
		return fmt.Sprintf("processes of %s take memory from nodes %s", path.Dir(o.Path),
			listOr(after, "of their parent"))
	}
	if strings.HasPrefix(o.Path, "/proc/sys/") {
		return "the setting that the lanes file asks for does not hold"
	}
	return "not as it was"
}

func (c *check) rxqsMeaning(dev string, q int, extra, missing []int) string {
	var parts []string
	if len(extra) > 0 {
		parts = append(parts, fmt.Sprintf("answers to packets of receive queues %s (%s) leave by transmit queue "+
			"%d (%s)",
			device.FormatCPUList(extra), c.owners(dev, extra), q, named(c.ownerOf(dev, q))))
	}
	if len(missing) > 0 {
		parts = append(parts, fmt.Sprintf("answers to packets of receive queues %s (%s) leave by another queue than "+
			"%d, among other packets",
			device.FormatCPUList(missing), c.owners(dev, missing), q))
	}
	return strings.Join(parts, "; ")
}

func listOr(ids []int, none string) string {
	if len(ids) == 0 {
		return none
	}
	return device.FormatCPUList(ids)
}
