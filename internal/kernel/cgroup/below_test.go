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

	"github.com/niclane/niclane/internal/testing/must"
)

// TestBelow checks which files Below writes, and where it makes no group.
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
				must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			below, err := Below(dir, "one", []int{1, 2}, []int{0})
			must.Do(t, err)
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

// TestBelowHolds: a process cannot leave the lower group's CPUs by an affinity. Remove of the
// upper group also removes the lower one.
func TestBelowHolds(t *testing.T) {
	have, err := Find(nil)
	must.Do(t, err)
	name := fmt.Sprintf("/niclane-test-below-%d", os.Getpid())
	dir := have.CpusetDir(name)
	if os.Geteuid() != 0 || dir == "" {
		t.Skip("not root, or no cpuset")
	}
	if have.V1["cpuset"] == "" {
		handDown(t, have.V2)
	}
	must.Do(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() { _ = Remove(dir) })
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if have.V1["cpuset"] == "" {
			break // empty means the value of the group above
		}
		above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		must.Do(t, err)
		must.Do(t, os.WriteFile(filepath.Join(dir, file), above, 0))
	}
	var set unix.CPUSet
	must.Do(t, unix.SchedGetaffinity(0, &set))
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
	must.Do(t, err)
	if again, err := Below(dir, "one", cpus[:1], []int{0}); err != nil || again != below {
		t.Errorf("a second process: %s, %v", again, err)
	}
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	pid := cmd.Process.Pid
	must.Do(t, os.WriteFile(filepath.Join(below, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0))
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
	must.Do(t, Remove(dir))
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
	if err := Remove(dir); err != nil {
		t.Errorf("gone: %v", err)
	}
}

// handDown enables cpuset for the groups below the unified root while the test runs. It
// skips the test if another program manages that hierarchy.
func handDown(t *testing.T, root string) {
	t.Helper()
	file := filepath.Join(root, "cgroup.subtree_control")
	now, err := os.ReadFile(file)
	must.Do(t, err)
	if slices.Contains(strings.Fields(string(now)), "cpuset") {
		return
	}
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("the unified hierarchy is systemd's, and hands no cpusets down")
	}
	must.Do(t, os.WriteFile(file, []byte("+cpuset"), 0))
	t.Cleanup(func() {
		if err := os.WriteFile(file, []byte("-cpuset"), 0); err != nil {
			t.Error(err)
		}
	})
}
