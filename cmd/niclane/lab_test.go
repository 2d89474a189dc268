// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
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

	counters "github.com/niclane/niclane/bench/machine"
)

// TestLab runs the scripts that need a device: each in a lab of its own, on
// the emulated card, with the command as a user has it.
func TestLab(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: the lab makes network namespaces")
	}
	// The lab's name and namespaces are the host's: one script at a time.
	var one sync.Mutex // testscript runs scripts in parallel
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/lab",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			one.Lock()
			env.Defer(one.Unlock)
			env.Defer(func() { endWatch(env.WorkDir) })
			return raiseLab(env)
		},
		Condition: func(cond string) (bool, error) {
			return cond == "mqprio" && hasQdisc(cond) || cond == "kernel-tls" && hasKernelTLS(), nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"sut":   sut,
			"until": until,
			"json":  isJSON,

			"killed":      killIn,
			"certificate": certificate,
		},
	})
}

// endWatch ends the watch of a script that has failed before it did.
func endWatch(dir string) {
	b, err := os.ReadFile(filepath.Join(dir, "watch.pid"))
	pid, perr := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || perr != nil {
		return
	}
	if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.Contains(string(args), dir) {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended by now
	}
}

// hasQdisc asks for a qdisc on the loopback device, which is refused in any
// case: loopback has one queue.
func hasQdisc(kind string) bool {
	out, _ := exec.Command("tc", "qdisc", "add", "dev", "lo", "root", kind).CombinedOutput()
	return !strings.Contains(string(out), "kind is unknown")
}

// testLab is the name of the lab, $LAB in the scripts. Control groups are the
// host's: another run has another name.
var testLab = fmt.Sprintf("nltest-%d", os.Getpid())

// hasKernelTLS reports whether the kernel can encrypt. To ask for it has root
// get the module (net/ipv4/tcp_ulp.c), whatever becomes of this socket.
func hasKernelTLS() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_ULP, "tls")
	_, err = os.Stat(counters.TLSFile)
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
	self, err := os.Executable()
	if err != nil {
		panic(err) // the test binary is running
	}
	cmd := exec.Command(self, "lab", "--name", testLab, verb)
	cmd.Args[0] = "niclane"
	return cmd
}

// sut CODE COMMAND ARG... runs a command in the lab's system under test; it
// must end with that exit code. Journals and lock are the script's own.
func sut(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: sut CODE COMMAND ARG...")
	}
	exits(ts, false, append(args[:1:1], sutCommand(ts, args[1:])...))
}

// sutCommand is the command line that runs args in the system under test.
func sutCommand(ts *testscript.TestScript, args []string) []string {
	argv := []string{"niclane", "lab", "--name", testLab, "exec", "sut", "--", args[0]}
	if args[0] == "niclane" {
		argv = append(argv, "--state-dir", ts.Getenv("WORK")+"/state", "--run-dir", ts.Getenv("WORK")+"/run")
	}
	return append(argv, args[1:]...)
}

// until CODE COMMAND ARG... is sut, repeated until the command ends with that
// exit code.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until CODE COMMAND ARG...")
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		argv := sutCommand(ts, args[1:])
		if err := ts.Exec(argv[0], argv[1:]...); codeOf(err) == args[0] {
			return
		} else if time.Now().After(deadline) {
			ts.Fatalf("still exit code %s, want %s", codeOf(err), args[0])
		}
	}
}
