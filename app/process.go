// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/sched"
)

// A Process is identified by its PID and its start time, because the kernel reuses PIDs.
type Process struct {
	PID int `json:"pid"`
	// Start is the start time in clock ticks since boot (proc_pid_stat(5), field 22).
	Start uint64 `json:"start"`
}

// FindProcess returns the process with a PID. If it no longer exists or is a zombie, the error is
// ESRCH.
func FindProcess(pid int) (Process, error) {
	st, err := readStat(pid)
	if err != nil {
		return Process{}, err
	}
	if st.state == 'Z' || st.state == 'X' {
		return Process{}, fmt.Errorf("process %d has ended: %w", pid, unix.ESRCH)
	}
	return Process{PID: pid, Start: st.start}, nil
}

// Alive reports whether the process still exists. If it cannot find out, it returns true.
func (p Process) Alive() bool {
	now, err := FindProcess(p.PID)
	return err == nil && now == p || err != nil && !errors.Is(err, unix.ESRCH)
}

type stat struct {
	state  byte
	parent int
	start  uint64
}

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return stat{}, fmt.Errorf("no process %d: %w", pid, unix.ESRCH)
	}
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(b))
}

// parseStat parses the text of proc_pid_stat(5). The process's name in it is in parentheses and may
// contain parentheses itself. So the fields after the name begin after the last ")".
func parseStat(text string) (stat, error) {
	end := strings.LastIndex(text, ")")
	f := strings.Fields(text[end+1:])
	if end < 0 || len(f) < 20 || len(f[0]) != 1 {
		return stat{}, fmt.Errorf("stat: %.60q", text)
	}
	parent, err1 := strconv.Atoi(f[1])
	start, err2 := strconv.ParseUint(f[19], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return stat{}, fmt.Errorf("stat: %w", err)
	}
	return stat{state: f[0][0], parent: parent, start: start}, nil
}

// processes returns the PIDs that this process sees, ascending.
func processes() ([]int, error) { return numbered("/proc") }

// numbered returns the entries of a directory whose names are numbers, ascending.
func numbered(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

// descendants returns pid and its descendants, parents first.
func descendants(pid int) ([]int, error) {
	pids, err := processes()
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, n := range pids {
		if st, err := readStat(n); err == nil {
			children[st.parent] = append(children[st.parent], n)
		}
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all, nil
}

// threads returns the thread IDs of a process. If the process no longer exists, there are none.
func threads(pid int) []int {
	tids, _ := numbered("/proc/" + strconv.Itoa(pid) + "/task")
	return tids
}

// affinity returns the processors that a thread may run on.
func affinity(tid int) ([]int, error) { return sched.Affinity(tid) }

// setAffinity sets the processors on which a thread may run. tid 0 is the calling thread.
func setAffinity(tid int, cpus []int) error { return sched.SetAffinity(tid, cpus) }
