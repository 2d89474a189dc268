// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lab/emucard"
	"github.com/niclane/niclane/lane/apply"
)

// patience is the longest time to wait for an event that must happen. It is long because of
// emulated guests on busy hosts.
const patience = 2 * time.Minute

// guarded runs f in its own namespaces, with a plan and a dump of the state at the start.
func guarded(t *testing.T, f func(t *testing.T, c applierConfig, start string)) {
	t.Helper()
	vethtest.Run(t, testQueues, func(t *testing.T) {
		vethtest.AddCard(t, emucard.Config{Queues: testQueues, Rules: 64, Contexts: 8, LinkRate: 1e9})
		mountSysfs(t)
		command(t, "ethtool -K v0 gro on")
		p := planHere(t, strings.Replace(testLanes, "%s", "", 1))
		c := quietApplier(t.TempDir(), p)
		// If the test fails early, its guardian must end.
		defer func() { _ = apply.Confirm(c.RunDir) }()
		f(t, c, dump(t))
	})
}

// start starts the applier. If line is not empty, it waits for that line of output.
func start(t *testing.T, c applierConfig, line string) *exec.Cmd {
	t.Helper()
	cmd := c.command(t)
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		// If the test fails early, the process must end.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	got, err := bufio.NewReader(out).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if strings.TrimSpace(got) != line {
		t.Fatalf("applier said %q, want %q", got, line)
	}
	return cmd
}

// killSession kills every process of the session that cmd leads.
func killSession(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	pids := sessionOf(t, cmd.Process.Pid)
	if len(pids) == 0 {
		t.Fatal("no process in the session")
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			t.Fatal(err)
		}
	}
	_ = cmd.Wait() // the process was killed, so an error is expected
}

func sessionOf(t *testing.T, leader int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must.Do(t, err)
	var pids []int
	for _, s := range stats {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(s)))
		if sid, err := unix.Getsid(pid); err == nil && sid == leader {
			pids = append(pids, pid)
		}
	}
	return pids
}

// rollsBack rolls back the apply of c.
func rollsBack(t *testing.T, c applierConfig) {
	t.Helper()
	if _, err := rollback(t, filepath.Dir(c.StateDir)); err != nil {
		t.Fatal(err)
	}
}

// waitFor waits until the condition is true.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
		// Leave the processor to the guardian.
		unix.Nanosleep(&unix.Timespec{Nsec: 10e6}, nil)
	}
}

// undone waits until the guardian has undone the apply, and compares the state with start.
func undone(t *testing.T, c applierConfig, start string) {
	t.Helper()
	waitFor(t, "the guardian's undo", func() bool {
		_, err := os.Stat(c.RunDir + "/undone.json")
		return err == nil
	})
	wantDump(t, "after the guardian's undo", start)
	waitFor(t, "the journal to go", func() bool { return journals(t, c) == 0 })
	waitFor(t, "the guardian to end", func() bool { return apply.CheckPending(c.RunDir) == nil })
	if err := apply.Confirm(c.RunDir); !errors.Is(err, apply.ErrNothingPending) ||
		!strings.Contains(err.Error(), "undone at") {
		t.Errorf("confirm too late: %v", err)
	}
}

func journals(t *testing.T, c applierConfig) int {
	t.Helper()
	files, err := filepath.Glob(c.StateDir + "/*.journal")
	must.Do(t, err)
	return len(files)
}

func TestGuardUndoesWhatIsNotConfirmed(t *testing.T) {
	guarded(t, func(t *testing.T, c applierConfig, before string) {
		c.Within, c.Linger = 500*time.Millisecond, true
		start(t, c, "lingering")
		undone(t, c, before)
	})
}

func TestGuardOutlivesTheSession(t *testing.T) {
	guarded(t, func(t *testing.T, c applierConfig, before string) {
		c.Within, c.Linger = 3*time.Second, true
		began := time.Now() // before the end of apply, when the guardian's time starts
		cmd := start(t, c, "lingering")
		killSession(t, cmd)
		// On a slow guest, the dump alone can take longer than c.Within.
		if dump(t) == before && time.Since(began) < c.Within {
			t.Error("undone at once, although apply had ended")
		}
		undone(t, c, before)
	})
}

// TestGuardOutlivesTheControlGroup kills every process in the control group of the applier, as
// systemd does at the end of a login.
func TestGuardOutlivesTheControlGroup(t *testing.T) {
	guarded(t, func(t *testing.T, c applierConfig, before string) {
		for _, root := range []string{"/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
			dir := filepath.Join(root, fmt.Sprintf("nla-login-%d", os.Getpid()))
			if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil || os.Mkdir(dir, 0o755) != nil {
				continue
			}
			defer func() {
				waitFor(t, dir+" to empty", func() bool { return os.Remove(dir) == nil })
			}()
			c.Cgroups = append(c.Cgroups, dir)
		}
		if len(c.Cgroups) == 0 {
			t.Skip("no control group hierarchy to make a login's group in")
		}
		c.Within, c.Hang = time.Hour, len(c.Plan.Steps)-1
		cmd := start(t, c, "hanging")
		for _, dir := range c.Cgroups {
			pids, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			must.Do(t, err)
			if got := strings.Fields(string(pids)); len(got) != 1 || got[0] != strconv.Itoa(cmd.Process.Pid) {
				t.Errorf("%s holds processes %v, want only the applier, %d", dir, got, cmd.Process.Pid)
			}
		}
		killSession(t, cmd)
		undone(t, c, before)
	})
}

func TestGuardUndoesWhenApplyDies(t *testing.T) {
	guarded(t, func(t *testing.T, c applierConfig, before string) {
		c.Within, c.Hang = time.Hour, len(c.Plan.Steps)-1
		cmd := start(t, c, "hanging")
		if dump(t) == before {
			t.Error("nothing was applied before the kill")
		}
		killSession(t, cmd)
		undone(t, c, before)
	})
}

func TestGuardEndsAnApplyThatHangs(t *testing.T) {
	guarded(t, func(t *testing.T, c applierConfig, before string) {
		c.Within, c.Hang = 2*time.Second, len(c.Plan.Steps)-1
		cmd := start(t, c, "hanging")
		undone(t, c, before)
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("apply ended with %v, want killed", err)
		}
	})
}

func TestConfirm(t *testing.T) {
	guarded(t, func(t *testing.T, c applierConfig, before string) {
		if err := apply.Confirm(c.RunDir); !errors.Is(err, apply.ErrNothingPending) {
			t.Errorf("confirm before anything: %v", err)
		}
		c.Within, c.Linger = time.Hour, true
		cmd := start(t, c, "lingering")
		if err := apply.CheckPending(c.RunDir); err == nil || !strings.Contains(err.Error(), testConfig) {
			t.Errorf("pending: %v", err)
		}
		// The end of the login must not end the guardian.
		killSession(t, cmd)
		after := dump(t)
		must.Do(t, apply.Confirm(c.RunDir))
		waitFor(t, "the guardian to end", func() bool { return apply.CheckPending(c.RunDir) == nil })
		if err := apply.Confirm(c.RunDir); !errors.Is(err, apply.ErrNothingPending) {
			t.Errorf("confirm twice: %v", err)
		}
		wantDump(t, "after confirm", after)
		rollsBack(t, c)
		wantDump(t, "after rollback", before)
	})
}

func TestConfirmDuringApply(t *testing.T) {
	guarded(t, func(t *testing.T, c applierConfig, before string) {
		c.Within, c.Hang = time.Hour, 2
		cmd := start(t, c, "hanging")
		if err := apply.Confirm(c.RunDir); err == nil || !strings.Contains(err.Error(), "not finished") {
			t.Errorf("confirm during apply: %v", err)
		}
		var locked *apply.LockedError
		if _, err := apply.TryLock(c.RunDir); !errors.As(err, &locked) || locked.Holder.PID != cmd.Process.Pid {
			t.Errorf("lock during apply: %v, want held by %d", err, cmd.Process.Pid)
		}
		killSession(t, cmd)
		undone(t, c, before)
	})
}

func TestGuardIsCancelledWhenApplyFails(t *testing.T) {
	guarded(t, func(t *testing.T, c applierConfig, before string) {
		c.Within, c.Fail = time.Hour, 3
		if err := c.command(t).Run(); err == nil {
			t.Error("apply did not fail")
		}
		wantDump(t, "after the failure", before)
		waitFor(t, "the guardian to end", func() bool { return apply.CheckPending(c.RunDir) == nil })
		if _, err := os.Stat(c.RunDir + "/undone.json"); err == nil {
			t.Error("the guardian undid what apply had undone")
		}
	})
}

func TestRollbackBeforeConfirm(t *testing.T) {
	guarded(t, func(t *testing.T, c applierConfig, before string) {
		c.Within, c.Linger = time.Hour, true
		start(t, c, "lingering")
		rollsBack(t, c)
		if err := apply.Confirm(c.RunDir); err == nil || !strings.Contains(err.Error(), "rolled back") {
			t.Errorf("confirm after rollback: %v", err)
		}
		wantDump(t, "after rollback", before)
	})
}

// TestGuardAfterRollback: if a change was rolled back before, the guardian must not report that
// it has undone it.
func TestGuardAfterRollback(t *testing.T) {
	guarded(t, func(t *testing.T, c applierConfig, before string) {
		c.Within, c.Linger = 2*time.Second, true
		start(t, c, "lingering")
		rollsBack(t, c)
		waitFor(t, "the guardian to end", func() bool {
			_, err := os.Stat(c.RunDir + "/guard.sock")
			return err != nil
		})
		for _, f := range []string{"/undone.json", "/guard.json"} {
			if _, err := os.Stat(c.RunDir + f); err == nil {
				t.Errorf("%s is there", f)
			}
		}
	})
}

// TestGuardOnAFullDisk fills the file system of the run and state directories while the guardian
// waits.
func TestGuardOnAFullDisk(t *testing.T) {
	guarded(t, func(t *testing.T, c applierConfig, before string) {
		dir := filepath.Dir(c.RunDir)
		must.Do(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,mode=700"))
		defer unix.Unmount(dir, unix.MNT_DETACH)
		c.Within, c.Linger = 3*time.Second, true
		start(t, c, "lingering")
		f, err := os.Create(dir + "/filler")
		must.Do(t, err)
		defer f.Close()
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		undone(t, c, before)
		lock, err := apply.TryLock(c.RunDir)
		if err != nil {
			t.Fatalf("lock on a full disk: %v", err)
		}
		defer lock.Unlock()
		var locked *apply.LockedError
		if _, err := apply.TryLock(c.RunDir); !errors.As(err, &locked) || locked.Holder.PID != os.Getpid() {
			t.Errorf("lock on a full disk: %v, want held by %d", err, os.Getpid())
		}
	})
}

// TestGuardKilled kills the guardian. The change must then be reported as unconfirmed, until it
// is confirmed or rolled back.
func TestGuardKilled(t *testing.T) {
	guarded(t, func(t *testing.T, c applierConfig, _ string) {
		c.Within, c.Linger = time.Hour, true
		for _, confirmed := range []bool{true, false} {
			cmd := start(t, c, "lingering")
			if got := apply.Unconfirmed(c.RunDir); got != "" {
				t.Errorf("with a guardian: %s", got)
			}
			killGuardian(t, c)
			if got := apply.Unconfirmed(c.RunDir); !strings.Contains(got, testConfig) ||
				!strings.Contains(got, "never confirmed") {
				t.Errorf("without a guardian: %q", got)
			}
			killSession(t, cmd)
			end := apply.Confirm
			if !confirmed {
				end = func(string) error { _, err := rollback(t, filepath.Dir(c.StateDir)); return err }
			}
			if err := end(c.RunDir); err != nil {
				t.Error(err)
			}
			if got := apply.Unconfirmed(c.RunDir); got != "" {
				t.Errorf("afterwards (confirmed %v): %s", confirmed, got)
			}
			if err := apply.Confirm(c.RunDir); !errors.Is(err, apply.ErrNothingPending) {
				t.Errorf("confirm afterwards: %v", err)
			}
			if confirmed {
				rollsBack(t, c)
			}
		}
	})
}

func killGuardian(t *testing.T, c applierConfig) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must.Do(t, err)
	for _, l := range lines {
		b, err := os.ReadFile(l)
		if err != nil || !strings.Contains(string(b), apply.GuardArg) || !strings.Contains(string(b), c.RunDir) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(l)))
		must.Do(t, unix.Kill(pid, unix.SIGKILL))
		waitFor(t, "the guardian's end", func() bool { return apply.CheckPending(c.RunDir) == nil })
		return
	}
	t.Fatal("no guardian")
}
