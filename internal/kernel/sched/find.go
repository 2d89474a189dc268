// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelThread is PF_KTHREAD of linux/sched.h. A process can take a kernel thread's name, but
// cannot set this flag.
const kernelThread = 0x00200000

// Find returns the PIDs of the kernel threads with the given names. If several threads have one
// name, it returns the one that started last, because a thread that is about to end keeps its
// name. Only the initial PID namespace shows kernel threads. Pass all names in one call: each
// call searches all threads.
func Find(names ...string) (map[string]int, error) {
	pids, err := kernelThreads()
	if err != nil {
		return nil, err
	}
	found, err := among(pids, names)
	if err != nil || len(found) == len(names) {
		return found, err
	}
	if pids, err = processes(); err != nil {
		return nil, err
	}
	return among(pids, names)
}

// kthreadd is the PID of the parent of all kernel threads.
const kthreadd = 2

// kernelThreads lists kthreadd's children, which on a busy machine are a small part of all
// processes. The kernel's list may lack a child if another child ends during the read
// (proc_pid_task_children(5)). So kernelThreads returns nil if two reads differ. It also
// returns nil if the kernel lacks CONFIG_PROC_CHILDREN.
func kernelThreads() ([]int, error) {
	var before []byte
	for range 2 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", kthreadd))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if before != nil && bytes.Equal(b, before) {
			return numbers(strings.Fields(string(b))), nil
		}
		before = b
	}
	return nil, nil
}

func processes() ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.Readdirnames(-1)
	return numbers(entries), err
}

// numbers returns the words that are numbers.
func numbers(words []string) []int {
	var out []int
	for _, w := range words {
		if n, err := strconv.Atoi(w); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// among returns what Find returns, but looks only at the threads in pids.
func among(pids []int, names []string) (map[string]int, error) {
	found, began := map[string]int{}, map[string]uint64{}
	for _, pid := range pids {
		name, err := Name(pid)
		if errors.Is(err, unix.ESRCH) || err == nil && !slices.Contains(names, name) {
			continue
		}
		if err != nil {
			return nil, err
		}
		flags, start, err := stat(pid)
		if errors.Is(err, unix.ESRCH) || err == nil && flags&kernelThread == 0 {
			continue
		}
		if err != nil {
			return nil, err
		}
		if old, ok := found[name]; !ok || start > began[name] || start == began[name] && pid > old {
			found[name], began[name] = pid, start
		}
	}
	return found, nil
}

// IsKernelThread reports whether pid is a kernel thread with that name.
func IsKernelThread(pid int, name string) (bool, error) {
	got, err := Name(pid)
	if err == nil && got == name {
		var flags uint64
		flags, _, err = stat(pid)
		return err == nil && flags&kernelThread != 0, ignoreGone(err)
	}
	return false, ignoreGone(err)
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// stat returns a thread's flags and its start time, in clock ticks since boot
// (proc_pid_stat(5), fields 9 and 22).
func stat(pid int) (flags, start uint64, err error) {
	b, err := read(fmt.Sprintf("/proc/%d/stat", pid), 4096)
	if err != nil {
		return 0, 0, err
	}
	return parseStat(b)
}

func parseStat(b []byte) (flags, start uint64, err error) {
	// Field 2, the name, is in parentheses and may contain spaces and parentheses.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return 0, 0, fmt.Errorf("%d fields of /proc/PID/stat after the name: %w", len(f), unix.EBADMSG)
	}
	if flags, err = strconv.ParseUint(f[6], 10, 64); err == nil {
		start, err = strconv.ParseUint(f[19], 10, 64)
	}
	return flags, start, err
}
