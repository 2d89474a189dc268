// SPDX-License-Identifier: Apache-2.0

package fakekernel

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// write changes the state as the write of an object does. The caller has checked the old value.
func (k *Kernel) write(old, next device.Object) error {
	if n, ok := old.(device.NAPIConfig); ok && next == nil {
		// The NAPI belongs to its queue and cannot be removed. It gets its defaults instead.
		next = device.NAPIConfig{Dev: n.Dev, Queue: n.Queue, Threaded: "off"}
	}
	if p, ok := old.(device.DriverParam); ok && next == nil {
		next = p.Default() // only the driver removes it, with its class
	}
	if next == nil {
		if err := k.removable(old); err != nil {
			return err
		}
		k.remove(old)
		k.filtersGo(old)
		return nil
	}
	if old == nil {
		if err := k.makeable(next); err != nil {
			return err
		}
	}
	if err := k.valid(old, next); err != nil {
		return err
	}
	if c, ok := next.(device.Channels); ok {
		k.shrink(c)
	}
	k.put(old, next)
	k.follow(old, next)
	return nil
}

// queueLen sets a device's txqueuelen of 0 to the default. The kernel does so when the device gets
// a qdisc (net/sched/sch_api.c: qdisc_create).
func (k *Kernel) queueLen(dev string) {
	key := device.File{Path: "/sys/class/net/" + dev + "/tx_queue_len"}.Key()
	if f, ok := k.objs[key].(device.File); ok && f.Value == "0" {
		was := f
		f.Value = "1000" // DEFAULT_TX_QUEUE_LEN
		k.put(was, f)
	}
}

// filtersGo removes a card's filters if the card's traffic classes are removed.
func (k *Kernel) filtersGo(o device.Object) {
	q, ok := o.(device.Qdisc)
	if !ok || q.Mode != device.ModeChannel {
		return
	}
	d := k.st.Device(q.Dev)
	if k.classParams[q.Dev] {
		for _, p := range slices.Clone(d.DriverParams) {
			k.put(p, nil)
		}
	}
	if limits, _ := device.FindClassLimits(d.Driver); limits.Receive {
		for _, f := range slices.Clone(d.Flowers) {
			k.put(f, nil)
		}
	}
}

// paramsCome makes the parameters of new classes, if the driver makes them only then
// (device.ClassParam).
func (k *Kernel) paramsCome(q device.Qdisc) {
	d := k.st.Device(q.Dev)
	if q.Mode != device.ModeChannel || !k.classParams[q.Dev] || len(d.DriverParams) > 0 {
		return
	}
	for class := range len(strings.Fields(q.Queues)) {
		for _, name := range []string{"inline_fd", "qps_per_poller", "poller_timeout"} {
			if class > 0 && d.ClassParam(name) {
				k.put(nil, device.DriverParam{Dev: q.Dev, Name: fmt.Sprintf("tc%d_%s", class, name)}.Default())
			}
		}
	}
}

// validFlower returns an error if cls_flower or the card would refuse the filter.
func (k *Kernel) validFlower(f device.Flower) error {
	q, _ := k.objs["qdisc/"+f.Dev+"/root"].(device.Qdisc)
	if _, ok := k.objs["qdisc/"+f.Dev+"/clsact"]; !ok {
		return refuse(f, unix.EINVAL, "parent qdisc doesn't exist")
	}
	if on, ok := k.objs["feature/"+f.Dev+"/hw-tc-offload"].(device.Feature); !ok || !on.On {
		return refuse(f, unix.EINVAL, "turn ON hw-tc-offload")
	}
	if q.Mode != device.ModeChannel || f.Class < 1 || f.Class >= len(strings.Fields(q.Queues)) {
		return refuse(f, unix.EINVAL, "non-existence destination")
	}
	return nil
}

func refuse(o device.Object, err error, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s", o.Key(), err, fmt.Sprintf(format, args...))
}

// makeable returns an error if the object cannot be made.
func (k *Kernel) makeable(o device.Object) error {
	if _, file := o.(device.File); file {
		return refuse(o, unix.ENOENT, "files are not made")
	}
	if !device.Made(o) {
		return refuse(o, unix.EOPNOTSUPP, "does not exist and cannot be made")
	}
	return nil
}

// removable returns an error if the object cannot be removed.
func (k *Kernel) removable(o device.Object) error {
	if !device.Made(o) {
		return refuse(o, unix.EOPNOTSUPP, "cannot be removed")
	}
	switch o := o.(type) {
	case device.CPULane, device.CPUQueue:
		return k.removableXDP(o)
	case device.Class:
		for _, c := range k.objs {
			if c, ok := c.(device.Class); ok && c.Dev == o.Dev && c.Parent == o.ID {
				return refuse(o, unix.EBUSY, "class %s is its child", c.ID)
			}
		}
	case device.RSSTable:
		for _, r := range k.leadingTo(o) {
			return refuse(o, unix.EBUSY, "rule %s leads to it", r.Match)
		}
	}
	return nil
}

// remove removes an object, and the objects that the kernel removes with it.
func (k *Kernel) remove(o device.Object) {
	for _, c := range k.children(o) {
		k.remove(c)
	}
	k.put(o, nil)
	delete(k.foreign, o.Key())
}

// children returns the objects that cannot exist without o.
func (k *Kernel) children(o device.Object) []device.Object {
	var out []device.Object
	for _, c := range k.objs {
		if livesOn(c, o) {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b device.Object) int { return strings.Compare(a.Key(), b.Key()) })
	return out
}

func livesOn(c, o device.Object) bool {
	switch o := o.(type) {
	case device.Qdisc:
		switch c := c.(type) {
		case device.Class:
			return c.Dev == o.Dev && major(c.ID) == o.Handle
		case device.Qdisc:
			return c.Dev == o.Dev && perQueue(o.Type) && c.Parent != "root" && major(c.Parent) == o.Handle
		case device.Flower:
			return c.Dev == o.Dev && o.Parent == "clsact"
		}
	case device.Class, device.Filter, device.XDP, device.CPUQueue:
	default:
		return false
	}
	_, class := c.(device.Class) // the kernel does not remove a class together with its parent
	on := device.StandsOn(c)
	return !class && len(on) > 0 && on[0] == o.Key()
}

// perQueue reports whether a root qdisc of that type has one class per queue.
func perQueue(typ string) bool { return typ == "mq" || typ == "mqprio" }

// major returns the handle of the qdisc that a class belongs to: "1:" for "1:10".
func major(id string) string {
	m, _, _ := strings.Cut(id, ":")
	return m + ":"
}

// Occupants implements apply.Occupier.
func (k *Kernel) Occupants(o device.Object) ([]string, error) {
	out := slices.Clone(k.foreign[o.Key()])
	for _, c := range k.children(o) {
		switch c.(type) {
		case device.FilterEntry, device.FilterDefault, device.FilterLink, device.FilterShare, device.Tunnels,
			device.CPUQueue, device.CPUThread, device.CPULane, device.XDPEntry:
			continue // they belong to a program's own maps, so they are no occupants
		}
		out = append(out, c.Key())
	}
	for _, r := range k.leadingTo(o) {
		out = append(out, r.Key())
	}
	return out, nil
}

// leadingTo returns the rules that lead to the RSS context o.
func (k *Kernel) leadingTo(o device.Object) []device.Rule {
	table, ok := o.(device.RSSTable)
	if !ok || table.Context == 0 {
		return nil
	}
	var out []device.Rule
	for _, r := range k.objs {
		if r, ok := r.(device.Rule); ok && r.Dev == table.Dev && r.Context == table.Context {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b device.Rule) int { return strings.Compare(a.Key(), b.Key()) })
	return out
}

// Evict implements apply.Evictor.
func (k *Kernel) Evict(o device.Object, who []string) (evicted []string, err error) {
	for _, r := range k.leadingTo(o) {
		if slices.Contains(who, r.Key()) {
			k.remove(r)
			evicted = append(evicted, r.Key())
		}
	}
	return evicted, nil
}

// valid returns an error if the kernel would refuse the new value.
func (k *Kernel) valid(old, next device.Object) error {
	if c, ok := next.(device.Channels); ok {
		q, _ := k.objs["qdisc/"+c.Dev+"/root"].(device.Qdisc)
		if q.Mode == device.ModeChannel {
			return refuse(c, unix.EOPNOTSUPP, "cannot set channels with classes configured")
		}
		if q.Offload {
			return refuse(c, unix.EINVAL, "HTB offload is active, cannot change the number of channels")
		}
	}
	switch o := next.(type) {
	case device.Qdisc:
		return k.validQdisc(old, o)
	case device.Class:
		return k.validClass(old, o)
	case device.Flower:
		return k.validFlower(o)
	case device.Filter:
		if _, ok := k.objs["qdisc/"+o.Dev+"/clsact"]; !ok && o.Parent != device.AttachTCXEgress {
			return refuse(o, unix.EINVAL, "parent qdisc doesn't exist")
		}
	case device.FilterEntry:
		return k.validFilterOf(o, o.Filter)
	case device.FilterDefault:
		return k.validFilterOf(o, o.Filter)
	case device.FilterLink:
		return k.validFilterOf(o, o.Filter)
	case device.FilterShare:
		return k.validFilterOf(o, o.Filter)
	case device.Tunnels:
		if _, ok := k.objs[o.Filter].(device.XDP); ok {
			return k.validXDP(old, o)
		}
		return k.validFilterOf(o, o.Filter)
	case device.XDP, device.CPUQueue, device.CPUThread, device.CPULane, device.XDPEntry:
		return k.validXDP(old, o)
	case device.Shaper:
		if o.Other {
			return refuse(o, unix.EOPNOTSUPP, "more than rates")
		}
	case device.RSSTable:
		return k.validQueues(o, o.Dev, o.Queues)
	case device.Rule:
		return k.validRule(old, o)
	case device.Channels:
		return k.validChannels(o)
	case device.Poller:
		return k.validPoller(o)
	case device.Thread:
		if o.Policy == "fifo" && (o.Priority < 1 || o.Priority > 99) || len(o.CPUs) == 0 {
			return refuse(o, unix.EINVAL, "priority or CPUs")
		}
		for _, c := range o.CPUs {
			if !slices.Contains(k.st.OnlineCPUs(), c) {
				return refuse(o, unix.EINVAL, "CPU %d is offline", c)
			}
		}
	}
	return nil
}

// validPoller returns an error if package poller would refuse the poller.
func (k *Kernel) validPoller(p device.Poller) error {
	if len(p.Queues) == 0 || len(p.CPUs) == 0 || p.Timeout == 0 {
		return refuse(p, unix.EINVAL, "queues, CPUs or timeout")
	}
	for _, q := range p.Queues {
		if _, ok := k.objs[device.NAPIConfig{Dev: p.Dev, Queue: q}.Key()]; !ok {
			return refuse(p, unix.ENOENT, "queue %d has no NAPI", q)
		}
	}
	for _, o := range k.objs {
		if o, ok := o.(device.Poller); ok && o.Dev == p.Dev && o.Key() != p.Key() &&
			slices.ContainsFunc(p.Queues, func(q int) bool { return slices.Contains(o.Queues, q) }) {
			return refuse(p, unix.EBUSY, "%s has one of its queues", o.Key())
		}
	}
	return nil
}

func (k *Kernel) validFilterOf(o device.Object, key string) error {
	f, ok := k.objs[key].(device.Filter)
	if !ok || !strings.HasPrefix(f.Program, "niclane_") {
		return refuse(o, unix.ENOENT, "no filter of niclane's")
	}
	return nil
}

func (k *Kernel) validQdisc(old device.Object, q device.Qdisc) error {
	if hw, ok := k.objs[device.Feature{Dev: q.Dev, Name: "hw-tc-offload"}.Key()].(device.Feature); q.Offload &&
		(!ok || !hw.On) {
		return refuse(q, unix.EOPNOTSUPP, "hw-tc-offload ethtool feature flag must be on")
	}
	if q.Parent != "root" && q.Parent != "clsact" {
		root, _ := k.objs["qdisc/"+q.Dev+"/root"].(device.Qdisc)
		if _, ok := k.objs["class/"+q.Dev+"/"+q.Parent]; !ok &&
			(!perQueue(root.Type) || major(q.Parent) != root.Handle) {
			return refuse(q, unix.ENOENT, "no class %s", q.Parent)
		}
	}
	if (q.Parent == "clsact") != (q.Type == "clsact") {
		return refuse(q, unix.EINVAL, "%s at %s", q.Type, q.Parent)
	}
	if p, ok := old.(device.Qdisc); ok {
		if p.Handle != q.Handle || p.Type != q.Type {
			if who, _ := k.Occupants(p); q.Parent != "root" || len(who) > 0 {
				return refuse(q, unix.EEXIST, "exclusivity flag on, cannot modify")
			}
			return nil
		}
		if q.Type == "htb" {
			return refuse(q, unix.EINVAL, "change operation not supported by specified qdisc")
		}
		if who, _ := k.Occupants(q); q.Type == "mqprio" && len(who) > 0 {
			return refuse(q, unix.EBUSY, "its removal would also remove %s", strings.Join(who, ", "))
		}
	}
	return nil
}

func (k *Kernel) validClass(old device.Object, c device.Class) error {
	q, _ := k.objs["qdisc/"+c.Dev+"/root"].(device.Qdisc)
	if q.Type != "htb" || q.Handle != major(c.ID) {
		return refuse(c, unix.ENOENT, "no htb with handle %s", major(c.ID))
	}
	if c.Parent != q.Handle {
		if _, ok := k.objs["class/"+c.Dev+"/"+c.Parent]; !ok {
			return refuse(c, unix.ENOENT, "no class %s", c.Parent)
		}
	}
	if c.Rate == 0 || c.Ceil == 0 || c.Prio > 7 {
		return refuse(c, unix.EINVAL, "rate, ceil or prio")
	}
	if c.Offload != q.Offload {
		return refuse(c, unix.EINVAL, "a class is the card's where its qdisc is")
	}
	if c.Offload && (c.Quantum != 0 || c.Prio != 0) {
		return refuse(c, unix.EINVAL, "HTB offload doesn't support the quantum parameter")
	}
	if p, ok := old.(device.Class); ok && p.Parent != c.Parent {
		return refuse(c, unix.EINVAL, "a class cannot move to another parent")
	}
	return nil
}

func (k *Kernel) validQueues(o device.Object, dev string, queues []int) error {
	ch, ok := k.objs["channels/"+dev].(device.Channels)
	if !ok {
		return nil
	}
	for _, q := range queues {
		if q < 0 || q >= ch.RX+ch.Combined {
			return refuse(o, unix.EINVAL, "queue %d of %d", q, ch.RX+ch.Combined)
		}
	}
	return nil
}

func (k *Kernel) validRule(old device.Object, r device.Rule) error {
	if _, ok := k.objs[fmt.Sprintf("rss/%s/%d", r.Dev, r.Context)]; !ok && r.Context != 0 {
		return refuse(r, unix.ENOENT, "no context %d", r.Context)
	}
	if r.Context == 0 {
		if err := k.validQueues(r, r.Dev, []int{r.Queue}); err != nil {
			return err
		}
	}
	n := 0
	for _, o := range k.objs {
		if o, ok := o.(device.Rule); ok && o.Dev == r.Dev {
			n++
		}
	}
	if c := k.st.Device(r.Dev).RuleCapacity; old == nil && c > 0 && n >= c {
		return refuse(r, unix.ENOSPC, "all %d places are taken", c)
	}
	return nil
}

// validChannels returns an error if the new channels lack a queue that a table or a rule uses, as
// net/ethtool/channels.c does.
func (k *Kernel) validChannels(c device.Channels) error {
	n := c.RX + c.Combined
	if n < 1 || c.TX+c.Combined < 1 {
		return refuse(c, unix.EINVAL, "no channel left")
	}
	for _, o := range k.objs {
		switch o := o.(type) {
		case device.RSSTable:
			if o.Dev == c.Dev && (o.Context != 0 || o.Configured) && slices.Max(append(o.Queues, 0)) >= n {
				return refuse(c, unix.EINVAL,
					"requested channel counts are too low for existing indirection table of context %d", o.Context)
			}
		case device.Rule:
			if o.Dev == c.Dev && o.Context == 0 && o.Queue >= n {
				return refuse(c, unix.EINVAL, "requested channel counts are too low for rule %s", o.Match)
			}
		}
	}
	return nil
}

// shrink removes the objects of queues that no longer exist after a change of channels.
func (k *Kernel) shrink(next device.Channels) {
	for _, o := range k.Objects() {
		if device.QueueOf(o) >= next.RX+next.Combined && device.DeviceOf(o) == next.Dev {
			k.put(o, nil)
		}
	}
}

// grow makes the objects of queues that are new after a change of channels.
func (k *Kernel) grow(old, next device.Channels) {
	was, is := old.RX+old.Combined, next.RX+next.Combined
	for _, o := range maps.Clone(k.objs) {
		if device.QueueOf(o) != 0 || device.DeviceOf(o) != next.Dev {
			continue
		}
		for q := was; q < is; q++ {
			if fresh := k.fresh(o, q); fresh != nil {
				k.put(nil, fresh)
			}
		}
	}
}

// fresh returns the object that the kernel makes for a new queue q. o is the same kind of object,
// of queue 0. If the new queue gets no such object, fresh returns nil.
func (k *Kernel) fresh(o device.Object, q int) device.Object {
	switch o := o.(type) {
	case device.NAPIConfig:
		return device.NAPIConfig{Dev: o.Dev, Queue: q, Threaded: "off"}
	case device.Affinity:
		a := device.Affinity{Dev: o.Dev, Queue: q}
		for range o.CPUs {
			a.CPUs = append(a.CPUs, device.FormatCPUList(k.st.OnlineCPUs()))
		}
		return a
	case device.Coalesce:
		o.Queue = q
		return o
	case device.File:
		dir, name := path.Split(o.Path)
		kind, _, _ := strings.Cut(path.Base(dir), "-")
		o.Path = fmt.Sprintf("%s/%s-%d/%s", path.Dir(path.Dir(path.Clean(o.Path))), kind, q, name)
		o.Value = strings.Map(func(r rune) rune { // the mask keeps its width
			if r == ',' {
				return r
			}
			return '0'
		}, o.Value)
		return o
	}
	return nil
}

// follow makes further changes that the kernel makes by itself after a write. The planner does not
// know of them.
func (k *Kernel) follow(old, next device.Object) {
	switch next := next.(type) {
	case device.Qdisc:
		if old == nil {
			k.queueLen(next.Dev)
		}
		k.paramsCome(next)
	case device.Channels:
		k.grow(old.(device.Channels), next)
	case device.RSSTable:
		if c, ok := k.objs["channels/"+next.Dev].(device.Channels); ok && next.Context == 0 && !next.Configured &&
			c.RX+c.Combined > 0 {
			k.put(next, next.OfClasses(device.Qdisc{}, c.RX+c.Combined, false))
		}
	}
}
