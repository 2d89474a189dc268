// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// Lines returns a text about a group of listeners: one line for the group, then one for each
// listener.
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
			lines = append(lines, fmt.Sprintf("  processor %d, as given", l.CPU))
		case l.Home != "" && l.PID != 0:
			lines = append(lines, fmt.Sprintf("  any of processors %s: process %d", l.Home, l.PID))
		case l.Home != "":
			lines = append(lines, fmt.Sprintf("  any of processors %s", l.Home))
		default:
			lines = append(lines, "  processor not known: "+l.Why)
		}
	}
	return lines
}

// WriteApplications prints which applications are in lanes of this network namespace, and the state
// of their listeners. If there are none, it prints nothing.
func WriteApplications(w io.Writer, runDir string) error {
	rs, err := List(runDir)
	if err != nil || len(rs) == 0 {
		return err
	}
	s, err := Open(runDir)
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Fprintln(w)
	for _, r := range rs {
		line := fmt.Sprintf("lane %s: %s", r.Lane.Name, r.Called())
		if len(r.CPUs) > 0 {
			line += ", on processors " + device.FormatCPUList(r.CPUs)
		}
		if r.Left() {
			line += "; it has left the lane's control group: niclane detach, then attach it again"
		}
		fmt.Fprintln(w, line)
		report, err := s.Report(r.ID)
		if err != nil {
			return err
		}
		if report.Error != "" {
			fmt.Fprintln(w, "  its listeners were not found:", report.Error)
		}
		for _, g := range report.Groups {
			for _, l := range g.Lines() {
				fmt.Fprintln(w, "  "+l)
			}
		}
	}
	return nil
}

// Called returns the application's name for messages.
func (r *Record) Called() string {
	switch {
	case r.Unit != "":
		return r.Unit
	case r.Container != "":
		return "container " + r.Container
	case r.Tap != "":
		return "the machine at " + r.Tap
	case len(r.Command) > 0:
		name, _, _ := strings.Cut(r.Command[0], " ")
		return fmt.Sprintf("process %d (%s)", r.Process.PID, strings.TrimSuffix(path.Base(name), ":"))
	}
	return fmt.Sprintf("process %d", r.Process.PID)
}
