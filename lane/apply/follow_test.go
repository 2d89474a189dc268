// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
)

// A meddled kernel runs shell commands before or after one write.
type meddled struct {
	*apply.System
	t     *testing.T
	at, n int
	after bool
	lines []string
}

func (m *meddled) Write(old, next device.Object) error {
	n := m.n
	m.n++
	if n == m.at && !m.after {
		commands(m.t, m.lines)
	}
	err := m.System.Write(old, next)
	if n == m.at && m.after {
		commands(m.t, m.lines)
	}
	return err
}

func commands(t *testing.T, lines []string) {
	t.Helper()
	for _, line := range lines {
		command(t, line)
	}
}

// rename returns commands that rename a device. On older kernels, the device must be down for
// that.
func rename(from, to string) []string {
	return []string{"ip link set " + from + " down", "ip link set " + from + " name " + to, "ip link set " + to + " up"}
}

// made applies lanes with k and returns the journal.
func made(t *testing.T, lanes string, k apply.Kernel) (*journal.Journal, error) {
	t.Helper()
	p := replanHere(t, lanes, plan.Owned{})
	j := memoryJournal(t, journal.Head{Plan: p, Devices: p.Devices, Ground: p.Ground})
	_, err := apply.Run(context.Background(), k, p, j, apply.Options{})
	return j, err
}

func kernel(t *testing.T) *apply.System {
	t.Helper()
	k := openKernel(t)
	t.Cleanup(func() { k.Close() })
	return k
}

func back(t *testing.T, j *journal.Journal) (*apply.Report, error) {
	t.Helper()
	return apply.Rollback(context.Background(), kernel(t), j, j.Head().Host, apply.Options{})
}

// onPlainVeth runs f like onSystem, but without an emulated card, because the maps of that card
// are found by the device's name.
func onPlainVeth(t *testing.T, f func(t *testing.T, lanes string)) {
	t.Helper()
	vethtest.Run(t, testQueues, func(t *testing.T) {
		vethtest.OwnMounts(t)
		mountSysfs(t)
		command(t, "ethtool -K v0 gro on")
		f(t, "version: 1\nglobals: {dev: v0, link-rate: 1gbit}\nlanes:\n  web:\n    queues: 2\n    guarantee: 20%\n "+
			"   ports: [80]\n"+makeCgroup(t))
	})
}

// TestSystemRenamedMeanwhile renames the device during an apply. The apply must fail, and undo
// its changes on the renamed device.
func TestSystemRenamedMeanwhile(t *testing.T) {
	for _, at := range []int{0, 3, 7, 11} {
		onPlainVeth(t, func(t *testing.T, lanes string) {
			start := dump(t)
			j, err := made(t, lanes, &meddled{System: kernel(t), t: t, at: at, lines: rename("v0", "w0")})
			if err == nil || !strings.Contains(err.Error(), "w0") {
				t.Errorf("write %d: error %v, want one that says w0", at, err)
			}
			if len(j.Records()) > 0 {
				t.Errorf("write %d: %d objects still owned", at, len(j.Records()))
			}
			commands(t, rename("w0", "v0"))
			wantDump(t, fmt.Sprintf("renamed before write %d", at), start)
		})
	}
}

// TestSystemRenamedBefore renames the device between planning and applying, and gives its old
// name to another device. apply must write nothing.
func TestSystemRenamedBefore(t *testing.T) {
	onPlainVeth(t, func(t *testing.T, lanes string) {
		p := replanHere(t, lanes, plan.Owned{})
		commands(t, append(rename("v0", "w0"), rename("v1", "v0")...))
		k := &meddled{System: kernel(t), t: t, at: -1}
		j := memoryJournal(t, journal.Head{Plan: p, Devices: p.Devices, Ground: p.Ground})
		_, err := apply.Run(context.Background(), k, p, j, apply.Options{})
		if err == nil || !strings.Contains(err.Error(), "renamed to w0") {
			t.Errorf("error %v, want one that says w0", err)
		}
		if k.n > 0 || len(j.Records()) > 0 {
			t.Errorf("%d writes, %d objects owned", k.n, len(j.Records()))
		}
	})
}

// TestSystemRenamedLater renames the device after an apply, and gives its old name to another
// device with similar objects.
func TestSystemRenamedLater(t *testing.T) {
	onPlainVeth(t, func(t *testing.T, lanes string) {
		start := dump(t)
		j, err := made(t, lanes, kernel(t))
		must.Do(t, err)
		commands(t, append(rename("v0", "w0"), rename("v1", "v0")...))
		command(t, "tc qdisc add dev v0 root handle 1: htb default 2")
		command(t, "tc qdisc add dev v0 clsact")
		other := command(t, "tc qdisc show dev v0")
		report, err := back(t, j)
		if err != nil || len(report.Gone) > 0 {
			t.Errorf("%v, gone %v", err, report.Gone)
		}
		if len(report.Warnings) == 0 || !strings.Contains(report.Warnings[0], "v0 is called w0 now") {
			t.Errorf("warnings %q", report.Warnings)
		}
		if got := command(t, "tc qdisc show dev v0"); got != other {
			t.Errorf("the other device has\n%swant\n%s", got, other)
		}
		command(t, "tc qdisc del dev v0 root")
		command(t, "tc qdisc del dev v0 clsact")
		commands(t, append(rename("v0", "v1"), rename("w0", "v0")...))
		wantDump(t, "after rollback", start)
	})
}

// TestSystemMoved moves the device to another network namespace, where rollback must not restore
// it. Then it moves the device back.
func TestSystemMoved(t *testing.T) {
	onPlainVeth(t, func(t *testing.T, lanes string) {
		j, err := made(t, lanes, kernel(t))
		must.Do(t, err)
		here := exec.Command("sleep", "60")
		away := exec.Command("unshare", "-n", "sleep", "60")
		for _, c := range []*exec.Cmd{here, away} {
			must.Do(t, c.Start())
			defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
		}
		waitFor(t, "another network namespace", func() bool {
			return netnsOf(t, away.Process.Pid) != netnsOf(t, here.Process.Pid)
		})
		command(t, fmt.Sprintf("ip link set v0 netns %d", away.Process.Pid))
		owned := len(j.Records())
		_, err = back(t, j)
		if want := fmt.Sprintf("v0 is in the network namespace of process %d (sleep) now, as v0",
			away.Process.Pid); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if n := len(j.Records()); n == 0 || n > owned {
			t.Errorf("%d objects owned of %d", n, owned)
		}
		command(t, fmt.Sprintf("nsenter -n -t %d ip link set v0 netns %d", away.Process.Pid, here.Process.Pid))
		command(t, "ip link set v0 up")
		if _, err := back(t, j); err != nil {
			t.Error(err)
		}
		if out := command(t, "ip link show v0"); strings.Contains(out, "xdp") {
			t.Errorf("still there:\n%s", out)
		}
	})
}

func netnsOf(t *testing.T, pid int) uint64 {
	t.Helper()
	var st unix.Stat_t
	must.Do(t, unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &st))
	return st.Ino
}

// TestSystemReplaced deletes the device and makes a new one with the same name.
func TestSystemReplaced(t *testing.T) {
	onPlainVeth(t, func(t *testing.T, lanes string) {
		j, err := made(t, lanes, kernel(t))
		must.Do(t, err)
		command(t, "ip link del v0")
		command(t, "ip link add v0 numrxqueues 4 numtxqueues 4 type veth peer name v1")
		command(t, "ip link set v0 up")
		command(t, "tc qdisc add dev v0 root handle 1: htb default 2")
		report, err := back(t, j)
		if err != nil || len(report.Gone) == 0 {
			t.Errorf("%v, gone %v", err, report.Gone)
		}
		if out := command(t, "tc qdisc show dev v0"); !strings.Contains(out, "htb 1: root") {
			t.Errorf("the new device lost its own: %s", out)
		}
	})
}

// TestSystemGroupReplaced deletes a control group and makes a new one with the same name.
// Rollback must not change the new group's settings.
func TestSystemGroupReplaced(t *testing.T) {
	onPlainVeth(t, func(t *testing.T, lanes string) {
		j, err := made(t, lanes, kernel(t))
		must.Do(t, err)
		var file device.File
		for _, r := range j.Records() {
			if f, ok := r.Last.(device.File); ok && strings.HasSuffix(f.Path, "/cpuset.cpus") {
				file = f
			}
		}
		if file.Path == "" && !strings.Contains(lanes, "cgroup:") {
			t.Skip("no control group with cpuset can be made here")
		}
		if file.Path == "" {
			t.Fatal("no processors of the control group are in the journal")
		}
		dir := strings.TrimSuffix(file.Path, "/cpuset.cpus")
		commands(t, []string{"rmdir " + dir, "mkdir " + dir})
		must.Do(t, os.WriteFile(file.Path, []byte("0"), 0))
		want := command(t, "cat "+file.Path)
		if _, err := back(t, j); err != nil {
			t.Error(err)
		}
		if got := command(t, "cat "+file.Path); got != want {
			t.Errorf("the new group's processors are %q, want %q", got, want)
		}
	})
}

// TestFinderGone checks what a Finder returns for a device that no longer exists.
func TestFinderGone(t *testing.T) {
	onPlainVeth(t, func(t *testing.T, _ string) {
		was := observed(t).Device("v0").Link()
		command(t, "ip link del v0")
		f, err := observe.OpenFinder()
		must.Do(t, err)
		defer f.Close()
		if _, err := f.Link(was.Index); !errors.Is(err, unix.ENODEV) {
			t.Errorf("link: %v", err)
		}
		if got, err := f.Find(was); err != nil || got != (observe.Present{}) {
			t.Errorf("find: %+v, %v", got, err)
		}
	})
}
