// SPDX-License-Identifier: Apache-2.0

package soak

import "testing"

// TestJudge: judge finds growth and lost answers.
func TestJudge(t *testing.T) {
	for name, p := range map[string]*Process{
		"descriptors": {Answers: 1, seen: []Usage{{10, 1000, 5}, {10, 1000, 5}, {11, 1000, 5}, {50, 1000, 5}}},
		"memory":      {Answers: 1, seen: []Usage{{10, 1000, 5}, {10, 1000, 5}, {11, 1000, 5}, {10, 20000, 5}}},
		"threads":     {Answers: 1, seen: []Usage{{10, 1000, 5}, {10, 1000, 5}, {11, 1000, 5}, {10, 1000, 50}}},
		"lost":        {Answers: 1, Lost: 1, seen: []Usage{{10, 1000, 5}, {10, 1000, 5}}},
		"silent":      {seen: []Usage{{10, 1000, 5}, {10, 1000, 5}}},
	} {
		if faults := p.judge(); len(faults) != 1 {
			t.Errorf("%s: found %q", name, faults)
		}
	}
	p := &Process{Answers: 1, seen: []Usage{{90, 90000, 90}, {10, 1000, 5}, {12, 1100, 6}, {10, 1000, 5},
		{13, 1200, 7}}}
	if faults := p.judge(); len(faults) > 0 {
		t.Errorf("what does not grow: found %q", faults)
	}
}
