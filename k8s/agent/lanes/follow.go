// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/inventory"
	"github.com/niclane/niclane/k8s/policy"
)

// wanted is the policy that somebody asks for.
type wanted struct {
	name       string
	generation int64
	spec       *v1alpha1.LanePolicySpec // nil: no policy selects this node
	err        error                    // it cannot be told which one it is
}

// settle tries again what had to wait for pods.
func (n *Node) settle(ctx context.Context) {
	n.mu.Lock()
	waiting := len(n.held) > 0
	n.mu.Unlock()
	if waiting {
		n.follow(ctx)
	}
}

// SetPolicy says which policy is the node's: nil for none. err is why that cannot
// be told; the lanes then stay as they are. It returns when the policy was
// followed, or Status says why not.
func (n *Node) SetPolicy(ctx context.Context, p *v1alpha1.LanePolicy, err error) {
	w := &wanted{err: err}
	if p != nil {
		spec := p.Spec
		w.name, w.generation, w.spec = p.Name, p.Generation, &spec
	}
	n.note(func() { n.wanted = w })
	done := make(chan struct{})
	select {
	case n.policies <- done:
	case <-n.ended:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-n.ended:
	}
}

// follow applies what of the wanted policy can be applied now. It runs in the
// loop.
func (n *Node) follow(ctx context.Context) {
	n.mu.Lock()
	w, st := n.wanted, n.st
	n.mu.Unlock()
	if w == nil {
		return
	}
	if w.err != nil {
		n.note(func() { n.problem = w.err.Error() })
		return
	}
	spec := w.spec
	if spec == nil {
		spec = &v1alpha1.LanePolicySpec{}
	}
	now, held := policy.Keep(st.Spec, spec, n.use(st))
	if w.spec == nil && len(now.Classes) == 0 {
		now = nil
	}
	n.mu.Lock()
	same := n.problem == "" && !n.dirty && st.Policy == w.name && st.Generation == w.generation && reflect.DeepEqual(st.Spec, now)
	if same {
		n.held = held
	}
	n.mu.Unlock()
	if same {
		n.o.Changed()
		return
	}
	next := st.clone()
	next.Spec, next.Policy, next.Generation = now, w.name, w.generation
	err := n.make(ctx, next)
	if err == nil {
		err = n.disk.save(next)
		n.dirty = err != nil
	}
	if err != nil {
		n.o.Log.Error("policy is not applied", "policy", w.name, "error", err)
		n.note(func() { n.problem, n.held = err.Error(), held })
		return
	}
	n.mu.Lock()
	n.problem, n.held = "", held
	n.mu.Unlock()
	n.commit(next)
}

// use says which units of the state's classes are in use.
func (n *Node) use(st *state) policy.Use {
	holders := st.holders()
	n.mu.Lock()
	for id, when := range n.granted {
		if _, known := holders[id]; known || time.Since(when) > startGrace {
			delete(n.granted, id)
			continue
		}
		holders[id] = classes.Holder{}
	}
	n.mu.Unlock()
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
