// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What is written, and where nothing is to be.
func TestBelow(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string // of the upper group
		want  map[string]string // "" for no group below
	}{
		{"unified", map[string]string{"cgroup.controllers": "cpuset cpu memory\n", "cgroup.subtree_control": ""},
			map[string]string{"cgroup.subtree_control": "+cpuset", "one/cpuset.cpus": "1-2", "one/cpuset.mems": "0"}},
		{"unified without cpuset", map[string]string{"cgroup.controllers": "cpu memory\n"}, nil},
		{"version 1", map[string]string{"cpuset.cpus": "0-3", "cpuset.mems": "0"},
			map[string]string{"one/cpuset.cpus": "1-2", "one/cpuset.mems": "0"}},
		{"another of version 1", map[string]string{"net_prio.ifpriomap": ""}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			below, err := Below(dir, "one", []int{1, 2}, []int{0})
			if err != nil {
				t.Fatal(err)
			}
			if want := filepath.Join(dir, "one"); (below == want) != (tt.want != nil) || below != want && below != dir {
				t.Errorf("%s of %s", below, dir)
			}
			for name, want := range tt.want {
				if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
					t.Errorf("%s: %q, %v; want %q", name, got, err, want)
				}
			}
		})
	}
}

// A process cannot leave a group below by placing itself, and with the upper
// group that goes too.
func TestBelowHolds(t *testing.T) {
	have, err := Find(nil)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("/niclane-test-below-%d", os.Getpid())
	dir := have.CpusetDir(name)
	if os.Geteuid() != 0 || dir == "" {
		t.Skip("not root, or no cpuset")
	}
	if have.V1["cpuset"] == "" {
		handDown(t, have.V2)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Remove(dir) })
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if have.V1["cpuset"] == "" {
			break // empty is what the group above has
		}
		above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), above, 0); err != nil {
			t.Fatal(err)
		}
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for cpu := 0; cpu < 1024 && len(cpus) < 2; cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	if len(cpus) < 2 {
		t.Skip("one processor")
	}
	below, err := Below(dir, "one", cpus[:1], []int{0})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Below(dir, "one", cpus[:1], []int{0}); err != nil || again != below {
		t.Errorf("a second process: %s, %v", again, err)
	}
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if err := os.WriteFile(filepath.Join(below, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Fatal(err)
	}
	set.Zero()
	set.Set(cpus[1])
	if err := unix.SchedSetaffinity(pid, &set); err != unix.EINVAL {
		t.Errorf("to processor %d: %v, want %v", cpus[1], err, unix.EINVAL)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if want := fmt.Sprintf("Cpus_allowed_list:\t%d\n", cpus[0]); err != nil || !strings.Contains(string(status), want) {
		t.Errorf("no %q in %s", want, status)
	}
	_ = in.Close()
	_ = cmd.Wait()
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
	if err := Remove(dir); err != nil {
		t.Errorf("gone: %v", err)
	}
}

// handDown has the groups below the unified root have cpusets, as long as the test
// runs. It skips where somebody else keeps that hierarchy.
func handDown(t *testing.T, root string) {
	t.Helper()
	file := filepath.Join(root, "cgroup.subtree_control")
	now, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(strings.Fields(string(now)), "cpuset") {
		return
	}
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("the unified hierarchy is systemd's, and hands no cpusets down")
	}
	if err := os.WriteFile(file, []byte("+cpuset"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(file, []byte("-cpuset"), 0); err != nil {
			t.Error(err)
		}
	})
}
