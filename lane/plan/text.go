// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/niclane/niclane/lane/device"
)

// WriteText prints the steps for people: what, why, who asked for it, and the
// command line that would do the same.
func WriteText(w io.Writer, steps []Step) {
	part := device.Part("")
	for i, s := range steps {
		if s.Part != part {
			part = s.Part
			fmt.Fprintf(w, "%s\n", part)
		}
		mark := ""
		if s.Disruptive {
			mark = "  (disruptive: packets in flight can be lost)"
		}
		fmt.Fprintf(w, "%4d  %s  [%s]%s\n", i+1, s.Reason, s.Cause, mark)
		if s.Old != nil && s.New != nil {
			fmt.Fprintf(w, "      %s → %s\n", Brief(s.Old), Brief(s.New))
		}
		for _, c := range s.Commands() {
			fmt.Fprintf(w, "      $ %s\n", c)
		}
	}
}

// WriteChoices prints how each part of a lane is made, and why the better
// realisations are out.
func WriteChoices(w io.Writer, choices []Choice) {
	for _, c := range choices {
		name := c.Realisation
		if name == "" {
			name = "none"
		}
		fmt.Fprintf(w, "%-11s %-18s %s\n", c.Part, name, c.Reason)
		for _, r := range c.Rejected {
			fmt.Fprintf(w, "%-11s   not %s: %s\n", "", r.Realisation, r.Why)
		}
	}
}

// Brief gives an object's value in a few words, for a line "old → new".
func Brief(o device.Object) string {
	switch v := o.(type) {
	case nil:
		return "absent"
	case device.File:
		return fmt.Sprintf("%q", v.Value)
	case device.Qdisc:
		if v.Type == "mqprio" {
			text := fmt.Sprintf("mqprio %s queues %s", v.Handle, v.Queues)
			if v.Mode != "" {
				text += " hw " + hardware(v)
			}
			return text
		}
		return rootText(v) + " " + v.Handle
	case device.Class:
		if v.Offload {
			return fmt.Sprintf("rate %s ceil %s", rateText(v.Rate), rateText(v.Ceil))
		}
		return fmt.Sprintf("rate %s ceil %s prio %d", rateText(v.Rate), rateText(v.Ceil), v.Prio)
	case device.Flower:
		if v.Pref != 0 {
			return fmt.Sprintf("traffic class %d by preference %d", v.Class, v.Pref)
		}
		return fmt.Sprintf("traffic class %d", v.Class)
	case device.Filter:
		return v.Program
	case device.FilterEntry:
		switch {
		case len(v.Queues) == 0:
			return v.Priority
		case v.Priority == "":
			return "queues " + device.FormatCPUList(v.Queues)
		}
		return v.Priority + ", queues " + device.FormatCPUList(v.Queues)
	case device.Shaper:
		if v.Other {
			return "more than rates"
		}
		return fmt.Sprintf("at least %s, at most %s", rateText(v.Min), orNone(v.Max))
	case device.CgroupPriority:
		return v.Priority
	case device.CgroupClass:
		if v.Priority == "" {
			return "half made"
		}
		return v.Priority
	case device.FilterDefault:
		if len(v.Queues) == 0 {
			return "priorities " + device.FormatCPUList(v.Lanes) + " are lanes'"
		}
		return "queues " + device.FormatCPUList(v.Queues)
	case device.XDP:
		return v.Program + " (" + v.Mode + ")"
	case device.CPUQueue:
		return fmt.Sprintf("%d packets", v.Size)
	case device.CPUThread:
		return scheduled(v.Policy, v.Priority, v.Nice, v.SchedAttr)
	case device.CPULane:
		return "processors " + device.FormatCPUList(v.CPUs)
	case device.XDPEntry:
		return fmt.Sprintf("lane %d", v.Lane)
	case device.RSSTable:
		return "queues " + queueSet(v.Queues)
	case device.Rule:
		return ruleTarget(v)
	case device.DriverParam:
		return v.Value
	case device.Affinity:
		return "CPUs " + strings.Join(v.CPUs, " and ")
	case device.NAPIConfig:
		return fmt.Sprintf("threaded %s, defer-hard-irqs %d, gro-flush-timeout %d ns", v.Threaded, v.DeferHardIRQs, v.GROFlushTimeout)
	case device.Poller:
		how := scheduled(v.Policy, v.Priority, v.Nice, device.SchedAttr{})
		return fmt.Sprintf("queues %s, CPUs %s, %s, sleeps after %v", device.FormatCPUList(v.Queues), device.FormatCPUList(v.CPUs), how, time.Duration(v.Timeout))
	case device.Thread:
		return "CPUs " + device.FormatCPUList(v.CPUs) + ", " + scheduled(v.Policy, v.Priority, v.Nice, v.SchedAttr)
	case device.Channels:
		return fmt.Sprintf("rx %d tx %d combined %d", v.RX, v.TX, v.Combined)
	case device.Coalesce:
		return fmt.Sprintf("rx-usecs %d tx-usecs %d adaptive %s/%s", v.RxUsecs, v.TxUsecs, onOff(v.RxAdapt), onOff(v.TxAdapt))
	case device.Ring:
		return fmt.Sprintf("rx %d tx %d", v.RX, v.TX)
	case device.Feature:
		return onOff(v.On)
	}
	return strings.TrimSpace(fmt.Sprint(o))
}

func orNone(rate uint64) string {
	if rate == 0 {
		return "any rate"
	}
	return rateText(rate)
}

// queueSet gives the distinct queues of an indirection table as a list.
func queueSet(table []int) string {
	seen := map[int]bool{}
	most := 0
	for _, q := range table {
		seen[q] = true
		most = max(most, q)
	}
	var ids []int
	for q := range most + 1 {
		if seen[q] {
			ids = append(ids, q)
		}
	}
	return device.FormatCPUList(ids)
}
