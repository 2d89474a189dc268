// SPDX-License-Identifier: Apache-2.0

package hiccup

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/bench/part/thread"
)

// Host is what else the machine did in the window.
type Host struct {
	// Load1 is the 1-minute load average.
	Load1 float64 `json:"load1"`
	// Autogroup is the state of sched_autogroup. It divides the CPU between Unix sessions, so
	// that nice values have no effect across them. "absent": the kernel does not have it.
	Autogroup string `json:"autogroup"`
	// Busy lists the processes, without this one, whose CPU time was at least 1 % of the window:
	// at most ten, the busiest first.
	Busy []Process `json:"busy"`
}

// Process is a process that used CPU time in the window.
type Process struct {
	PID     int    `json:"pid"`
	Name    string `json:"name"`
	CPUTime int64  `json:"cpuTimeNs"`
}

// tick is the unit of times in /proc/stat and /proc/PID/stat, ns. USER_HZ is 100 on every
// architecture that Go supports.
const tick = 1e7

type times struct{ steal, busy, total int64 }

func (t times) minus(o times) times {
	return times{t.steal - o.steal, t.busy - o.busy, t.total - o.total}
}

type snapshot struct {
	cpus      map[int]times
	processes map[int]Process
	load1     float64
	autogroup string
	mono      int64
}

func readHost() (snapshot, error) {
	s := snapshot{autogroup: "absent", mono: thread.Monotonic()}
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return s, err
	}
	if s.cpus, err = parseStat(b); err != nil {
		return s, fmt.Errorf("/proc/stat: %w", err)
	}
	if b, err = os.ReadFile("/proc/loadavg"); err != nil {
		return s, err
	}
	if f := strings.Fields(string(b)); len(f) > 0 {
		if s.load1, err = strconv.ParseFloat(f[0], 64); err != nil {
			return s, fmt.Errorf("/proc/loadavg: %w", err)
		}
	}
	b, err = os.ReadFile("/proc/sys/kernel/sched_autogroup_enabled")
	switch {
	case err == nil && string(bytes.TrimSpace(b)) == "0":
		s.autogroup = "off"
	case err == nil:
		s.autogroup = "on"
	case !errors.Is(err, fs.ErrNotExist):
		return s, err
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return s, err
	}
	s.processes = make(map[int]Process, len(dirs))
	for _, d := range dirs {
		b, err := os.ReadFile(filepath.Join(d, "stat"))
		if err != nil {
			continue // it has ended
		}
		if p, err := parseProcess(b); err == nil {
			s.processes[p.PID] = p
		}
	}
	return s, nil
}

// since returns what the host did between the snapshots before and s.
func (s snapshot) since(before snapshot) Host {
	h := Host{Load1: s.load1, Autogroup: s.autogroup, Busy: []Process{}}
	for pid, p := range s.processes {
		p.CPUTime -= before.processes[pid].CPUTime // 0 before if the process is new
		if pid != os.Getpid() && p.CPUTime > 0 && p.CPUTime*100 >= s.mono-before.mono {
			h.Busy = append(h.Busy, p)
		}
	}
	slices.SortFunc(h.Busy, func(a, b Process) int {
		return cmp.Or(cmp.Compare(b.CPUTime, a.CPUTime), cmp.Compare(a.PID, b.PID))
	})
	h.Busy = h.Busy[:min(len(h.Busy), 10)]
	return h
}

// parseStat reads the cpuN lines of /proc/stat, proc_stat(5): user nice system
// idle iowait irq softirq steal guest guest_nice. Guest time is part of user.
func parseStat(b []byte) (map[int]times, error) {
	cpus := make(map[int]times)
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 9 || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
			continue
		}
		cpu, err := strconv.Atoi(f[0][3:])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", f[0], err)
		}
		var v [8]int64
		for i := range v {
			if v[i], err = strconv.ParseInt(f[i+1], 10, 64); err != nil {
				return nil, fmt.Errorf("%s: %w", f[0], err)
			}
			v[i] *= tick
		}
		t := times{steal: v[7], busy: v[0] + v[1] + v[2] + v[5] + v[6]}
		t.total = t.busy + t.steal + v[3] + v[4]
		cpus[cpu] = t
	}
	if len(cpus) == 0 {
		return nil, errors.New("no cpu lines")
	}
	return cpus, nil
}

// parseProcess reads /proc/PID/stat, proc_pid_stat(5). The name is in parentheses and may
// itself contain any character.
func parseProcess(b []byte) (Process, error) {
	s := string(b)
	from, to := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
	if from < 0 || to < from {
		return Process{}, errors.New("no name")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(s[:from]))
	if err != nil {
		return Process{}, err
	}
	f := strings.Fields(s[to+1:])
	if len(f) < 13 {
		return Process{}, errors.New("too few fields")
	}
	user, err1 := strconv.ParseInt(f[11], 10, 64) // field 14
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Name: s[from+1 : to], CPUTime: (user + system) * tick}, nil
}
