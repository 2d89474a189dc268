// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/hardware"
	"github.com/niclane/niclane/lane/device"
)

// A Host describes a host, as needed to judge or repeat a result. Unknown fields are empty.
type Host struct {
	Kernel, Distribution, CPUModel string
	CPUs                           int
	Memory                         int64 // bytes
	Virtualisation, Governor       string
	Mitigations, Sysctls           map[string]string
	Hardware                       *device.Hardware
}

// Describe returns a description of this host.
func Describe() Host {
	e := Host{CPUs: runtime.NumCPU(), Hardware: hardware.Read(), Mitigations: map[string]string{},
		Sysctls: map[string]string{}}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		e.Kernel = unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Version[:])
	}
	e.Distribution = strings.Trim(field("/etc/os-release", "PRETTY_NAME", "="), `"`)
	e.CPUModel = field("/proc/cpuinfo", "model name", ":")
	if kb, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal", ":"), " kB"), 10,
		64); err == nil {
		e.Memory = kb << 10
	}
	if strings.Contains(" "+field("/proc/cpuinfo", "flags", ":")+" ", " hypervisor ") {
		e.Virtualisation = "virtual machine"
		if vendor := line("/sys/class/dmi/id/sys_vendor"); vendor != "" {
			e.Virtualisation += " (" + vendor + ")"
		}
	}
	e.Governor = line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	paths, _ := filepath.Glob("/sys/devices/system/cpu/vulnerabilities/*")
	for _, p := range paths {
		if v := line(p); strings.HasPrefix(v, "Mitigation") {
			e.Mitigations[filepath.Base(p)] = v
		}
	}
	for _, s := range []string{"kernel/sched_autogroup_enabled", "kernel/sched_rt_runtime_us", "net/core/busy_poll",
		"net/core/busy_read", "net/core/default_qdisc", "net/core/netdev_max_backlog", "net/core/rmem_max",
		"net/core/somaxconn", "net/core/wmem_max", "net/ipv4/tcp_max_syn_backlog", "net/ipv4/tcp_mem",
		"net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem"} {
		if v := line("/proc/sys/" + s); v != "" {
			e.Sysctls[strings.ReplaceAll(s, "/", ".")] = v
		}
	}
	return e
}

// line returns the first line of a file, "" if it cannot be read.
func line(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(first)
}

// field returns the value of the first line "name SEPARATOR value" of a file; "": there is none.
func field(path, name, sep string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		k, v, ok := strings.Cut(sc.Text(), sep)
		if ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
