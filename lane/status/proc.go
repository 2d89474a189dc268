// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseInterrupts parses /proc/interrupts (proc_interrupts(5)). The result maps an IRQ to the
// number of its interrupts on all online processors.
func ParseInterrupts(text string) map[int]uint64 {
	out := map[int]uint64{}
	cpus := -1
	for line := range strings.Lines(text) {
		head, rest, ok := strings.Cut(line, ":")
		if !ok {
			if cpus < 0 {
				cpus = len(strings.Fields(line))
			}
			continue
		}
		irq, err := strconv.Atoi(strings.TrimSpace(head))
		if err != nil || irq < 0 || cpus < 0 {
			continue // NMI, LOC, ...
		}
		f := strings.Fields(rest)
		var sum uint64
		for _, n := range f[:min(cpus, len(f))] {
			v, err := strconv.ParseUint(n, 10, 64)
			if err != nil {
				break
			}
			sum += v
		}
		out[irq] = sum
	}
	return out
}

// ParseThread parses a thread's files /proc/PID/status and /proc/PID/schedstat (proc(5)). The
// first number of schedstat is the thread's time on a processor in ns.
func ParseThread(status, schedstat string) (Thread, error) {
	var t Thread
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		var err error
		switch name {
		case "State":
			t.State, _, _ = strings.Cut(value, " ")
		case "voluntary_ctxt_switches":
			t.Voluntary, err = strconv.ParseUint(value, 10, 64)
		case "nonvoluntary_ctxt_switches":
			t.Involuntary, err = strconv.ParseUint(value, 10, 64)
		}
		if err != nil {
			return Thread{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	if t.State == "" {
		return Thread{}, fmt.Errorf("no State in %.40q", status)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(schedstat), " ")
	var err error
	if t.CPU, err = strconv.ParseUint(first, 10, 64); err != nil {
		return Thread{}, fmt.Errorf("schedstat: %w", err)
	}
	return t, nil
}
