// SPDX-License-Identifier: Apache-2.0

package device

import (
	"slices"
	"strconv"
	"strings"
)

// Put changes s as if the kernel now had the object with the value new instead
// of old (nil: absent), so that "what would planning see afterwards" can be
// asked without a kernel. It checks nothing; objects of devices that s does
// not have are dropped.
func (s *State) Put(old, new Object) {
	o := new
	if o == nil {
		o = old
	}
	if f, ok := o.(File); ok {
		if new == nil {
			delete(s.Files, f.Path)
		} else {
			s.Files[f.Path] = f
			s.threadAll(f)
		}
		return
	}
	if c, ok := o.(CgroupClass); ok {
		s.Cgroups.Classes = replace(s.Cgroups.Classes, true, new, func(x CgroupClass) bool { return x.Key() == c.Key() }, as[CgroupClass])
		return
	}
	if p, ok := o.(CgroupPriority); ok {
		s.Cgroups.Priorities = replace(s.Cgroups.Priorities, true, new, func(x CgroupPriority) bool { return x.Key() == p.Key() }, as[CgroupPriority])
		return
	}
	if a, ok := o.(Affinity); ok {
		s.putAffinity(a, new)
		return
	}
	if q, ok := o.(Qdisc); ok && q.Type == "mqprio" {
		s.clearXPS(q.Dev)
		if d := s.Device(q.Dev); d != nil {
			d.classTable(q, new != nil)
		}
	}
	for i := range s.Devices {
		s.Devices[i].put(o, new)
	}
}

// threadAll does what the kernel does when a device's file threaded is written.
func (s *State) threadAll(f File) {
	for i := range s.Devices {
		d := &s.Devices[i]
		on, is := d.ThreadsAll(f)
		for j := range d.NAPIs {
			if is {
				n := d.NAPIs[j].Config
				n.Threaded = on
				d.putNAPI(n, n)
			}
		}
	}
}

// ThreadsAll reports whether f is the file that threads all NAPIs of the
// device, and as what they then are ("on" or "off").
func (d *Device) ThreadsAll(f File) (threaded string, is bool) {
	if f.Path != "/sys/class/net/"+d.Name+"/threaded" {
		return "", false
	}
	if normalFile(f.Format, f.Value) == "0" {
		return "off", true
	}
	return "on", true
}

// classTable does what a card does whose classes own receive queues: its table
// is the default class's (ice_ethtool.c: ice_get_rxfh), and set by nobody.
func (d *Device) classTable(q Qdisc, there bool) {
	limits, _ := FindClassLimits(d.Driver)
	for i, t := range d.RSS {
		if t.Context == 0 && q.Mode == ModeChannel && limits.Receive {
			d.RSS = slices.Clone(d.RSS)
			d.RSS[i] = t.OfClasses(q, d.RxQueues, there)
		}
	}
}

// OfClasses is the default table while a card has the classes of q, or of all
// of its queues when they have gone.
func (t RSSTable) OfClasses(q Qdisc, queues int, there bool) RSSTable {
	first, _, _ := strings.Cut(q.Queues, "@")
	n, err := strconv.Atoi(first)
	if !there || err != nil || n < 1 {
		n = queues
	}
	t.Queues, t.Configured = slices.Clone(t.Queues), n < queues
	for i := range t.Queues {
		t.Queues[i] = i % max(n, 1)
	}
	return t
}

// clearXPS does what the kernel does when an mqprio is made or goes.
func (s *State) clearXPS(dev string) {
	for path, f := range s.Files {
		if IsXPS(path, dev) && normalFile(f.Format, f.Value) != "0" {
			f.Value = "0"
			s.Files[path] = f
		}
	}
}

// IsXPS reports whether a file is one of a device's transmit packet steering.
func IsXPS(path, dev string) bool {
	queue, ok := strings.CutPrefix(path, "/sys/class/net/"+dev+"/queues/tx-")
	return ok && (strings.HasSuffix(queue, "/xps_cpus") || strings.HasSuffix(queue, "/xps_rxqs"))
}

func (d *Device) put(o, new Object) {
	switch v := o.(type) {
	case Qdisc:
		d.Qdiscs = replace(d.Qdiscs, v.Dev == d.Name, new, func(q QdiscState) bool { return q.Key() == v.Key() },
			func(n Object) QdiscState { return QdiscState{Qdisc: n.(Qdisc)} })
	case Class:
		leaves := d.Leaves()
		defer func() { d.TxQueues += d.Leaves() - leaves }()
		d.Classes = replace(d.Classes, v.Dev == d.Name, new, func(c Class) bool { return c.Key() == v.Key() }, as[Class])
	case Shaper:
		d.Shapers = replace(d.Shapers, v.Dev == d.Name, new, func(s Shaper) bool { return s.Key() == v.Key() }, as[Shaper])
	case Filter:
		if v.Parent == AttachTCXEgress {
			d.putTCX(v, new)
			return
		}
		d.Filters = replace(d.Filters, v.Dev == d.Name, new, func(f FilterState) bool { return f.Filter.Key() == v.Key() },
			func(n Object) FilterState {
				f := n.(Filter)
				return FilterState{Filter: f, Type: "bpf", Name: f.Program}
			})
	case Flower:
		d.Flowers = replace(d.Flowers, v.Dev == d.Name, new, func(f Flower) bool { return f.Key() == v.Key() }, as[Flower])
	case FilterEntry:
		d.Entries = replace(d.Entries, d.hasFilter(v.Filter), new, func(e FilterEntry) bool { return e.Key() == v.Key() }, as[FilterEntry])
	case FilterDefault:
		d.Defaults = replace(d.Defaults, d.hasFilter(v.Filter), new, func(x FilterDefault) bool { return x.Key() == v.Key() }, as[FilterDefault])
	case RSSTable:
		d.RSS = replace(d.RSS, v.Dev == d.Name, new, func(t RSSTable) bool { return t.Key() == v.Key() }, as[RSSTable])
	case Rule:
		d.Rules = replace(d.Rules, v.Dev == d.Name, new, func(r Rule) bool { return r.Key() == v.Key() }, as[Rule])
	case Coalesce:
		if v.Queue < 0 {
			putPointer(&d.Coalesce, v.Dev == d.Name, new)
			return
		}
		d.QueueCoal = replace(d.QueueCoal, v.Dev == d.Name, new, func(c Coalesce) bool { return c.Key() == v.Key() }, as[Coalesce])
	case Channels:
		if v.Dev == d.Name && new != nil {
			c := new.(Channels)
			d.Channels, d.RxQueues, d.TxQueues = &c, c.RX+c.Combined, c.TX+c.Combined
			for i, t := range d.RSS {
				if t.Context == 0 && !t.Configured { // it follows them
					d.RSS = slices.Clone(d.RSS)
					d.RSS[i] = t.OfClasses(Qdisc{}, d.RxQueues, false)
				}
			}
		}
	case DriverParam:
		d.DriverParams = replace(d.DriverParams, v.Dev == d.Name, new, func(p DriverParam) bool { return p.Key() == v.Key() }, as[DriverParam])
	case Ring:
		putPointer(&d.Ring, v.Dev == d.Name, new)
	case Feature:
		if v.Dev == d.Name && new != nil {
			f := d.Features[v.Name]
			f.On = new.(Feature).On
			d.Features[v.Name] = f
		}
	case NAPIConfig, Thread:
		d.putNAPI(o, new)
	case Poller:
		d.Pollers = replace(d.Pollers, v.Dev == d.Name, new, func(p PollerState) bool { return p.Key() == v.Key() },
			func(n Object) PollerState { return PollerState{Poller: n.(Poller)} })
	default:
		d.putXDP(o, new)
	}
}

// putXDP puts the program or what is in its maps, which go with it.
func (d *Device) putXDP(o, new Object) {
	switch v := o.(type) {
	case XDP:
		if v.Dev != d.Name {
			return
		}
		d.Programs = slices.DeleteFunc(slices.Clone(d.Programs), func(p Program) bool {
			return p.Attach == AttachXDP || p.Attach == AttachXDPGeneric
		})
		d.CPUQueues, d.CPUThreads, d.CPULanes, d.XDPEntries = nil, nil, nil, nil
		if x, ok := new.(XDP); ok {
			attach := AttachXDP
			if x.Mode == "generic" {
				attach = AttachXDPGeneric
			}
			d.Programs = append(d.Programs, Program{Attach: attach, Name: x.Program})
		}
	case CPUQueue:
		d.CPUQueues = replace(d.CPUQueues, v.Dev == d.Name, new, func(q CPUQueue) bool { return q.Key() == v.Key() }, as[CPUQueue])
		d.putCPUThread(CPUThread{Dev: v.Dev, CPU: v.CPU, Policy: "other"}, new)
	case CPUThread:
		if new != nil {
			d.CPUThreads = replace(d.CPUThreads, v.Dev == d.Name, new, func(t CPUThread) bool { return t.Key() == v.Key() }, as[CPUThread])
		}
	case CPULane:
		d.CPULanes = replace(d.CPULanes, v.Dev == d.Name, new, func(l CPULane) bool { return l.Key() == v.Key() }, as[CPULane])
	case XDPEntry:
		d.XDPEntries = replace(d.XDPEntries, v.Dev == d.Name, new, func(e XDPEntry) bool { return e.Key() == v.Key() }, as[XDPEntry])
	}
}

// putCPUThread makes or removes a queue's thread with its queue.
func (d *Device) putCPUThread(fresh CPUThread, queue Object) {
	there := slices.ContainsFunc(d.CPUThreads, func(t CPUThread) bool { return t.Key() == fresh.Key() })
	if there && queue != nil {
		return
	}
	var thread Object
	if queue != nil {
		thread = fresh
	}
	d.CPUThreads = replace(d.CPUThreads, fresh.Dev == d.Name, thread, func(t CPUThread) bool { return t.Key() == fresh.Key() }, as[CPUThread])
}

func (d *Device) putNAPI(o, new Object) {
	if c, ok := new.(NAPIConfig); ok && c.Dev == d.Name && d.napi(c.Queue) < 0 {
		d.NAPIs = append(slices.Clone(d.NAPIs), NAPI{Config: c}) // it came with its channel
	}
	if c, ok := o.(NAPIConfig); ok && new == nil && c.Dev == d.Name {
		if i := d.napi(c.Queue); i >= 0 && d.NAPIs[i].ID == 0 {
			d.NAPIs = slices.Delete(slices.Clone(d.NAPIs), i, i+1)
			return
		}
	}
	for i := range d.NAPIs {
		n := &d.NAPIs[i]
		switch o.Key() {
		case n.Config.Key():
			if new == nil {
				continue
			}
			n.Config = new.(NAPIConfig)
			switch {
			case n.Config.Threaded == "off":
				n.Thread, n.PID = nil, 0
			case n.Thread == nil:
				n.Thread = &Thread{Dev: n.Config.Dev, Queue: n.Config.Queue, Policy: "other"}
			}
		case Thread{Dev: n.Config.Dev, Queue: n.Config.Queue}.Key():
			if n.Thread == nil {
				continue
			}
			t, ok := new.(Thread)
			if !ok { // a thread cannot be removed by itself: back to defaults
				t = Thread{Dev: n.Config.Dev, Queue: n.Config.Queue, Policy: "other"}
			}
			n.Thread = &t
		}
	}
}

// napi returns the index of the NAPI that polls a receive queue, -1 if there is
// none.
func (d *Device) napi(queue int) int {
	return slices.IndexFunc(d.NAPIs, func(n NAPI) bool { return n.Config.Queue == queue })
}

// putTCX puts niclane's program before the others.
func (d *Device) putTCX(f Filter, new Object) {
	if f.Dev != d.Name {
		return
	}
	d.Programs = slices.DeleteFunc(slices.Clone(d.Programs), func(p Program) bool {
		return p.Attach == AttachTCXEgress && p.Name == f.Program
	})
	if n, ok := new.(Filter); ok {
		d.Programs = append([]Program{{Attach: AttachTCXEgress, Name: n.Program}}, d.Programs...)
	}
}

func (d *Device) hasFilter(key string) bool {
	if f, ok := d.TCXFilter(); ok && f.Key() == key {
		return true
	}
	return slices.ContainsFunc(d.Filters, func(f FilterState) bool { return f.Filter.Key() == key })
}

func as[T Object](o Object) T { return o.(T) }

func putPointer[T Object](p **T, mine bool, new Object) {
	if !mine {
		return
	}
	if new == nil {
		*p = nil
		return
	}
	v := new.(T)
	*p = &v
}

// replace puts new into list in place of the element that is says; mine false
// leaves the list alone. It never changes list's own array.
func replace[T any](list []T, mine bool, new Object, is func(T) bool, make func(Object) T) []T {
	if !mine {
		return list
	}
	i := slices.IndexFunc(list, is)
	switch {
	case i < 0 && new == nil:
		return list
	case i < 0:
		return append(slices.Clip(list), make(new))
	case new == nil:
		return slices.Delete(slices.Clone(list), i, i+1)
	}
	list = slices.Clone(list)
	list[i] = make(new)
	return list
}

// Clone returns a deep enough copy of s: changing the copy by Put leaves s as
// it is.
func (s *State) Clone() *State {
	c := *s
	c.Files = make(map[string]File, len(s.Files))
	for k, v := range s.Files {
		c.Files[k] = v
	}
	c.Devices = slices.Clone(s.Devices)
	for i := range c.Devices {
		d := &c.Devices[i]
		d.NAPIs = slices.Clone(d.NAPIs)
		features := make(map[string]Setting, len(d.Features))
		for k, v := range d.Features {
			features[k] = v
		}
		d.Features = features
	}
	return &c
}
