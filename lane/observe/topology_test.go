// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"io/fs"
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

// A tree is a sysfs in memory.
type tree fstest.MapFS

func (m tree) ReadFile(name string) ([]byte, error) {
	return fstest.MapFS(m).ReadFile(strings.TrimPrefix(name, "/"))
}

func (m tree) ReadDir(name string) ([]string, error) {
	entries, err := fs.ReadDir(fstest.MapFS(m), strings.TrimPrefix(name, "/"))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func sysfs(files map[string]string) tree {
	m := tree{}
	for name, content := range files {
		m["sys/devices/system/"+name] = &fstest.MapFile{Data: []byte(content + "\n")}
	}
	return m
}

func TestCPUs(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  []device.CPU
	}{
		{
			"two sockets, hyperthreads, one CPU offline",
			map[string]string{
				"cpu/present": "0-3", "cpu/online": "0-2",
				"cpu/cpu0/topology/core_id": "0", "cpu/cpu0/topology/physical_package_id": "0",
				"cpu/cpu1/topology/core_id": "0", "cpu/cpu1/topology/physical_package_id": "1",
				"cpu/cpu2/topology/core_id": "0", "cpu/cpu2/topology/physical_package_id": "0",
				"node/node0/cpulist": "0,2", "node/node1/cpulist": "1,3", "node/online": "0-1",
				"node/power/control": "auto",
			},
			[]device.CPU{
				{ID: 0, Online: true, Node: 0, Core: 0, Package: 0},
				{ID: 1, Online: true, Node: 1, Core: 0, Package: 1},
				{ID: 2, Online: true, Node: 0, Core: 0, Package: 0},
				{ID: 3, Node: 1, Core: -1, Package: -1},
			},
		},
		{
			"no NUMA, a hole",
			map[string]string{
				"cpu/present": "0,2", "cpu/online": "0,2",
				"cpu/cpu0/topology/core_id": "0", "cpu/cpu0/topology/physical_package_id": "0",
				"cpu/cpu2/topology/core_id": "2", "cpu/cpu2/topology/physical_package_id": "0",
			},
			[]device.CPU{{ID: 0, Online: true}, {ID: 2, Online: true, Core: 2}},
		},
		{
			"a node without CPUs",
			map[string]string{"cpu/present": "0", "cpu/online": "0", "node/node0/cpulist": "0",
				"node/node1/cpulist": ""},
			[]device.CPU{{ID: 0, Online: true, Core: -1, Package: -1}},
		},
		{
			"some kept free of work",
			map[string]string{"cpu/present": "0-3", "cpu/online": "0-3", "cpu/isolated": "2-3", "cpu/nohz_full": "1-2",
				"node/node0/cpulist": "0-3"},
			[]device.CPU{
				{ID: 0, Online: true, Core: -1, Package: -1},
				{ID: 1, Online: true, Core: -1, Package: -1, Kept: "nohz_full"},
				{ID: 2, Online: true, Core: -1, Package: -1, Kept: "isolated"},
				{ID: 3, Online: true, Core: -1, Package: -1, Kept: "isolated"},
			},
		},
		{
			"none kept, as kernels say it",
			map[string]string{"cpu/present": "0", "cpu/online": "0", "cpu/isolated": "", "cpu/nohz_full": "(null)",
				"node/node0/cpulist": "0"},
			[]device.CPU{{ID: 0, Online: true, Core: -1, Package: -1}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := cpus(sysfs(tt.files), "")
			must.Do(t, err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCPUsErrors(t *testing.T) {
	good := map[string]string{"cpu/present": "0", "cpu/online": "0", "cpu/cpu0/topology/core_id": "0",
		"node/node0/cpulist": "0"}
	for name, bad := range map[string]string{
		"cpu/present": "0-", "cpu/online": "x", "cpu/cpu0/topology/core_id": "", "node/node0/cpulist": "3-1",
	} {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(good)
			files[name] = bad
			if _, err := cpus(sysfs(files), ""); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%v, want an error that names %s", err, name)
			}
		})
	}
}

// TestCPUsOfPartitions: isolated cpuset partitions are listed in a file of the root control group
// (Linux 6.7).
func TestCPUsOfPartitions(t *testing.T) {
	tree := sysfs(map[string]string{"cpu/present": "0-1", "cpu/online": "0-1", "node/node0/cpulist": "0-1"})
	tree["sys/fs/cgroup/cpuset.cpus.isolated"] = &fstest.MapFile{Data: []byte("1\n")}
	got, err := cpus(tree, "/sys/fs/cgroup")
	must.Do(t, err)
	if len(got) != 2 || got[0].Kept != "" || got[1].Kept != "isolated" {
		t.Errorf("got %+v, want processor 1 isolated", got)
	}
}
