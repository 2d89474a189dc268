// SPDX-License-Identifier: Apache-2.0

// Package rights makes lanes with every kind of poller. It does so with exactly the capabilities
// that each shipped systemd unit and Kubernetes manifest gives.
package rights

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/kernel/iouring"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/programs"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// numbers are the names of the capabilities. The index is the capability's number in
// linux/capability.h.
var numbers = []string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
	"LINUX_IMMUTABLE",
	"NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO",
	"SYS_CHROOT", "SYS_PTRACE",
	"SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE",
	"AUDIT_WRITE",
	"AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ",
	"PERFMON", "BPF", "CHECKPOINT_RESTORE",
}

// limited is the first argument with which the test's executable runs a command with limited
// capabilities. The second argument lists the capabilities.
const limited = "limited"

func TestMain(m *testing.M) {
	vethtest.Main(m, (*testing.M).Run, map[string]func([]string) error{
		limited: func(args []string) error { return become(strings.Split(args[0], ","), args[1:]) },
	})
}

// become drops all other capabilities and executes argv. It returns only if that fails. At
// execve(2), root gets exactly the capabilities of the bounding set; no file adds any.
func become(capabilities, argv []string) error {
	runtime.LockOSThread()
	for n, name := range numbers {
		if !slices.Contains(capabilities, name) {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0); err != nil {
				return fmt.Errorf("drop CAP_%s: %w", name, err)
			}
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Exec(argv[0], argv, os.Environ())
}

// added matches the capabilities that a manifest gives to the container of niclane-agent.
var added = regexp.MustCompile(`(?s)command: \[/niclane-agent\].*?\n +add:\n((?: +- [A-Z_]+.*?\n)+)`)

// capabilities returns the capabilities that a shipped file gives to niclane, sorted.
func capabilities(t *testing.T, path string) []string {
	b, err := os.ReadFile(path)
	must.Do(t, err)
	var out []string
	bounded := false
	if m := added.FindSubmatch(b); m != nil {
		bounded = true
		for line := range strings.Lines(string(m[1])) {
			out = append(out, strings.Fields(line)[1])
		}
	}
	for line := range strings.Lines(string(b)) {
		if list, ok := strings.CutPrefix(line, "CapabilityBoundingSet="); ok {
			bounded = true
			for _, name := range strings.Fields(list) {
				out = append(out, strings.TrimPrefix(name, "CAP_"))
			}
		}
	}
	if !bounded && strings.HasSuffix(path, ".service") {
		return slices.Sorted(slices.Values(numbers)) // without a limit, root has all
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// shipped returns the sets of capabilities, by file. If several files have the same set, it returns
// only one of them.
func shipped(t *testing.T) map[string][]string {
	sets := map[string][]string{}
	seen := map[string]bool{}
	for _, pattern := range []string{
		"dist/*.service", "watch/systemd/testdata/*.service", "docs/hosts.yaml.5.md", "k8s/dist/manifests/*.yaml",
	} {
		files, err := filepath.Glob("../../" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			if text, err := os.ReadFile(file); strings.HasSuffix(file, "/niclane-remove.yaml") &&
				!strings.Contains(string(text), "niclane-agent]") && err == nil {
				continue // its Job speaks only with the API server
			}
			set := capabilities(t, file)
			if len(set) == 0 {
				t.Fatalf("%s: no capabilities are found in it", file)
			}
			for _, name := range set {
				if !slices.Contains(numbers, name) {
					t.Errorf("%s: %s is no capability", file, name)
				}
			}
			if key := strings.Join(set, ","); !seen[key] {
				seen[key] = true
				sets[strings.TrimPrefix(file, "../../")] = set
			}
		}
	}
	return sets
}

// TestPollers checks that lanes with each kind of poller can be made and removed, and that nothing
// is left.
func TestPollers(t *testing.T) {
	vethtest.NeedRoot(t)
	vethtest.HoldIOUring(t)
	niclane := programs.Niclane(t)
	for file, set := range shipped(t) {
		t.Run(file, func(t *testing.T) {
			for _, poller := range []string{"interrupt", "thread", "busy, pollers: 1", "application"} {
				t.Run(poller, func(t *testing.T) {
					vethtest.Run(t, 4, func(t *testing.T) { lane(t, niclane, set, poller) })
				})
			}
		})
	}
}

// lacking returns the reason why this kernel cannot have such a poller; nil if it can.
func lacking(poller string) error {
	switch {
	case strings.HasPrefix(poller, "busy"): // needs Linux 6.13; kernel.io_uring_disabled may disable it
		r, err := iouring.New(time.Millisecond)
		if err != nil {
			return err
		}
		return r.Close()
	case poller == "thread": // threads of a single device need Linux 5.12
		_, err := os.Stat("/sys/class/net/lo/threaded")
		return err
	}
	return nil
}

func lane(t *testing.T, niclane string, set []string, poller string) {
	et, err := ethtool.Open()
	if err == nil {
		err = et.SetFeature(device.Feature{Dev: vethtest.Dev, Name: "rx-gro", On: true})
	}
	must.Do(t, err)
	defer et.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "lanes.yaml")
	text := fmt.Sprintf("version: 1\nglobals: {dev: %s, link-rate: 1gbit, poller: %s, force: {queue-set: shared}}\n"+
		"lanes: {web: {queues: 2, guarantee: 20%%, cpus: 1, ports: [8080]}}\n", vethtest.Dev, poller)
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	do := func(set []string, verb ...string) (string, error) {
		cmd := exec.Command("/proc/self/exe", append([]string{limited, strings.Join(set, ","), niclane,
			"--state-dir", filepath.Join(dir, "state"), "--run-dir", filepath.Join(dir, "run")}, verb...)...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	defer do(numbers, "rollback", "--force")
	if out, err := do(numbers, "plan", file); !changes(err) {
		if why := lacking(poller); why != nil {
			t.Skipf("%v: %s", why, out)
		}
		t.Fatalf("plan with all of root's capabilities: %v: %s", err, out)
	}
	for _, verb := range [][]string{
		{"apply", "--confirm-within", "1m", file}, {"confirm"}, {"verify", "--for", "0", file},
		{"status", "--interval", "1ms"}, {"rollback", file},
	} {
		out, err := do(set, verb...)
		if err != nil {
			t.Fatalf("niclane %s: %v: %s", strings.Join(verb, " "), err, out)
		}
		if verb[0] == "status" && strings.HasPrefix(poller, "busy") {
			m := process.FindStringSubmatch(out)
			if m == nil {
				t.Fatalf("no poller: %s", out)
			}
			confined(t, m[1])
		}
	}
	if out, err := do(numbers, "plan", file); !changes(err) {
		t.Errorf("plan after rollback: %v: %s", err, out)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "run", "pollers")); len(left) > 0 || err != nil &&
		!errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v, %v", left, err)
	}
}

// process matches a poller's process in the output of niclane status.
var process = regexp.MustCompile(`process ([0-9]+) \((?:polling|asleep)\)`)

// confined checks that every thread of a poller has no capabilities and a seccomp filter.
func confined(t *testing.T, pid string) {
	threads, err := filepath.Glob("/proc/" + pid + "/task/*/status")
	if err != nil || len(threads) < 2 {
		t.Errorf("threads of process %s: %v, %v", pid, threads, err)
	}
	for _, file := range threads {
		b, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // this thread has ended
		}
		for _, want := range []string{"\nCapPrm:\t0000000000000000\n", "\nCapEff:\t0000000000000000\n",
			"\nSeccomp:\t2\n"} {
			if err != nil || !strings.Contains(string(b), want) {
				t.Errorf("%s: %v: no %q in\n%s", file, err, want, b)
			}
		}
	}
}

// changes reports whether niclane plan ended with the exit code for pending changes, 3.
func changes(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == 3
}
