// SPDX-License-Identifier: Apache-2.0

package firstlane

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/niclane/niclane/bench/report"
)

// userHZ is what the kernel's ABI counts process and processor times in,
// whatever its own tick is (getconf CLK_TCK; proc(5)).
const userHZ = 100

const tick = 1e9 / userHZ // ns

// fields of a cpu line of /proc/stat that are reported.
var cpuFields = []struct {
	index int
	name  string
}{{1, "user"}, {3, "system"}, {6, "irq"}, {7, "softirq"}, {8, "steal"}, {4, "idle"}}

// cpuTimes reads the processors' times and those of processes by PID.
func cpuTimes(pids map[string]int) (map[string]int64, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	sc := bufio.NewScanner(bytes.NewReader(stat))
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 9 || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
			continue
		}
		for _, x := range cpuFields {
			n, err := strconv.ParseInt(f[x.index], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("/proc/stat: %w", err)
			}
			out[f[0]+" "+x.name] = n * tick
		}
	}
	for name, pid := range pids {
		if n, err := processTime(pid); err == nil {
			out[name] = n
		}
	}
	return out, sc.Err()
}

// processTime is the user and system time of a process, ns.
func processTime(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The command's name is in parentheses and may hold anything.
	_, rest, ok := strings.Cut(string(b[bytes.LastIndexByte(b, ')'):]), " ")
	f := strings.Fields(rest)
	if !ok || len(f) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(f))
	}
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("/proc/%d/stat: times %q %q", pid, f[11], f[12])
	}
	return (user + system) * tick, nil
}

// cpuUse is the difference of two readings that lie over ns apart, in a fixed
// order.
func cpuUse(before, after map[string]int64, order []string, over int64) []report.CPUUse {
	var out []report.CPUUse
	for _, what := range order {
		a, ok := after[what]
		if !ok {
			continue
		}
		out = append(out, report.CPUUse{What: what, Time: a - before[what], Over: over})
	}
	return out
}
