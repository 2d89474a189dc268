// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"maps"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/plan"
)

// SetHealth sets, by lane, the reasons why the lane is not healthy. Key "" stands for all lanes.
func (m *Manager) SetHealth(drifts map[string][]string) {
	m.mu.Lock()
	m.drifts = drifts
	m.mu.Unlock()
	m.publish()
}

// Lanes returns the lanes of the last applied plan.
func (m *Manager) Lanes() []plan.FittedLane {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.applied == nil {
		return nil
	}
	return m.applied.Plan.Lanes
}

// A Status says how the node follows its policy.
type Status struct {
	// Known says that the node's policy is known. Policy and Generation are those of the
	// wanted policy; Policy is "" if no policy selects the node.
	Known      bool
	Policy     string
	Generation int64
	// Applied says that the card is as the policy says. Problem is the error that prevents it, "" if
	// there is none.
	Applied bool
	Problem string
	// Held says, by class, which changes wait until pods have ended. Key "" stands for the uplink.
	Held map[string]string
	// Unhealthy are the reasons why lanes are not as they were applied.
	Unhealthy []string
	Devices   []string
}

// Status returns the present status.
func (m *Manager) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Status{Problem: m.problem, Held: maps.Clone(m.held)}
	if m.wanted != nil {
		s.Known, s.Policy, s.Generation = true, m.wanted.name, m.wanted.generation
	}
	s.Applied = m.problem == "" && len(m.held) == 0
	for _, lane := range slices.Sorted(maps.Keys(m.drifts)) {
		for _, why := range m.drifts[lane] {
			if lane != "" {
				why = "lane " + lane + ": " + why
			}
			s.Unhealthy = append(s.Unhealthy, why)
		}
	}
	if m.applied != nil {
		s.Devices = m.applied.Plan.Devices
	}
	return s
}

// String returns, for people, the problem or else the changes that wait for pods.
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
