// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name string
		want device.Cgroup
	}{
		// A Debian 12 host: one hierarchy of version 2.
		{"v2", device.Cgroup{V2: "/sys/fs/cgroup"}},
		// systemd's hybrid mode: version 1 controllers, version 2 for systemd itself.
		{"hybrid", device.Cgroup{V2: "/sys/fs/cgroup/unified", V1: map[string]string{
			"cpuset": "/sys/fs/cgroup/cpuset", "cpu": "/sys/fs/cgroup/cpu,cpuacct",
			"cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
			"net_cls": "/sys/fs/cgroup/net_cls,net_prio", "net_prio": "/sys/fs/cgroup/net_cls,net_prio",
			"freezer": "/sys/fs/cgroup/freezer",
		}}},
		{"v1", device.Cgroup{V1: map[string]string{
			"cpuset": "/sys/fs/cgroup/cpuset", "memory": "/sys/fs/cgroup/memory",
		}}},
		// A container that has a part of the hierarchy, and the host's whole one at /host.
		{"container", device.Cgroup{V2: "/host/sys/fs/cgroup"}},
		{"space", device.Cgroup{V2: "/mnt/my cgroups\\x"}},
		{"none", device.Cgroup{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join("testdata", tt.name+".mountinfo"))
			must.Do(t, err)
			if diff := cmp.Diff(tt.want, Parse(string(b))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMounts(t *testing.T) {
	c := device.Cgroup{V2: "/c/unified", V1: map[string]string{"cpu": "/c/cpu,cpuacct", "cpuacct": "/c/cpu,cpuacct",
		"cpuset": "/c/cpuset"}}
	want := []string{"/c/cpu,cpuacct", "/c/cpuset", "/c/unified"}
	if diff := cmp.Diff(want, Mounts(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFind compares Find's result on this machine with the kernel's view of this process.
func TestFind(t *testing.T) {
	c, err := Find([]string{"/", "/niclane-no-such-group"})
	must.Do(t, err)
	if c.V2 == "" && len(c.V1) == 0 {
		t.Skip("no control groups are mounted here")
	}
	for _, m := range Mounts(c) {
		if _, err := os.Stat(filepath.Join(m, "cgroup.procs")); err != nil {
			t.Errorf("%s is not a control group: %v", m, err)
		}
	}
	if c.CpusetDir("/") == "" {
		t.Skip("no cpuset controller here")
	}
	want := map[string]bool{"/": true, "/niclane-no-such-group": false}
	if diff := cmp.Diff(want, c.Groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	seeds, err := filepath.Glob("testdata/*.mountinfo")
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no samples: %v", err)
	}
	for _, s := range seeds {
		b, err := os.ReadFile(s)
		must.Do(f, err)
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := Parse(s)
		for controller, point := range c.V1 {
			if controller == "" || point == "" || strings.ContainsAny(controller, "=,") {
				t.Errorf("controller %q at %q", controller, point)
			}
		}
	})
}
