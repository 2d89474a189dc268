// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"bytes"
	"errors"
	"fmt"
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
// are no kernel threads to be found. One read of /proc serves all names.
func Find(names ...string) (map[string]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	found, began := map[string]int{}, map[string]uint64{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e)
		if err != nil {
			continue
		}
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
