// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"strconv"
	"strings"
)

// Lines describes a group, for people.
func (g ListenGroup) Lines() []string {
	if len(g.Listeners) == 0 {
		return nil
	}
	head := fmt.Sprintf("%s: %d listeners", g.Listeners[0].Local, len(g.Listeners))
	if len(g.Listeners) == 1 {
		head = fmt.Sprintf("%s: 1 listener", g.Listeners[0].Local)
	}
	switch {
	case g.Led && g.Why != "":
		head += ", connections are led to them by queue; " + g.Why
	case g.Led:
		head += ", connections are led to them by queue"
	default:
		head += ", left to the kernel: " + g.Why
	}
	lines := []string{head}
	for _, l := range g.Listeners {
		switch {
		case l.CPU != unknown && l.Thread != 0:
			lines = append(lines, fmt.Sprintf("  processor %d: thread %d of process %d", l.CPU, l.Thread, l.PID))
		case l.CPU != unknown && l.PID != 0:
			lines = append(lines, fmt.Sprintf("  processor %d: process %d", l.CPU, l.PID))
		case l.CPU != unknown:
			lines = append(lines, fmt.Sprintf("  processor %d, as told", l.CPU))
		default:
			lines = append(lines, "  processor not known: "+l.Why)
		}
	}
	return lines
}

func numbers(ports []uint16) string {
	s := make([]string, len(ports))
	for i, p := range ports {
		s[i] = strconv.Itoa(int(p))
	}
	return strings.Join(s, ", ")
}
