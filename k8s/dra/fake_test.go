// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/niclane/niclane/k8s/agent/inventory"
)

// fakeInventory is an inventory.Inventory in memory. It makes the checks that the documentation of
// the interface demands.
type fakeInventory struct {
	mu      sync.Mutex
	now     inventory.Snapshot
	changed chan struct{}
	holds   map[string]inventory.Hold
}

func newInventory(s inventory.Snapshot) *fakeInventory {
	s.Version = 1
	return &fakeInventory{now: s, changed: make(chan struct{}), holds: map[string]inventory.Hold{}}
}

func (f *fakeInventory) Now() *inventory.Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.now
	s.Classes = slices.Clone(s.Classes)
	for i := range s.Classes {
		s.Classes[i].Units = slices.Clone(s.Classes[i].Units)
	}
	return &s
}

func (f *fakeInventory) Changed(version uint64) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if version != f.now.Version {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return f.changed
}

// change changes the snapshot, as a change of the card or of the policy would.
func (f *fakeInventory) change(how func(*inventory.Snapshot)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how(&f.now)
	f.now.Version++
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeInventory) Hold(_ context.Context, h inventory.Hold) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old, ok := f.holds[h.Key]; ok && reflect.DeepEqual(old, h) {
		return nil
	}
	for _, want := range h.Units {
		c := f.now.Find(want.Class)
		if c == nil {
			return fmt.Errorf("class %s: %w", want.Class, inventory.ErrNoClass)
		}
		if want.Unit == "" {
			continue
		}
		u := c.Find(want.Unit)
		if u == nil {
			return fmt.Errorf("unit %s: %w", want.Unit, inventory.ErrNoUnit)
		}
		if u.Unhealthy != "" {
			return fmt.Errorf("unit %s: %w", want.Unit, inventory.ErrUnhealthy)
		}
		for key, other := range f.holds {
			if key != h.Key && slices.ContainsFunc(other.Units, func(o inventory.Held) bool {
				return o.Unit == want.Unit
			}) {
				return fmt.Errorf("unit %s: %w: %s", want.Unit, inventory.ErrHeld, other.Claim)
			}
		}
	}
	f.holds[h.Key] = h
	return nil
}

func (f *fakeInventory) Release(_ context.Context, key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.holds, key)
	return nil
}

func (f *fakeInventory) Holds() []inventory.Hold {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []inventory.Hold
	for _, key := range slices.Sorted(maps.Keys(f.holds)) {
		out = append(out, f.holds[key])
	}
	return out
}
