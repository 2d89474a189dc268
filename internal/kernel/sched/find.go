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

// kernelThread is PF_KTHREAD of linux/sched.h, which no process can give
// itself, unlike a name.
const kernelThread = 0x00200000

// Find returns the PIDs of the kernel threads with the given names. Of several
// with one name it is the one that began last: a thread that the kernel is
// about to end keeps its name. In a PID namespace other than the first there
// are no kernel threads to be found. One look serves all names.
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

// kthreadd makes all kernel threads.
const kthreadd = 2

// kernelThreads lists kthreadd's children: on a busy machine a small part of
// the processes. The list leaves some out if others end while it is read
// (proc_pid_task_children(5)): it is nil unless two readings are the same, and
// without CONFIG_PROC_CHILDREN.
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

// numbers leaves out what is none.
func numbers(words []string) []int {
	var out []int
	for _, w := range words {
		if n, err := strconv.Atoi(w); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// among returns those of the processes that Find looks for.
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

// IsKernelThread says whether pid is a kernel thread of that name.
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

// stat reads a thread's flags and when it began, in clock ticks since the
// machine did (proc_pid_stat(5), fields 9 and 22).
func stat(pid int) (flags, start uint64, err error) {
	b, err := read(fmt.Sprintf("/proc/%d/stat", pid), 4096)
	if err != nil {
		return 0, 0, err
	}
	return parseStat(b)
}

func parseStat(b []byte) (flags, start uint64, err error) {
	// The name, field 2, is in parentheses and may hold any of them.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return 0, 0, fmt.Errorf("%d fields of /proc/PID/stat after the name: %w", len(f), unix.EBADMSG)
	}
	if flags, err = strconv.ParseUint(f[6], 10, 64); err == nil {
		start, err = strconv.ParseUint(f[19], 10, 64)
	}
	return flags, start, err
}
