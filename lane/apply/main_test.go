// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// TestMain also lets the test executable run as the applier and as the guardian.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 {
		switch os.Args[1] {
		case applierArg:
			exit(applier(os.Args[2]))
		case apply.GuardArg:
			exit(apply.RunGuard(os.Args[2]))
		}
	}
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

const applierArg = "test-applier"

// An applierConfig tells an applier process what to apply, and at which write to fail, hang or
// die.
type applierConfig struct {
	StateDir, RunDir string
	Plan             *plan.Plan
	// Kill is the number of the write at which the process gets SIGKILL, -1 for none. After means
	// that it gets it after the write, otherwise before.
	Kill  int
	After bool
	// Hang is the number of the write at which the process hangs instead of writing, -1 for none.
	Hang int
	// Fail is the number of the write that fails, -1 for none.
	Fail int
	// Within is the time in which the apply must be confirmed; 0: no guardian.
	Within time.Duration
	// Linger keeps the process running after the apply.
	Linger bool
	// Cgroups are directories of control groups that the process moves to first.
	Cgroups []string
}

func quietApplier(dir string, p *plan.Plan) applierConfig {
	return applierConfig{StateDir: dir + "/state", RunDir: dir + "/run", Plan: p, Kill: -1, Hang: -1, Fail: -1}
}

// command returns the command for an applier in the namespaces of the calling thread. The process
// leads its own session.
func (c applierConfig) command(t *testing.T) *exec.Cmd {
	t.Helper()
	arg, err := json.Marshal(c)
	must.Do(t, err)
	cmd := exec.Command("/proc/self/exe", applierArg, string(arg))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd
}

// output runs the applier until it ends, and returns its output.
func (c applierConfig) output(t *testing.T) ([]byte, error) {
	t.Helper()
	cmd := c.command(t)
	cmd.Stdout, cmd.Stderr = nil, nil
	return cmd.CombinedOutput()
}

func applier(arg string) error {
	var c applierConfig
	if err := json.Unmarshal([]byte(arg), &c); err != nil {
		return err
	}
	for _, dir := range c.Cgroups {
		if err := os.WriteFile(dir+"/cgroup.procs", []byte("0"), 0); err != nil {
			return err
		}
	}
	lock, err := apply.TryLock(c.RunDir)
	if err != nil {
		return err
	}
	host, err := journal.Here()
	if err != nil {
		return err
	}
	s, err := journal.Open(c.StateDir, host)
	if err != nil {
		return err
	}
	who, when := journal.Self()
	j, err := s.Begin(journal.Head{Config: testConfig, Who: who, When: when, Plan: c.Plan})
	if err != nil {
		return err
	}
	var guard *apply.Guard
	if c.Within > 0 {
		if guard, err = apply.StartGuard(j, c.RunDir, c.StateDir, c.Within); err != nil {
			return err
		}
	}
	k, err := apply.NewKernel(c.RunDir)
	if err != nil {
		return err
	}
	if _, err := apply.Run(context.Background(), &mortal{System: k, c: c}, c.Plan, j, apply.Options{}); err != nil {
		if guard != nil {
			if cerr := guard.Cancel(); cerr != nil {
				return cerr
			}
		}
		return err
	}
	if guard != nil {
		if _, err := guard.Ended(); err != nil {
			return err
		}
	}
	if err := lock.Unlock(); err != nil {
		return err
	}
	if c.Linger {
		fmt.Println("lingering")
		select {}
	}
	return nil
}

const testConfig = "/etc/niclane/test.yaml"

// A mortal kernel kills its process, hangs, or returns an error at one write.
type mortal struct {
	*apply.System
	c applierConfig
	n int
}

func (m *mortal) Write(old, next device.Object) error {
	n := m.n
	m.n++
	if n == m.c.Hang {
		fmt.Println("hanging")
		select {}
	}
	if n == m.c.Kill && !m.c.After {
		die()
	}
	if n == m.c.Fail {
		return errInjected
	}
	err := m.System.Write(old, next)
	if n == m.c.Kill {
		die()
	}
	return err
}

func die() {
	if err := unix.Kill(os.Getpid(), unix.SIGKILL); err != nil {
		panic(err)
	}
	select {}
}

// openKernel opens the kernel of this network namespace.
func openKernel(t *testing.T) *apply.System {
	t.Helper()
	k, err := apply.NewKernel("")
	must.Do(t, err)
	return k
}

func thisHost(t *testing.T) journal.Host {
	t.Helper()
	host, err := journal.Here()
	must.Do(t, err)
	return host
}

// memoryJournal returns a journal for this host that exists only in memory.
func memoryJournal(t *testing.T, h journal.Head) *journal.Journal {
	t.Helper()
	h.Host = thisHost(t)
	return journal.New(h)
}
