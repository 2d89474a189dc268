// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// A reader reads files by absolute path. *hostfs.FS is one.
type reader interface {
	ReadFile(name string) ([]byte, error)
	ReadDir(name string) ([]string, error)
}

const (
	cpuDir  = "/sys/devices/system/cpu/"
	nodeDir = "/sys/devices/system/node/"
)

// cpus reads the processors and their NUMA nodes. An offline processor has no topology in sysfs:
// its core and package are -1. A kernel without NUMA has only node 0. cgroup is the mount point
// of the unified hierarchy, "" for none.
func cpus(r reader, cgroup string) ([]device.CPU, error) {
	present, err := readList(r, cpuDir+"present")
	if err != nil {
		return nil, err
	}
	online, err := readList(r, cpuDir+"online")
	if err != nil {
		return nil, err
	}
	nodes, err := nodesByCPU(r)
	if err != nil {
		return nil, err
	}
	// If a file is missing, it names no processors.
	kept := map[int]string{}
	for _, f := range []struct{ name, by string }{
		{cpuDir + "nohz_full", "nohz_full"}, {cpuDir + "isolated", "isolated"},
		{cgroup + "/cpuset.cpus.isolated", "isolated"},
	} {
		if strings.HasPrefix(f.name, "/cpuset") {
			continue
		}
		ids, err := readList(r, f.name)
		if err != nil {
			continue // missing, or "(null)": nohz_full without processors
		}
		for _, id := range ids {
			kept[id] = f.by
		}
	}
	out := make([]device.CPU, 0, len(present))
	for _, id := range present {
		dir := cpuDir + "cpu" + strconv.Itoa(id) + "/topology/"
		c := device.CPU{ID: id, Online: slices.Contains(online, id), Node: nodes[id], Kept: kept[id]}
		if c.Core, err = readInt(r, dir+"core_id", -1); err != nil {
			return nil, err
		}
		if c.Package, err = readInt(r, dir+"physical_package_id", -1); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func nodesByCPU(r reader) (map[int]int, error) {
	names, err := r.ReadDir(strings.TrimSuffix(nodeDir, "/"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := map[int]int{}
	for _, name := range names {
		node, err := strconv.Atoi(strings.TrimPrefix(name, "node"))
		if err != nil || !strings.HasPrefix(name, "node") {
			continue
		}
		ids, err := readList(r, nodeDir+name+"/cpulist")
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			m[id] = node
		}
	}
	return m, nil
}

func readList(r reader, name string) ([]int, error) {
	b, err := r.ReadFile(name)
	if err != nil {
		return nil, err
	}
	ids, err := device.ParseCPUList(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return ids, nil
}

// readInt reads a number from a file. If the file does not exist, it returns absent.
func readInt(r reader, name string, absent int) (int, error) {
	b, err := r.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return absent, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}
