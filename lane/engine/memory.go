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

// A Memory keeps data from one call to the next, for a process that often applies one file. It
// keeps the journals that were read, a connection to the kernel, and the machine's state after
// the last look or apply. With it, a small change, such as a pod's few rules, needs no reading of
// the whole device.
//
// The kept state can be wrong, so it is checked. Before apply.Run writes an object, it reads the
// object. If the value is not the plan's, the machine is read again. Look runs after the kernel's
// notifications and drops a state that has changed. Some changes cause no notification, and no
// step writes their object: only Look finds these.
//
// The zero value is empty. Only one goroutine may use an Engine at a time.
type Memory struct {
	mu       sync.Mutex
	journals journal.Memory
	kernel   *apply.System // nil: no connection is kept
	known    *snapshot     // nil: the machine must be read
}

// lock takes the mutex of m, if m is not nil. The returned function releases it.
func (m *Memory) lock() (unlock func()) {
	if m == nil {
		return func() {}
	}
	m.mu.Lock()
	return m.mu.Unlock
}

// A snapshot is the machine's state after the lanes of a file were applied.
type snapshot struct {
	state           *device.State
	devices, groups []string
	journal         stamp
}

// A stamp identifies one apply: the lanes file, its generation and the time.
type stamp struct {
	name       string
	generation int
	when       string
}

func stampOf(j *journal.Journal) stamp {
	h := j.Head()
	return stamp{h.Config, h.Generation, h.When.String()}
}

// forget drops the machine's state, and returns the state that it dropped.
func (m *Memory) forget() *snapshot {
	if m == nil {
		return nil
	}
	was := m.known
	m.known = nil
	return was
}

// disconnect closes the kept connection.
func (m *Memory) disconnect() {
	if m != nil && m.kernel != nil {
		_ = m.kernel.Close() // nothing is lost: its writes were read back
		m.kernel = nil
	}
}

// clear drops the machine's state and closes the connection.
func (m *Memory) clear() {
	m.forget()
	m.disconnect()
}

// connect returns the kept connection to the kernel, otherwise a new one.
func (e *Engine) connect() (*apply.System, error) {
	if e.Memory == nil || e.Memory.kernel == nil {
		return apply.NewKernel(e.RunDir)
	}
	k := e.Memory.kernel
	e.Memory.kernel = nil
	k.Anew()
	return k, nil
}

// keep keeps the machine's state after the steps of j. It also keeps the connection k if the
// steps changed only members: the next apply can then use the BPF programs that k has loaded.
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

// same keeps the machine's state that was read for the plan p, which has no steps.
func (m *Memory) same(s *journal.Store, name string, p *Planned) {
	if m == nil {
		return
	}
	if of := earlierOf(s, name); of.err == nil && len(of.journals) == 1 {
		m.known = &snapshot{p.State, p.devices, p.groups, stampOf(of.journals[0])}
	}
}

// applyKnown does what apply does, with the kept state instead of reading the machine. It works
// only if the changes in the file are about members. ok is false if the machine must be read.
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

// looked keeps the state that a look has read, if the look found no difference. was is the state
// that was kept before. It provides the capabilities, because a look does not probe them.
func (m *Memory) looked(was *snapshot, v *View) {
	if m == nil || was == nil || !v.Known || v.Drifted() || stampOf(v.Journal) != was.journal ||
		!slices.Equal(v.Groups, was.groups) {
		return
	}
	if st := renewed(was.state, v.Now); st != nil {
		m.known = &snapshot{st, was.devices, v.Groups, was.journal}
	}
}

// renewed returns the state now with the capabilities of the state before. It returns nil if
// capabilities may have changed since.
func renewed(before, now *device.State) *device.State {
	if now.Kernel != before.Kernel || len(now.Devices) != len(before.Devices) {
		return nil
	}
	st := *now
	st.Capabilities, st.IRQBalance = before.Capabilities, before.IRQBalance
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

// members reports whether all steps are for objects of members, such as rules.
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
