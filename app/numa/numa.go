// SPDX-License-Identifier: Apache-2.0

// Package numa reads from sysfs which NUMA nodes a machine has, and on which node a path's drive
// is. It decides nothing.
package numa

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// A Sys is the directory that contains sysfs under the name sys. For /sys it is "/".
type Sys string

func (s Sys) path(elem ...string) string {
	return filepath.Join(append([]string{string(s), "sys"}, elem...)...)
}

// Nodes returns the nodes, ascending. On a kernel without NUMA it returns node 0 with all
// processors and a nominal amount of memory.
func (s Sys) Nodes() ([]Node, error) {
	online, err := s.list("devices/system/cpu/online")
	if err != nil {
		return nil, err
	}
	present, err := s.list("devices/system/cpu/present")
	if err != nil {
		return nil, err
	}
	ids, err := s.list("devices/system/node/online")
	if errors.Is(err, fs.ErrNotExist) {
		n := Node{CPUs: online, Memory: 1, Distance: map[int]int{0: 10}}
		n.Offline = without(present, online)
		return []Node{n}, nil
	}
	if err != nil {
		return nil, err
	}
	var nodes []Node
	for _, id := range ids {
		n, err := s.node(id, ids, online, present)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

func (s Sys) node(id int, ids, online, present []int) (Node, error) {
	dir := "devices/system/node/node" + strconv.Itoa(id) + "/"
	n := Node{ID: id, Distance: map[int]int{}}
	all, err := s.list(dir + "cpulist")
	if err != nil {
		return n, err
	}
	// The kernel removes an offline processor from its node's list (unregister_cpu_under_node). But if
	// the platform told the kernel the processor's node, the processor's directory still has a link to
	// it.
	for _, cpu := range present {
		if slices.Contains(all, cpu) || slices.Contains(online, cpu) {
			continue
		}
		if _, err := os.Stat(s.path("devices/system/cpu/cpu"+strconv.Itoa(cpu), "node"+strconv.Itoa(id))); err == nil {
			all = append(all, cpu)
		}
	}
	slices.Sort(all)
	for _, cpu := range all {
		if slices.Contains(online, cpu) {
			n.CPUs = append(n.CPUs, cpu)
		} else {
			n.Offline = append(n.Offline, cpu)
		}
	}
	if n.Memory, err = s.memory(dir + "meminfo"); err != nil {
		return n, err
	}
	// The file has one distance for each online node, in the order of ids.
	b, err := os.ReadFile(s.path(dir + "distance"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return n, err
	}
	for i, f := range strings.Fields(string(b)) {
		d, err := strconv.Atoi(f)
		if err != nil || i >= len(ids) {
			return n, fmt.Errorf("%s: found %q for nodes %v", s.path(dir+"distance"), strings.TrimSpace(string(b)), ids)
		}
		n.Distance[ids[i]] = d
	}
	return n, nil
}

// memory returns the amount of memory in bytes. It reads a file with a line like "Node 1 MemTotal:
// 1234 kB".
func (s Sys) memory(name string) (uint64, error) {
	b, err := os.ReadFile(s.path(name))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 5 || f[2] != "MemTotal:" {
			continue
		}
		kib, err := strconv.ParseUint(f[3], 10, 54)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.path(name), err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("%s: no MemTotal", s.path(name))
}

func (s Sys) list(name string) ([]int, error) {
	b, err := os.ReadFile(s.path(name))
	if err != nil {
		return nil, err
	}
	ids, err := device.ParseCPUList(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path(name), err)
	}
	return ids, nil
}

// Cards returns the devices at which packets arrive. If bond is "", these are all devices of the
// state, otherwise the slaves of bond.
func Cards(st *device.State, bond string) []Device {
	var out []Device
	for _, d := range st.Devices {
		if bond == "" || d.Master == bond {
			out = append(out, Device{Name: d.Name, Node: d.Node})
		}
	}
	return out
}

func without(all, some []int) []int {
	return slices.DeleteFunc(slices.Clone(all), func(x int) bool { return slices.Contains(some, x) })
}

// Storage returns the NUMA node of the drive under a path's file system. It returns -1 if there is
// no drive (tmpfs, a network file system), if the node is unknown, or if there are several drives
// on different nodes.
func (s Sys) Storage(path string) (int, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return -1, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return s.Block(unix.Major(st.Dev), unix.Minor(st.Dev))
}

// Block does for a block device what Storage does for a path.
func (s Sys) Block(major, minor uint32) (int, error) {
	dir, err := filepath.EvalSymlinks(s.path("dev/block", fmt.Sprintf("%d:%d", major, minor)))
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil // no block device: tmpfs, btrfs, overlay, NFS
	}
	if err != nil {
		return -1, err
	}
	return s.drive(dir, 0)
}

// drive returns the node of the drive behind a block device. dir is the device's directory in
// sysfs. For dm and md, it is the node of the devices below them. Otherwise, it is the node of the
// nearest parent device that has a node.
func (s Sys) drive(dir string, depth int) (int, error) {
	slaves, err := os.ReadDir(filepath.Join(dir, "slaves"))
	if err == nil && len(slaves) > 0 && depth < 8 {
		node := -1
		for i, e := range slaves {
			below, err := filepath.EvalSymlinks(filepath.Join(dir, "slaves", e.Name()))
			if err != nil {
				return -1, err
			}
			n, err := s.drive(below, depth+1)
			if err != nil || i > 0 && n != node {
				return -1, err
			}
			node = n
		}
		return node, nil
	}
	top, err := filepath.EvalSymlinks(s.path("devices"))
	if err != nil {
		return -1, err
	}
	for ; strings.HasPrefix(dir, top+"/"); dir = filepath.Dir(dir) {
		b, err := os.ReadFile(filepath.Join(dir, "numa_node"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return -1, err
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			return -1, fmt.Errorf("%s: %w", filepath.Join(dir, "numa_node"), err)
		}
		return n, nil
	}
	return -1, nil
}
