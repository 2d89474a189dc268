// SPDX-License-Identifier: Apache-2.0

package card

import (
	"maps"
	"reflect"
	"slices"

	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// A known is the card as the last look at it or the last apply left it. Pods come
// one after the other, and each changes some rules and nothing else: to look at
// the whole card for each took two fifths of what it costs (BenchmarkPod). Nothing is
// taken on trust for that: apply.Run reads every object of a step before it writes
// it, and refuses what is not as the plan says; and Look, which the kernel's
// notifications ask for, throws away what has changed. What is neither written nor
// told about is what Look alone finds in any case.
type known struct {
	state   *device.State // nil where settled has it
	settled *settled      // nil: members have to be planned together
	// what it is of
	file            *policy.File
	devices, groups []string
	journal         stamp
}

// A stamp tells journals apart, and the generations of one.
type stamp struct {
	generation int
	when       string
}

func stampOf(j *journal.Journal) stamp {
	h := j.Head()
	return stamp{h.Generation, h.When.String()}
}

// members reports whether the steps are of objects of which there are as many as
// pods.
func members(steps []plan.Step) bool {
	return !slices.ContainsFunc(steps, func(s plan.Step) bool { return !member(s.Object()) })
}

// known is what is known when the file is applied, with the state that the card has
// then.
func (a *asked) known(st *device.State, mine []*journal.Journal) *known {
	if len(mine) != 1 {
		return nil
	}
	return &known{state: st, file: a.file, devices: a.devices, groups: a.groups, journal: stampOf(mine[0])}
}

// plan plans a on the card that k knows, if it lacks nothing but members; no others than
// those if that can be. The error is errLook.
func (k *known) plan(a *asked) (planned, error) {
	if k.settled != nil {
		if some := k.settled.plan(a.file); some != nil {
			return planned{some.Plan, k.settled.base, k, some}, nil
		}
	}
	k.state, k.settled = k.whole(), nil
	p, err := a.plan(k.state)
	if err != nil || !members(p.Steps) {
		return planned{}, errLook
	}
	return planned{p, k.state, k, nil}, nil
}

// made is what is known when p was made for a, which left the state after, and is
// journalled in mine.
func (p *planned) made(a *asked, mine []*journal.Journal, after *device.State) *known {
	if p.some == nil || len(mine) != 1 {
		return a.known(after, mine)
	}
	p.known.settled.take(p.some)
	p.known.file, p.known.journal = a.file, stampOf(mine[0])
	return p.known
}

// whole is the state with the members.
func (k *known) whole() *device.State {
	if k.settled != nil {
		return k.settled.state()
	}
	return k.state
}

// beside is a state with what is probed.
func (k *known) beside() *device.State {
	if k.settled != nil {
		return k.settled.base
	}
	return k.state
}

// knows reports whether k is of the devices and control groups that are asked for,
// and whether nobody has applied since.
func (k *known) knows(a *asked) bool {
	return k != nil && len(a.mine) == 1 && stampOf(a.mine[0]) == k.journal &&
		slices.Equal(k.devices, a.devices) && slices.Equal(k.groups, a.groups)
}

// renewed returns k with a later state, which was read without probing what the
// devices can do; nil if they may be able to do something else now, or if it is of
// another journal or other control groups.
func (k *known) renewed(st *device.State, groups []string, j *journal.Journal) *known {
	if k == nil || stampOf(j) != k.journal || !slices.Equal(groups, k.groups) {
		return nil
	}
	before := k.beside()
	if st.Kernel != before.Kernel || len(st.Devices) != len(before.Devices) {
		return nil
	}
	out := *k
	out.state = st
	st.Capabilities = before.Capabilities
	for i := range st.Devices {
		now, was := &st.Devices[i], &before.Devices[i]
		if now.Name != was.Name || now.Index != was.Index || now.Driver != was.Driver || now.Version != was.Version || now.Firmware != was.Firmware ||
			!reflect.DeepEqual(now.Channels, was.Channels) || !maps.Equal(now.Features, was.Features) || !maps.Equal(now.PrivFlags, was.PrivFlags) {
			return nil
		}
		now.Capabilities = was.Capabilities
	}
	out.settle(j.Records())
	return &out
}

// settle has members be planned by themselves from now on, where that can be.
func (k *known) settle(records []journal.Record) {
	if k.settled != nil {
		now := *k.settled
		now.base = without(k.state, records)
		k.settled = &now
	} else {
		k.settled = settle(k.file, k.state, records)
	}
	if k.settled != nil {
		k.state = nil
	}
}
