// SPDX-License-Identifier: Apache-2.0

package vethtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// isolated is an environment variable. It is set in the process that Isolate starts.
const isolated = "NICLANE_TEST_ISOLATED"

// Isolate runs a package's tests in new network and mount namespaces with an empty /run, and
// returns the exit code for os.Exit. So the tests see only their own objects, and nothing that a
// killed run has left in the host's /run. The control groups are still the host's, so tests put
// their process ID into names there. Without root rights, the tests run in the present namespaces.
func Isolate(m *testing.M) int {
	if os.Geteuid() != 0 {
		return m.Run()
	}
	if os.Getenv(isolated) != "" {
		if err := errors.Join(
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("tmpfs", "/run", "tmpfs", 0, ""),
			unix.Mount("sysfs", "/sys", "sysfs", unix.MS_REMOUNT, ""),
		); err != nil {
			fmt.Fprintln(os.Stderr, "set up the test's namespaces:", err)
			return 1
		}
		return m.Run()
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), isolated+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Main runs the tests of a package. If the first argument names a role, Main runs that role
// instead; a test starts its own program with such an argument. Main does not return.
func Main(m *testing.M, tests func(*testing.M) int, roles map[string]func(args []string) error) {
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		if err := roles[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(tests(m))
}

// NeedRoot skips the test if the user is not root.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
}

// NeedProgram skips the test if a program is not installed.
func NeedProgram(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip(name + " is not installed")
	}
}
