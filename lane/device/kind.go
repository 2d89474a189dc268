// SPDX-License-Identifier: Apache-2.0

package device

import (
	"encoding/json"
	"maps"
	"slices"
)

// kinds are all kinds of objects by name. Each line says where a State holds the objects. made
// marks kinds whose objects are created and removed. Objects of the other kinds are settings of
// another object.
var kinds = table(
	inState((*State).putFile, (*State).files),
	made(grouped(func(s *State) *[]CgroupClass { return &s.Cgroups.Classes })),
	made(grouped(func(s *State) *[]CgroupPriority { return &s.Cgroups.Priorities })),
	inState((*State).putAffinity, (*State).affinities),
	made(inState((*State).putQdisc, (*State).qdiscs)),
	made(onDevice((*Device).putClass, each(func(d *Device) []Class { return d.Classes }))),
	made(onDevice((*Device).putFilter, (*Device).filters)),
	made(onDevice((*Device).putEntry, each(func(d *Device) []FilterEntry { return d.Entries }))),
	made(onDevice((*Device).putDefault, each(func(d *Device) []FilterDefault { return d.Defaults }))),
	made(onDevice((*Device).putLink, each(func(d *Device) []FilterLink { return d.SharedLinks }))),
	made(onDevice((*Device).putShare, each(func(d *Device) []FilterShare { return d.Shares }))),
	made(onDevice((*Device).putTunnels, each(func(d *Device) []Tunnels { return d.Tunnels }))),
	made(listed(func(d *Device) *[]Flower { return &d.Flowers })),
	made(listed(func(d *Device) *[]Shaper { return &d.Shapers })),
	made(listed(func(d *Device) *[]RSSTable { return &d.RSS })),
	made(listed(func(d *Device) *[]Rule { return &d.Rules })),
	inState((*State).putNAPI, (*State).napis),
	inState((*State).putThread, (*State).threads),
	made(onDevice((*Device).putPoller, (*Device).pollers)),
	onDevice((*Device).putChannels, (*Device).channels),
	onDevice((*Device).putCoalesce, (*Device).coalesces),
	onDevice((*Device).putRing, (*Device).rings),
	onDevice((*Device).putGSOLimit, (*Device).gsoLimits),
	onDevice((*Device).putFeature, (*Device).features),
	onDevice((*Device).putPrivFlag, (*Device).privFlags),
	listed(func(d *Device) *[]DriverParam { return &d.DriverParams }),
	made(onDevice((*Device).putXDP, (*Device).xdps)),
	made(onDevice((*Device).putCPUQueue, each(func(d *Device) []CPUQueue { return d.CPUQueues }))),
	onDevice((*Device).putCPUThread, each(func(d *Device) []CPUThread { return d.CPUThreads })),
	made(listed(func(d *Device) *[]CPULane { return &d.CPULanes })),
	made(listed(func(d *Device) *[]XDPEntry { return &d.XDPEntries })),
)

// Kinds returns the names of all kinds, ascending.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// A kind describes one kind of objects.
type kind struct {
	name   string
	made   bool
	decode func(b []byte) (Object, error)
	// put does what State.Put does, for an object o of the kind.
	put func(s *State, o, next Object)
	// each yields the objects of the kind that s has.
	each func(s *State, yield func(Object))
}

func table(all ...kind) map[string]kind {
	m := make(map[string]kind, len(all))
	for _, k := range all {
		m[k.name] = k
	}
	return m
}

func made(k kind) kind {
	k.made = true
	return k
}

// inState returns a kind whose put needs the whole State: its objects are outside devices, or a
// change of one also changes other objects.
func inState[T Object](put func(s *State, o T, next Object), each func(s *State, yield func(Object))) kind {
	var zero T
	return kind{
		name:   zero.Kind(),
		decode: decode[T],
		put:    func(s *State, o, next Object) { put(s, o.(T), next) },
		each:   each,
	}
}

// onDevice returns a kind whose objects are all on a device.
func onDevice[T Object](put func(d *Device, o T, next Object), each func(d *Device, yield func(Object))) kind {
	return inState(func(s *State, o T, next Object) {
		if d := s.Device(DeviceOf(o)); d != nil {
			put(d, o, next)
		}
	}, func(s *State, yield func(Object)) {
		for i := range s.Devices {
			each(&s.Devices[i], yield)
		}
	})
}

// listed returns a kind whose objects a Device holds in a list. A change of one object changes
// nothing else.
func listed[T Object](list func(d *Device) *[]T) kind {
	return onDevice(func(d *Device, o T, next Object) { replace(list(d), o, next) },
		each(func(d *Device) []T { return *list(d) }))
}

// grouped is like listed, for objects of control groups, which a State holds in a list.
func grouped[T Object](list func(s *State) *[]T) kind {
	return inState(func(s *State, o T, next Object) { replace(list(s), o, next) },
		each(func(s *State) []T { return *list(s) }))
}

func each[C any, T Object](list func(C) []T) func(c C, yield func(Object)) {
	return func(c C, yield func(Object)) {
		for _, o := range list(c) {
			yield(o)
		}
	}
}

func decode[T Object](b []byte) (Object, error) {
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, err
	}
	return v, nil
}

// replace puts next in the place of o in a list, or removes o if next is nil. It does not change
// the old array.
func replace[T Object](list *[]T, o, next Object) {
	replaceBy(list, o, next, func(next Object) T { return next.(T) })
}

// replaceBy is like replace; the new element is build(next).
func replaceBy[T Object](list *[]T, o, next Object, build func(next Object) T) {
	key := o.Key()
	i := slices.IndexFunc(*list, func(x T) bool { return x.Key() == key })
	switch {
	case next != nil && i < 0:
		*list = append(slices.Clip(*list), build(next))
	case next != nil:
		*list = slices.Clone(*list)
		(*list)[i] = build(next)
	case i >= 0:
		*list = slices.Delete(slices.Clone(*list), i, i+1)
	}
}
