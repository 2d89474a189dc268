// SPDX-License-Identifier: Apache-2.0

package device

import "testing"

// TestLeaves checks that a class has a transmit queue while it has no child classes.
func TestLeaves(t *testing.T) {
	s := &State{Devices: []Device{{Name: "d0", TxQueues: 4}}}
	class := func(id, parent string) Class {
		return Class{Dev: "d0", ID: id, Parent: parent, Rate: 8, Ceil: 8, Offload: true}
	}
	root, a, b := class("1:1", "1:"), class("1:2", "1:1"), class("1:10", "1:1")
	soft := class("1:11", "1:1")
	soft.Offload = false
	for i, step := range []struct {
		old, new Object
		want     int
	}{
		{nil, root, 5}, {nil, a, 5}, {nil, b, 6}, {nil, soft, 6}, {b, b, 6}, {a, nil, 5}, {b, nil, 4}, {soft, nil, 5},
		{root, nil, 4},
	} {
		s.Put(step.old, step.new)
		if got := s.Devices[0].TxQueues; got != step.want {
			t.Errorf("step %d: %d transmit queues, want %d", i, got, step.want)
		}
	}
}
