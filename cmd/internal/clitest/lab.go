// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/machine"
)

// Lab runs every test script in testdata/lab. These scripts need a device. Each script has a lab of
// its own, with the emulated card and the real programs. dir is the directory of the programs, as
// for Scripts. check may be nil. more has further commands that scripts can use, by name.
func Lab(t *testing.T, dir string, check Check, more map[string]func(*testscript.TestScript, bool, []string)) {
	if os.Geteuid() != 0 {
		t.Skip("not root: the lab makes network namespaces")
	}
	// The lab's name and namespaces belong to the host, so only one script runs at a time.
	var one sync.Mutex // testscript runs scripts in parallel
	words := map[string]func(*testscript.TestScript, bool, []string){
		"exits": exits(check), "sut": sut(check), "until": until, "json": isJSON, "killed": killIn,
	}
	maps.Copy(words, more)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/lab",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			one.Lock()
			env.Defer(one.Unlock)
			env.Defer(func() { endWatch(env.WorkDir) })
			first(env, dir)
			return raiseLab(env)
		},
		Condition: func(cond string) (bool, error) {
			return cond == "mqprio" && hasQdisc(cond) || cond == "kernel-tls" && hasKernelTLS() ||
				cond == "long" && os.Getenv("NICLANE_LONG") == "1" ||
				cond == "guest" && os.Getenv("NICLANE_GUEST") == "1", nil
		},
		Cmds: words,
	})
}

// endWatch kills a "niclane watch" that a failed script has left running. The file watch.pid has
// its PID.
func endWatch(dir string) {
	b, err := os.ReadFile(filepath.Join(dir, "watch.pid"))
	pid, perr := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || perr != nil {
		return
	}
	if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil &&
		strings.Contains(string(args), dir) {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
	}
}

// hasQdisc reports whether the kernel knows a kind of qdisc, such as mqprio. It tries to add such a
// qdisc to the loopback device. The kernel always refuses, because loopback has one queue. If the
// kernel does not know the kind, its message says so.
func hasQdisc(kind string) bool {
	out, _ := exec.Command("tc", "qdisc", "add", "dev", "lo", "root", kind).CombinedOutput()
	return !strings.Contains(string(out), "kind is unknown")
}

// testLab is the name of the lab, $LAB in the scripts. It contains the process ID, because
// parallel runs share the host's control groups.
var testLab = fmt.Sprintf("nltest-%d", os.Getpid())

// hasKernelTLS reports whether the kernel supports TLS. For root, the setsockopt call loads the
// kernel's TLS module (net/ipv4/tcp_ulp.c), even if the call then fails on this socket.
func hasKernelTLS() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_ULP, "tls")
	_, err = os.Stat(machine.TLSFile)
	return err == nil
}

func raiseLab(env *testscript.Env) error {
	if out, err := labCommand(env, "up").CombinedOutput(); err != nil {
		env.T().Log(string(out))
		return err
	}
	env.Defer(func() {
		if out, err := labCommand(env, "down").CombinedOutput(); err != nil {
			env.T().Log(string(out))
			env.T().FailNow()
		}
	})
	env.Setenv("LAB", testLab)
	env.Setenv("CGROUP", "/"+testLab+"-lab-sut")
	return nil
}

func labCommand(env *testscript.Env, verb string) *exec.Cmd {
	path := "niclane"
	for _, dir := range filepath.SplitList(env.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(dir, path)); err == nil {
			path = filepath.Join(dir, path)
			break
		}
	}
	return exec.Command(path, "lab", "--name", testLab, verb)
}

// sut CODE COMMAND ARG... runs a command in the lab's system under test and checks it as exits
// does. niclane gets the script's own directories for journals and lock.
func sut(check Check) func(*testscript.TestScript, bool, []string) {
	run := exits(check)
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < 2 {
			ts.Fatalf("usage: sut CODE COMMAND ARG...")
		}
		run(ts, false, append(args[:1:1], sutCommand(ts, args[1:])...))
	}
}

// sutCommand returns the command line that runs args in the system under test.
func sutCommand(ts *testscript.TestScript, args []string) []string {
	argv := []string{"niclane", "lab", "--name", testLab, "exec", "sut", "--", args[0]}
	if args[0] == "niclane" {
		argv = append(argv, "--state-dir", ts.Getenv("WORK")+"/state", "--run-dir", ts.Getenv("WORK")+"/run")
	}
	return append(argv, args[1:]...)
}

// until CODE COMMAND ARG... runs a command in the system under test again and again, until it ends
// with that exit code. It fails the script after 30 s.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until CODE COMMAND ARG...")
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		argv := sutCommand(ts, args[1:])
		if err := ts.Exec(argv[0], argv[1:]...); CodeOf(err) == args[0] {
			return
		} else if time.Now().After(deadline) {
			ts.Fatalf("still exit code %s, want %s", CodeOf(err), args[0])
		}
	}
}

// killed NAMESPACE WORD kills a process that has WORD as an argument and runs in the network
// namespace. It waits up to 30 s for such a process. Only the test's processes run in that
// namespace.
func killIn(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: killed NAMESPACE WORD")
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		var host unix.Stat_t
		if unix.Stat(filepath.Join("/run/netns", args[0]), &host) != nil {
			continue // no such namespace yet
		}
		processes, err := filepath.Glob("/proc/[0-9]*")
		ts.Check(err)
		for _, p := range processes {
			var its unix.Stat_t
			line, err := os.ReadFile(filepath.Join(p, "cmdline"))
			if err != nil || unix.Stat(filepath.Join(p, "ns/net"), &its) != nil || its.Ino != host.Ino {
				continue
			}
			for arg := range bytes.SplitSeq(line, []byte{0}) {
				if pid, err := strconv.Atoi(filepath.Base(p)); err == nil && string(arg) == args[1] &&
					unix.Kill(pid, unix.SIGKILL) == nil {
					return
				}
			}
		}
	}
	ts.Fatalf("no process %s in %s", args[1], args[0])
}
