// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/plan"
)

// SetHealth says why lanes are not healthy, by lane; "" is all of them.
func (n *Node) SetHealth(drifts map[string][]string) {
	n.mu.Lock()
	n.drifts = drifts
	n.mu.Unlock()
	n.publish()
}

// Lanes are the lanes as they were last planned.
func (n *Node) Lanes() []plan.FittedLane {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.applied == nil {
		return nil
	}
	return n.applied.Plan.Lanes
}

// A Status is how the node follows its policy.
type Status struct {
	// Policy and Generation of what is wanted, "" if no policy selects the node.
	Policy     string
	Generation int64
	// Applied says that the card is as the policy says; Problem why not.
	Applied bool
	Problem string
	// Held says by class what waits for pods; "" is the device.
	Held map[string]string
	// Unhealthy are the reasons why lanes do not hold.
	Unhealthy []string
	Devices   []string
}

// Status returns it.
func (n *Node) Status() Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := Status{Problem: n.problem, Held: maps.Clone(n.held)}
	if n.wanted != nil {
		s.Policy, s.Generation = n.wanted.name, n.wanted.generation
	}
	s.Applied = n.problem == "" && len(n.held) == 0
	for _, lane := range slices.Sorted(maps.Keys(n.drifts)) {
		for _, why := range n.drifts[lane] {
			if lane != "" {
				why = "lane " + lane + ": " + why
			}
			s.Unhealthy = append(s.Unhealthy, why)
		}
	}
	if n.applied != nil {
		s.Devices = n.applied.Plan.Devices
	}
	return s
}

// String gives the problem and what is held, for people.
func (s *Status) String() string {
	if s.Problem != "" {
		return s.Problem
	}
	var out []string
	for _, class := range slices.Sorted(maps.Keys(s.Held)) {
		name := "class " + class
		if class == "" {
			name = "uplink"
		}
		out = append(out, name+": "+s.Held[class])
	}
	return strings.Join(out, "; ")
}
