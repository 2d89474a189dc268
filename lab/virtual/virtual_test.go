// SPDX-License-Identifier: Apache-2.0

package virtual_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/lab/virtual"
)

// inGuest is the argument with which the test binary is a guest's first process, and program the one
// with which it is the guest's program.
const (
	inGuest = "internal-virtual"
	program = "program"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case inGuest:
			fmt.Fprintln(os.Stderr, virtual.Init(os.Args[2]))
			os.Exit(1)
		case program:
			os.Exit(programs[os.Args[2]]())
		}
	}
	os.Exit(m.Run())
}

// programs run in the guest.
var programs = map[string]func() int{
	"sleep": func() int {
		start := time.Now()
		for range 10 {
			time.Sleep(time.Minute)
		}
		fmt.Println(virtual.Here(), time.Since(start).Round(time.Second), start.UTC().Format(time.DateOnly))
		return 3
	},
	"write": func() int {
		for _, path := range []string{"/etc/niclane-virtual", "kept"} {
			if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
				fmt.Println(err)
				return 1
			}
		}
		return 0
	},
	"spin": func() int {
		for n := uint64(1); n != 0; n |= 1 { // never ends
		}
		return 0
	},
	"files": func() int { // a program that this starts: Go raises its own soft limit
		out, err := exec.Command("/bin/sh", "-c", "ulimit -Sn; ulimit -Hn").CombinedOutput()
		fmt.Printf("%s", out)
		if err != nil {
			return 1
		}
		return 0
	},
	"signal": func() int {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	},
}

// guest runs a program in a guest and returns its output.
func guest(t *testing.T, name string, change func(*virtual.Config)) (string, error) {
	t.Helper()
	labtest.NeedVirtual(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := virtual.Config{Init: self, InitArgs: []string{inGuest}, Args: []string{self, program, name}, Stdout: &out, Stderr: &out}
	if change != nil {
		change(&c)
	}
	err = virtual.Run(t.Context(), c)
	return out.String(), err
}

// TestTime checks that waiting takes exactly as long as it should, and no real time.
func TestTime(t *testing.T) {
	out, err := guest(t, "sleep", nil)
	if exit := (*virtual.ExitError)(nil); !errors.As(err, &exit) || exit.Status != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := "true 10m0s 2026-01-01\n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
}

// TestFiles checks that the guest's files are gone with it, except in a directory that is writable.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	out, err := guest(t, "write", func(c *virtual.Config) { c.Dir, c.Writable = dir, []string{dir} })
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := os.Stat("/etc/niclane-virtual"); err == nil {
		t.Error("the guest has written into the host's /etc")
	}
	if text, err := os.ReadFile(filepath.Join(dir, "kept")); err != nil || string(text) != "x" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestOpenFiles checks that servers may raise the limit of open files for thousands of connections.
func TestOpenFiles(t *testing.T) {
	if out, err := guest(t, "files", nil); err != nil || out != "1024\n524288\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestSpin checks that a guest is ended in which time stands still, and that nothing of it is left.
func TestSpin(t *testing.T) {
	_, err := guest(t, "spin", func(c *virtual.Config) { c.Stall = 2 * time.Second })
	if err == nil || !strings.Contains(err.Error(), "the guest's clock stood still for 2s") {
		t.Errorf("%v, want a stall", err)
	}
	// They end after their kernel, not with it.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left := orphans(t)
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %s", left)
		}
	}
}

// orphans returns a line for each process of a guest that runs without its kernel.
func orphans(t *testing.T) (left string) {
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		text, _ := os.ReadFile(path) // a process may have ended
		// PID (NAME) STATE PPID ...: user-mode Linux calls the guest's processes uml-userspace.
		if orphan.Match(text) {
			left += string(text)
		}
	}
	return left
}

var orphan = regexp.MustCompile(`\(uml-userspace\) [^Z] 1 `)

// TestKilled checks the status of a program that a signal has ended.
func TestKilled(t *testing.T) {
	_, err := guest(t, "signal", nil)
	if exit := (*virtual.ExitError)(nil); !errors.As(err, &exit) || exit.Status != 128+int(unix.SIGKILL) {
		t.Errorf("%v, want status 137", err)
	}
}

// TestNoKernel checks that a missing kernel is named.
func TestNoKernel(t *testing.T) {
	err := virtual.Run(t.Context(), virtual.Config{Kernel: "/nowhere/linux"})
	if err == nil || !strings.Contains(err.Error(), "/nowhere/linux") || !strings.Contains(err.Error(), "tools/virtual-kernel") {
		t.Error(err)
	}
}

// TestInitElsewhere checks that Init does nothing in a process that is not the first of a guest.
func TestInitElsewhere(t *testing.T) {
	if err := virtual.Init("/nowhere"); err == nil || !strings.Contains(err.Error(), "not the first") {
		t.Error(err)
	}
}
