// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app"
	"github.com/niclane/niclane/internal/testing/must"
)

// A container is a runc container with the host's programs. It has its own network namespace
// unless host is true.
type container struct {
	id   string
	pid  int
	root string // runc's state directory
}

func (b *bed) container(host bool) *container {
	b.Helper()
	runc, err := exec.LookPath("runc")
	if err != nil {
		b.Skip("no runc here")
	}
	bundle := b.TempDir()
	c := &container{id: fmt.Sprintf("runc-test-%d-%t", os.Getpid(), host), root: filepath.Join(b.TempDir(), "runc")}
	must.Do(b, os.Mkdir(bundle+"/rootfs", 0o755))
	namespaces := []map[string]string{{"type": "pid"}, {"type": "mount"}}
	if !host {
		namespaces = append(namespaces, map[string]string{"type": "network"})
	}
	mounts := []map[string]any{{"destination": "/proc", "type": "proc", "source": "proc"}}
	for _, dir := range []string{"/bin", "/usr", "/lib", "/lib64"} {
		mounts = append(mounts, map[string]any{"destination": dir, "source": dir, "type": "bind",
			"options": []string{"rbind", "ro"}})
	}
	spec, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{"args": []string{"/bin/sleep", "1000"}, "cwd": "/",
			"user": map[string]int{"uid": 0, "gid": 0}},
		"root":   map[string]any{"path": "rootfs"},
		"mounts": mounts,
		"linux":  map[string]any{"namespaces": namespaces, "cgroupsPath": "/" + c.id},
	})
	if err == nil {
		err = os.WriteFile(bundle+"/config.json", spec, 0o600)
	}
	must.Do(b, err)
	pidFile := bundle + "/pid"
	log := bundle + "/log"
	cmd := exec.Command(runc, "--root", c.root, "--log", log, "run", "--detach", "--bundle", bundle, "--pid-file",
		pidFile, c.id)
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log)
		b.Fatalf("runc: %v: %s", err, text)
	}
	b.Cleanup(func() {
		if out, err := exec.Command(runc, "--root", c.root, "delete", "--force", c.id).CombinedOutput(); err != nil {
			b.Errorf("runc delete: %v: %s", err, out)
		}
	})
	text, err := os.ReadFile(pidFile)
	must.Do(b, err)
	if c.pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		b.Fatal(err)
	}
	return c
}

// allowed returns the processors on which a process may run.
func allowed(t *testing.T, pid int) (cpus []int) {
	t.Helper()
	var set unix.CPUSet
	must.Do(t, unix.SchedGetaffinity(pid, &set))
	for cpu := range 1024 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

func TestContainer(t *testing.T) {
	for _, host := range []bool{true, false} {
		t.Run(fmt.Sprintf("host network %t", host), func(t *testing.T) {
			b := newBed(t)
			b.T = t
			b.lane.Config, b.lane.Members = "/lanes.yaml",
				[]app.Member{{Protocol: "tcp", Addrs: []string{"10.88.0.2/32"}}}
			c := b.container(host)
			before := b.cgroups(c.pid)
			was := allowed(t, c.pid)
			if len(was) < 2 {
				t.Skip("one processor")
			}
			if !host {
				for _, a := range []string{"10.88.0.2/24", "10.88.0.3/24"} {
					if out, err := exec.Command("nsenter", "-t", strconv.Itoa(c.pid), "-n", "ip", "address", "add", a,
						"dev", "lo").CombinedOutput(); err != nil {
						t.Fatalf("%v: %s", err, out)
					}
				}
			}
			r := b.attach(options(b.dir), app.Target{Container: c.id})
			if r.Process.PID != c.pid {
				t.Errorf("process %d, want %d", r.Process.PID, c.pid)
			}
			if got := allowed(t, c.pid); len(got) != 1 || got[0] != 0 {
				t.Errorf("in the lane it runs on processors %v, want the lane's, 0", got)
			}
			notes := strings.Join(r.Notes, "\n")
			if strings.Contains(notes, "10.88.0.2 ") ||
				strings.Contains(notes, "10.88.0.3 is in no addrs of lane") == host {
				t.Errorf("notes: %s", notes)
			}
			b.detach(app.Choice{Container: c.id})
			if after := b.cgroups(c.pid); after != before {
				t.Errorf("groups after\n%sbefore\n%s", after, before)
			}
			if got := allowed(t, c.pid); len(got) != len(was) {
				t.Errorf("detached it runs on processors %v, before %v", got, was)
			}
			b.nothingLeft()

			if host {
				return
			}
			b.refusesInside(app.Target{Container: c.id}, "network namespace lose that",
				"--listeners cannot lead its connections")
			b.nothingLeft()
		})
	}
}
