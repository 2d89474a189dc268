// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/policy"
)

// desiredPolicy is the policy that the node has in the API server.
type desiredPolicy struct {
	name       string
	generation int64
	spec       *v1alpha1.LanePolicySpec // nil: no policy selects this node
	err        error                    // why the policy cannot be read
	remove     bool                     // niclane leaves the node
}

// retry applies the policy again if a part of it had to wait for pods: these may have ended.
func (m *Manager) retry(ctx context.Context) {
	m.mu.Lock()
	waiting := len(m.held) > 0
	m.mu.Unlock()
	if waiting {
		m.follow(ctx)
	}
}

// SetPolicy sets the node's policy, nil for none. err says why the policy cannot be read; the
// lanes then stay as they are. SetPolicy returns when the policy is followed, or when Status says
// why it is not.
func (m *Manager) SetPolicy(ctx context.Context, p *v1alpha1.LanePolicy, err error) {
	w := &desiredPolicy{err: err}
	if p != nil {
		spec := p.Spec
		w.name, w.generation, w.spec = p.Name, p.Generation, &spec
	}
	m.want(ctx, w)
}

// want sets what the node has to follow, and returns when the loop has followed it.
func (m *Manager) want(ctx context.Context, w *desiredPolicy) {
	m.note(func() { m.wanted = w })
	done := make(chan struct{})
	select {
	case m.policies <- done:
	case <-m.ended:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-m.ended:
	}
}

// follow applies the part of the wanted policy that can be applied now. It runs in the loop.
func (m *Manager) follow(ctx context.Context) {
	m.mu.Lock()
	w, st := m.wanted, m.st
	m.mu.Unlock()
	if w == nil {
		return
	}
	if w.remove {
		m.remove(ctx)
		return
	}
	m.note(func() { m.removed = false })
	if w.err != nil {
		m.note(func() { m.problem = w.err.Error() })
		return
	}
	spec := w.spec
	if spec == nil {
		spec = &v1alpha1.LanePolicySpec{}
	}
	now, held := policy.Keep(st.Spec, spec, m.use(st))
	if w.spec == nil && len(now.Classes) == 0 {
		now = nil
	}
	m.mu.Lock()
	same := m.problem == "" && !m.dirty && st.Policy == w.name && st.Generation == w.generation &&
		reflect.DeepEqual(st.Spec, now)
	if same {
		m.held = held
	}
	m.mu.Unlock()
	if same {
		m.o.Changed()
		return
	}
	next := st.clone()
	next.Spec, next.Policy, next.Generation = now, w.name, w.generation
	err := m.make(ctx, next)
	if err == nil {
		err = m.disk.save(next)
		m.dirty = err != nil
	}
	if err != nil {
		m.o.Log.Error("policy is not applied", "policy", w.name, "error", err)
		m.note(func() { m.problem, m.held = err.Error(), held })
		return
	}
	m.mu.Lock()
	m.problem, m.held = "", held
	m.mu.Unlock()
	m.commit(next)
}

// use returns, by class, the units that are in use: those that pods or claims have in st, and those
// that kubelet has given to a pod within the last startGrace.
func (m *Manager) use(st *state) policy.Use {
	holders := st.holders()
	m.mu.Lock()
	for id, when := range m.granted {
		if _, known := holders[id]; known || time.Since(when) > startGrace {
			delete(m.granted, id)
			continue
		}
		holders[id] = inventory.Holder{}
	}
	m.mu.Unlock()
	use := policy.Use{}
	if st.Spec == nil {
		return use
	}
	for i := range st.Spec.Classes {
		c := &st.Spec.Classes[i]
		for _, id := range slices.Sorted(maps.Keys(holders)) {
			if policy.UnitNumber(c.Name, id) >= 0 {
				use[c.Name] = append(use[c.Name], policy.UsedUnit{ID: id, Pod: holders[id].String()})
			}
		}
	}
	return use
}
