// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// A Memory is what a process that applies one file often keeps between calls: the
// journals that it has read, a connection to the kernel, and the machine as the last look
// or the last apply left it. Pods come one after the other, and each changes some rules
// and nothing else: to look at the whole device for each took two fifths of what it costs.
//
// Nothing is taken on trust for that: apply.Run reads every object of a step before it
// writes it, and refuses what is not as the plan says; then the machine is looked at. Look,
// which the kernel's notifications ask for, throws away what has changed. What is neither
// written nor told about is what Look alone finds in any case.
//
// The zero value knows nothing. All that an Engine does with it is one after the other.
type Memory struct {
	mu       sync.Mutex
	journals journal.Memory
	kernel   *apply.System // nil: none is kept
	known    *snapshot     // nil: the machine has to be looked at
}

// lock keeps others away until the returned function is called.
func (m *Memory) lock() (unlock func()) {
	if m == nil {
		return func() {}
	}
	m.mu.Lock()
	return m.mu.Unlock
}

// A snapshot is the machine as a file's lanes left it.
type snapshot struct {
	state           *device.State
	devices, groups []string
	journal         stamp
}

// A stamp tells journals apart, and the generations of one.
type stamp struct {
	name       string
	generation int
	when       string
}

func stampOf(j *journal.Journal) stamp {
	h := j.Head()
	return stamp{h.Config, h.Generation, h.When.String()}
}

// forget forgets the machine, and returns how it was.
func (m *Memory) forget() *snapshot {
	if m == nil {
		return nil
	}
	was := m.known
	m.known = nil
	return was
}

// disconnect closes the connection that is kept.
func (m *Memory) disconnect() {
	if m != nil && m.kernel != nil {
		_ = m.kernel.Close() // what it wrote was read back
		m.kernel = nil
	}
}

// clear forgets the machine and closes the connection to it.
func (m *Memory) clear() {
	m.forget()
	m.disconnect()
}

// connect takes the connection that is kept, or makes one.
func (e *Engine) connect() (*apply.System, error) {
	if e.Memory == nil || e.Memory.kernel == nil {
		return apply.NewKernel(e.RunDir)
	}
	k := e.Memory.kernel
	e.Memory.kernel = nil
	k.Anew()
	return k, nil
}

// keep takes note of the machine after steps of j were made on it, and keeps k where the
// next apply is likely to need no more than it has: the programs that others prepare are
// not held.
func (m *Memory) keep(j *journal.Journal, k *apply.System, p *Planned) (kept bool) {
	if m == nil {
		return false
	}
	if !slices.ContainsFunc(p.Steps, remakes) {
		m.known = &snapshot{p.State.After(changes(p.Steps)), p.devices, p.groups, stampOf(j)}
	}
	if !members(p.Steps) {
		return false
	}
	m.kernel = k
	return true
}

// same takes note of the machine as it was looked at, if nothing was made of p.
func (m *Memory) same(s *journal.Store, name string, p *Planned) {
	if m == nil {
		return
	}
	if of := earlierOf(s, name); of.err == nil && len(of.journals) == 1 {
		m.known = &snapshot{p.State, p.devices, p.groups, stampOf(of.journals[0])}
	}
}

// applyKnown is apply on the machine as it is known, if the file lacks nothing but members
// there; ok is false if it has to be looked at.
func (e *Engine) applyKnown(ctx context.Context, f *File, s *journal.Store, here journal.Host, o request) (r *Result,
	ok bool, err error) {
	was := e.Memory.forget()
	if was == nil || o.leave != nil {
		return nil, false, nil
	}
	before := earlierOf(s, f.Name)
	groups := allGroups(f, before)
	if before.err != nil || len(before.journals) != 1 || stampOf(before.journals[0]) != was.journal ||
		!slices.Equal(groups, was.groups) ||
		!slices.Equal(f.Devices(), was.devices) {
		return nil, false, nil
	}
	if err := s.Conflict(f.Name, f.Devices(), linksOf(f, was.state)); err != nil {
		return nil, false, err
	}
	p, err := plan.Make(f.Intent, was.state, before.Owned)
	if err != nil || !members(p.Steps) || len(p.Forget) > 0 {
		return nil, false, nil
	}
	if len(p.Steps) == 0 {
		e.Memory.known = was
		return &Result{Planned: Planned{p, was.state, was.devices, groups}}, true, nil
	}
	r, err = e.carryOut(ctx, s, headOf(here, f, p), &Planned{p, was.state, was.devices, groups}, o)
	var failed *FailedError
	if errors.As(err, &failed) && failed.Left == 0 && ctx.Err() == nil {
		return nil, false, nil
	}
	return r, true, err
}

// looked takes note of a later look, which read without probing what the devices can do,
// if nothing was found to differ: was is what was known before.
func (m *Memory) looked(was *snapshot, v *View) {
	if m == nil || was == nil || !v.Known || v.Drifted() || stampOf(v.Journal) != was.journal ||
		!slices.Equal(v.Groups, was.groups) {
		return
	}
	if st := renewed(was.state, v.Now); st != nil {
		m.known = &snapshot{st, was.devices, v.Groups, was.journal}
	}
}

// renewed returns now with what the devices could do before, nil if they may be able to do
// something else.
func renewed(before, now *device.State) *device.State {
	if now.Kernel != before.Kernel || len(now.Devices) != len(before.Devices) {
		return nil
	}
	st := *now
	st.Capabilities = before.Capabilities
	st.Devices = slices.Clone(now.Devices)
	for i := range st.Devices {
		is, was := &st.Devices[i], &before.Devices[i]
		if is.Name != was.Name || is.Index != was.Index || is.Driver != was.Driver || is.Version != was.Version ||
			is.Firmware != was.Firmware ||
			!reflect.DeepEqual(is.Channels, was.Channels) || !maps.Equal(is.Features, was.Features) ||
			!maps.Equal(is.PrivFlags, was.PrivFlags) {
			return nil
		}
		is.Capabilities = was.Capabilities
	}
	return &st
}

// members reports whether the steps are of objects of which there are as many as members.
func members(steps []plan.Step) bool {
	return !slices.ContainsFunc(steps, func(s plan.Step) bool { return !member(s.Object()) })
}

func changes(steps []plan.Step) []device.Change {
	out := make([]device.Change, len(steps))
	for i, s := range steps {
		out[i] = device.Change{Old: s.Old, New: s.New}
	}
	return out
}
