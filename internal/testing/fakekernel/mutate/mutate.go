// SPDX-License-Identifier: Apache-2.0

// Package mutate makes wrong plans from right ones. Such a wrong plan is a mutant. A good check of
// plans finds every mutant, so mutants test the check. No mutant does the same as the right plan:
// steps change places only if one needs the other, and a value changes only to one that the kernel
// treats differently.
package mutate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// A Mutant is a plan with one fault.
type Mutant struct {
	Name  string
	Steps []plan.Step
}

// All returns all mutants of a plan. The same plan always gives the same mutants.
func All(steps []plan.Step) []Mutant {
	var out []Mutant
	add := func(name string, i int, mutated []plan.Step) {
		out = append(out, Mutant{fmt.Sprintf("%s: step %d, %s", name, i+1, steps[i].Key()), mutated})
	}
	resized := slices.ContainsFunc(steps, func(s plan.Step) bool { _, ok := s.Object().(device.Channels); return ok })
	for i, s := range steps {
		// The kernel makes and removes a thread together with its NAPI. So the thread's old value does
		// not matter, and the plan does not contain its removal.
		thread, param := false, false
		switch s.Object().(type) {
		case device.Thread, device.CPUThread:
			thread = true
		case device.DriverParam: // without its old value, undo writes that of a new class, which may be equal
			thread, param = s.Old == nil, true
		}
		// The same is true of an object that belongs to a queue, if the plan changes the number of
		// channels: the kernel may not keep the object's old value.
		queue := resized && OfQueue(s.Object())
		grown := queue && s.Old == nil || OfQueue(s.Object()) && s.New == nil
		if !grown && (!thread || s.New != nil) {
			add("dropped", i, slices.Delete(slices.Clone(steps), i, i+1))
			add("turned round", i, with(steps, i, s.Inverse()))
		}
		if !grown && (!thread || s.Old != nil && s.New != nil) {
			add("doubled", i, slices.Insert(slices.Clone(steps), i, s))
		}
		if s.Old != nil && s.New != nil && !thread && !param && !queue {
			lost := s
			lost.Old = nil
			add("undo lost", i, with(steps, i, lost))
		}
		for name, v := range variants(s.Old) {
			wrong := s
			wrong.Old = v
			add("undone to another "+name, i, with(steps, i, wrong))
		}
		for name, v := range variants(s.New) {
			wrong := s
			wrong.New = v
			add("another "+name, i, with(steps, i, wrong))
		}
		for k := i + 1; k < len(steps); k++ {
			if needs(steps[k], s) {
				swapped := slices.Clone(steps)
				swapped[i], swapped[k] = steps[k], steps[i]
				add(fmt.Sprintf("swapped with step %d", k+1), i, swapped)
			}
		}
	}
	slices.SortFunc(out, func(a, b Mutant) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

func with(steps []plan.Step, i int, s plan.Step) []plan.Step {
	out := slices.Clone(steps)
	out[i] = s
	return out
}

// needs reports whether earlier must come before later. It must if later depends on an object that
// earlier makes. It also must if earlier removes queues from the default table that later uses for
// a context.
func needs(later, earlier plan.Step) bool {
	if later.New == nil || earlier.New == nil {
		// An object can be removed only after the objects that depend on it.
		return later.New == nil && earlier.New == nil && hangsOn(earlier.Old, later.Old)
	}
	return later.Old == nil && earlier.Old == nil && hangsOn(later.New, earlier.New) || fences(earlier, later)
}

// hangsOn reports whether o can exist only while on exists.
func hangsOn(o, on device.Object) bool {
	switch on := on.(type) {
	case device.Qdisc:
		switch o := o.(type) {
		case device.Class:
			return o.Dev == on.Dev && on.Parent == "root"
		case device.Qdisc:
			return o.Dev == on.Dev && (on.Type == "mq" || on.Type == "mqprio") && o.Parent != "root" && o.Type == "tbf"
		case device.Flower:
			return o.Dev == on.Dev && (on.Parent == "clsact" || on.Type == "mqprio")
		case device.Filter:
			return o.Dev == on.Dev && on.Parent == "clsact" && o.Parent != device.AttachTCXEgress
		}
	case device.Class:
		switch o := o.(type) {
		case device.Class:
			return o.Dev == on.Dev && o.Parent == on.ID
		case device.Qdisc:
			return o.Dev == on.Dev && o.Parent == on.ID
		}
	case device.Filter:
		switch o := o.(type) {
		case device.FilterEntry:
			return o.Filter == on.Key()
		case device.FilterDefault:
			return o.Filter == on.Key()
		case device.FilterLink:
			return o.Filter == on.Key()
		case device.FilterShare:
			return o.Filter == on.Key()
		case device.Tunnels:
			return o.Filter == on.Key()
		}
	case device.XDP, device.CPUQueue, device.CPULane:
		return hangsOnXDP(o, on)
	case device.RSSTable:
		r, ok := o.(device.Rule)
		return ok && r.Dev == on.Dev && r.Context == on.Context && on.Context != 0
	}
	return false
}

// OfQueue reports whether the kernel makes and removes an object together with its queue.
func OfQueue(o device.Object) bool {
	switch o := o.(type) {
	case device.NAPIConfig, device.Affinity:
		return true
	case device.Coalesce:
		return o.Queue >= 0
	case device.File:
		return strings.Contains(o.Path, "/queues/")
	}
	return false
}

// fences reports whether earlier removes queues from the default table, and later gives these
// queues to another context.
func fences(earlier, later plan.Step) bool {
	was, ok1 := earlier.Old.(device.RSSTable)
	is, ok2 := earlier.New.(device.RSSTable)
	ctx, ok3 := later.New.(device.RSSTable)
	if !ok1 || !ok2 || !ok3 || was.Dev != ctx.Dev || was.Context != 0 || ctx.Context == 0 {
		return false
	}
	return slices.ContainsFunc(ctx.Queues, func(q int) bool {
		return slices.Contains(was.Queues, q) && !slices.Contains(is.Queues, q)
	})
}

// variants returns other values of the same object, which the kernel treats differently.
func variants(o device.Object) map[string]device.Object {
	switch o := o.(type) {
	case device.File:
		return fileVariants(o)
	case device.Qdisc:
		d := o
		d.DefaultClass++
		h := o
		h.Handle = "7:"
		m := map[string]device.Object{"handle": h}
		switch o.Type {
		case "htb":
			m["default class"] = d
		case "mqprio":
			classes, queues := o, o
			if o.Mode != "" {
				rates := o
				rates.MaxRates += "0"
				m["rates"] = rates
			}
			classes.Map = strings.Replace(o.Map, " 1", " 0", 1)
			queues.Queues = strings.Replace(o.Queues, "@", "1@", 1)
			m["map"], m["queues"] = classes, queues
		case "cake":
			flows := o
			flows.Cake = strings.Replace(o.Cake, "dual-srchost", "flows", 1)
			m["flow mode"] = flows
		case "pfifo":
			limit := o
			limit.Limit++
			m["limit"] = limit
		case "tbf":
			rate, limit := o, o
			rate.Rate += 8000
			limit.Limit *= 2
			m["rate"], m["limit"] = rate, limit
		}
		return m
	case device.Class:
		rate, ceil, prio, burst := o, o, o, o
		rate.Rate += 8000
		ceil.Ceil += 8000
		prio.Prio = (o.Prio + 1) % 8
		burst.Burst += 4096
		if o.Offload { // with offload, the kernel refuses a rank
			return map[string]device.Object{"rate": rate, "ceiling": ceil, "burst": burst}
		}
		return map[string]device.Object{"rate": rate, "ceiling": ceil, "rank": prio, "burst": burst}
	case device.Flower:
		o.Class = o.Class%2 + 1
		return map[string]device.Object{"class": o}
	case device.FilterEntry:
		class, queues, dscp, pcp := o, o, o, o
		class.Priority += "0"
		queues.Queues = append(slices.Clone(o.Queues), len(o.Queues)+100)
		dscp.DSCP, pcp.PCP = "cs7", "7"
		return map[string]device.Object{"class": class, "queues": queues, "DSCP": dscp, "PCP": pcp}
	case device.Shaper:
		least, most := o, o
		least.Min += 1e6
		most.Max += 1e6
		return map[string]device.Object{"minimum": least, "maximum": most}
	case device.CgroupPriority:
		o.Priority += "0"
		return map[string]device.Object{"class": o}
	case device.CgroupClass:
		o.Priority += "0"
		return map[string]device.Object{"class": o}
	case device.FilterDefault:
		queues, lanes := o, o
		queues.Queues = append(slices.Clone(o.Queues), len(o.Queues))
		lanes.Lanes = append(slices.Clone(o.Lanes), 15)
		return map[string]device.Object{"queues": queues, "lanes": lanes}
	case device.GSOLimit:
		o.Max += 1000
		return map[string]device.Object{"size": o}
	case device.FilterLink:
		rate, ranks := o, o
		rate.Rate += 1e6
		ranks.Ranks = append(slices.Clone(o.Ranks), 8)
		return map[string]device.Object{"rate": rate, "ranks": ranks}
	case device.FilterShare:
		least, most, rank := o, o, o
		least.Guarantee += 1e6
		most.Ceiling += 1e6
		rank.Rank = rank.Rank%8 + 1
		return map[string]device.Object{"guarantee": least, "ceiling": most, "rank": rank}
	case device.Tunnels:
		port, more := o, o
		port.Tunnels = slices.Clone(o.Tunnels)
		port.Tunnels[0].Port++
		more.Tunnels = append(slices.Clone(o.Tunnels), device.Tunnel{Protocol: "geneve", Port: 1})
		return map[string]device.Object{"port": port, "one more": more}
	case device.XDP, device.CPUQueue, device.CPUThread, device.CPULane, device.XDPEntry:
		return xdpVariants(o)
	case device.RSSTable:
		return tableVariants(o)
	case device.Rule:
		ctx, queue := o, o
		ctx.Context = o.Context%2 + 1
		queue.Context, queue.Queue = 0, o.Queue+1
		if o.Context == 0 {
			return map[string]device.Object{"queue": queue, "context": ctx}
		}
		if ctx.Context == o.Context {
			ctx.Context = 2
		}
		return map[string]device.Object{"queue": queue, "context": ctx}
	case device.NAPIConfig:
		threaded, timeout, suspend := o, o, o
		threaded.Threaded = map[string]string{"off": "on", "on": "off", "busy": "on"}[o.Threaded]
		timeout.GROFlushTimeout += 1000
		suspend.IRQSuspendTimeout += 1000
		return map[string]device.Object{"threading": threaded, "flush timeout": timeout, "suspend timeout": suspend}
	case device.Thread:
		cpus, prio := o, o
		cpus.CPUs = []int{(o.CPUs[0] + 1) % 2}
		if len(o.CPUs) > 1 {
			cpus.CPUs = o.CPUs[:1]
		}
		prio.Policy, prio.Priority, prio.Nice = "fifo", o.Priority+1, 0
		return map[string]device.Object{"CPU": cpus, "priority": prio}
	case device.Poller:
		cpus, timeout := o, o
		cpus.CPUs = []int{(o.CPUs[0] + 1) % 2}
		timeout.Timeout += 1000
		return map[string]device.Object{"CPU": cpus, "timeout": timeout}
	case device.Affinity:
		cpus := o
		cpus.CPUs = append([]string{o.CPUs[0] + ",1023"}, o.CPUs[1:]...)
		return map[string]device.Object{"CPUs": cpus}
	case device.Channels:
		n := o
		n.Combined--
		return map[string]device.Object{"number": n}
	case device.Coalesce:
		n := o
		n.RxUsecs++
		return map[string]device.Object{"moderation": n}
	case device.DriverParam:
		if o.Value == "true" {
			o.Value = "false"
		} else {
			o.Value += "1"
		}
		return map[string]device.Object{"value": o}
	case device.Feature:
		o.On = !o.On
		return map[string]device.Object{"setting": o}
	case device.PrivFlag:
		o.On = !o.On
		return map[string]device.Object{"setting": o}
	}
	return nil
}

func fileVariants(f device.File) map[string]device.Object {
	v := f
	switch f.Format {
	case device.FileCPUMask:
		ids, err := device.ParseMask(f.Value)
		if err != nil {
			return nil
		}
		v.Value = device.FormatMask(shifted(ids))
	case device.FileCPUList:
		ids, err := device.ParseCPUList(f.Value)
		if err != nil {
			return nil
		}
		v.Value = device.FormatCPUList(shifted(ids))
	default:
		v.Value += "1"
	}
	return map[string]device.Object{"value": v}
}

// shifted returns other IDs than ids: each one is increased by one.
func shifted(ids []int) []int {
	if len(ids) == 0 {
		return []int{0}
	}
	out := make([]int, len(ids))
	for i, id := range ids {
		out[i] = id + 1
	}
	return out
}

// tableVariants returns tables with other queues. In the table "range", each entry has the next
// queue, and one more queue is used. In the table "entry", only the first entry is changed.
func tableVariants(t device.RSSTable) map[string]device.Object {
	if t.Context == 0 && !t.Configured {
		return nil // the driver's own table, whose entries do not matter
	}
	highest := slices.Max(t.Queues)
	flip, swap := t, t
	flip.Queues, swap.Queues = slices.Clone(t.Queues), slices.Clone(t.Queues)
	for i, q := range t.Queues {
		flip.Queues[i] = (q + 1) % (highest + 2)
	}
	swap.Queues[0] = (t.Queues[0] + 1) % (highest + 1)
	m := map[string]device.Object{"range": flip}
	if swap.Queues[0] != t.Queues[0] {
		m["entry"] = swap
	}
	return m
}
