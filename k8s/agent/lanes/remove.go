// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"context"
	"errors"
	"os"
)

// Remove takes all lanes off the card, also those that pods use, and forgets pods, claims and the
// policy, on disk too. It returns the error that prevents this; the Manager tries again until
// SetPolicy ends it.
func (m *Manager) Remove(ctx context.Context) error {
	m.want(ctx, &desiredPolicy{remove: true})
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.problem != "":
		return errors.New(m.problem)
	case !m.removed:
		return errEnded
	}
	return nil
}

// Removing reports whether Remove was called last, not SetPolicy: no pod gets a lane.
func (m *Manager) Removing() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.removing()
}

func (m *Manager) removing() bool { return m.wanted != nil && m.wanted.remove }

// remove does what Remove promises. It runs in the loop.
func (m *Manager) remove(ctx context.Context) {
	m.mu.Lock()
	done := m.removed && m.problem == "" && !m.dirty
	m.mu.Unlock()
	if done {
		return
	}
	next := (&state{}).clone()
	err := m.make(ctx, next)
	if err == nil {
		err = errors.Join(m.disk.remove(), gone(m.o.Config))
	}
	if err != nil {
		m.o.Log.Error("the lanes cannot be removed", "error", err)
		m.note(func() { m.problem, m.held = err.Error(), nil })
		return
	}
	m.mu.Lock()
	m.problem, m.held, m.removed = "", nil, true
	clear(m.granted)
	m.drifts = map[string][]string{}
	m.mu.Unlock()
	m.commit(next)
}

// gone removes a file, if it exists.
func gone(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
