// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/k8s/test/machine"
)

func TestMain(m *testing.M) {
	machine.Main()
	os.Exit(m.Run())
}

func boot(t *testing.T, name string) *machine.Machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: namespaces and control groups need it")
	}
	m, err := machine.Boot(machine.Config{Name: name, Disk: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Halt(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func output(t *testing.T, m *machine.Machine, args ...string) string {
	t.Helper()
	text, err := m.Output(args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(text)
}

// TestMachine checks that a machine has its own name, network, processes and control groups.
func TestMachine(t *testing.T) {
	m := boot(t, "own")
	if got := output(t, m, "uname", "-n"); got != "own" {
		t.Errorf("host name %q, want own", got)
	}
	if got := output(t, m, "sh", "-c", "ls /sys/class/net; cat /sys/class/net/lo/flags"); got != "lo\n0x9" {
		t.Errorf("network %q, want lo, which is up", got)
	}
	for line := range strings.Lines(output(t, m, "cat", "/proc/self/cgroup")) {
		if !strings.HasSuffix(strings.TrimSpace(line), ":/") {
			t.Errorf("control group %s, want the root", line)
		}
	}
	if _, err := m.Output("touch", "/usr/x"); err == nil {
		t.Error("the host's programs can be written")
	}
	if _, err := m.Output("sh", "-c", "exit 3"); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("exit 3: %v", err)
	}
	if got, err := m.Pipe("hello", "cat"); got != "hello" || err != nil {
		t.Errorf("cat: %q, %v", got, err)
	}
}

// TestSysctls writes three kinds of sysctls on a machine: one of Config.Sysctls, one of the network
// namespace, and a global one, which must be read-only. The host's values must not change.
func TestSysctls(t *testing.T) {
	const panics, other, forward = "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_warn",
		"/proc/sys/net/ipv4/ip_forward"
	if os.Geteuid() != 0 {
		t.Skip("not root: namespaces and control groups need it")
	}
	host := func() (values [3]string) {
		for i, file := range []string{panics, other, forward} {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			values[i] = strings.TrimSpace(string(text))
		}
		return values
	}
	before := host()
	m, err := machine.Boot(machine.Config{Name: "sysctls", Disk: t.TempDir(),
		Sysctls: map[string]string{"kernel/panic": "77"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Halt(); err != nil {
			t.Error(err)
		}
	}()
	if got := output(t, m, "sh", "-c", "cat "+panics+"; echo 78 >"+panics+"; cat "+panics); got != "77\n78" {
		t.Errorf("kernel.panic before and after it is written: %q, want 77 and 78", got)
	}
	// The command writes the present value: if the write succeeds, the host does not change.
	if got, err := m.Output("sh", "-c", "cat "+other+" >"+other); err == nil || !strings.Contains(got, "Read-only") {
		t.Errorf("kernel.panic_on_warn can be written: %q, %v", got, err)
	}
	if got := output(t, m, "sh", "-c", "echo 1 >"+forward+"; cat "+forward); got != "1" {
		t.Errorf("net.ipv4.ip_forward is %q after 1 was written", got)
	}
	if after := host(); after != before {
		t.Errorf("the host has %v, had %v", after, before)
		os.WriteFile(panics, []byte(before[0]), 0)
	}
}

// TestReboot checks that only the machine's disk survives a reboot.
func TestReboot(t *testing.T) {
	m := boot(t, "again")
	output(t, m, "sh", "-c", "echo kept >/var/lib-kept; echo lost >/run/lost; mkdir /sys/fs/cgroup/memory/lost; ip "+
		"link add lost type veth peer name found")
	p, err := m.Start(machine.Command{Args: []string{"sleep", "1000"}}, nil, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Reboot(); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err == nil || !strings.Contains(err.Error(), "halted") {
		t.Errorf("a process from before: %v", err)
	}
	if got := output(t, m, "sh", "-c",
		"cat /var/lib-kept; ls /run /sys/fs/cgroup/memory /sys/class/net | grep -c lost || true"); got != "kept\n0" {
		t.Errorf("after a reboot: %q", got)
	}
}

// TestSignal ends a process by a signal, and checks that Wait reports the signal.
func TestSignal(t *testing.T) {
	m := boot(t, "signal")
	p, err := m.Start(machine.Command{Args: []string{"sleep", "1000"}}, nil, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("ended: %v", err)
	}
}

// TestHaltLeavesNothing checks that a halted machine leaves no control groups, processes or mounts
// on the host.
func TestHaltLeavesNothing(t *testing.T) {
	m := boot(t, "gone")
	output(t, m, "sh", "-c", "mkdir -p /sys/fs/cgroup/pids/a/b; sleep 1000 >/dev/null 2>&1 & echo $! "+
		">/sys/fs/cgroup/pids/a/b/cgroup.procs")
	if err := m.Halt(); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob("/sys/fs/cgroup/*/niclane-machine-gone")
	if err != nil || len(left) > 0 {
		t.Error("control groups left:", left, err)
	}
	if _, err := os.Stat(m.Path("/")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("its first process is still there:", err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), m.Disk) {
		t.Error("mounts left:", err)
	}
}
