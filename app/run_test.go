// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// runArg makes the test binary act as niclane run. The arguments after it are DIR LANE COMMAND...
const runArg = "test-run"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case app.KeeperArg:
			exit(app.RunKeeper(os.Args[2:]))
		case vhostArg:
			exit(vhostMain(os.Args[2]))
		case runArg:
			var l app.Lane
			err := json.Unmarshal([]byte(os.Args[3]), &l)
			if err == nil {
				err = app.Run(l, options(os.Args[2]), os.Args[4:])
			}
			fmt.Fprintln(os.Stderr, err)
			os.Exit(125)
		}
	}
	os.Exit(vethtest.Isolate(m))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func options(dir string) app.Options {
	st := &device.State{}
	for cpu := range 2 {
		st.CPUs = append(st.CPUs, device.CPU{ID: cpu, Online: true})
	}
	return app.Options{RunDir: dir, State: st, Keeper: []string{"/proc/self/exe", app.KeeperArg}}
}

// A bed has a run directory and a lane for one test.
type bed struct {
	*testing.T
	dir  string
	lane app.Lane
}

func newBed(t *testing.T) *bed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	return &bed{T: t, dir: filepath.Join(t.TempDir(), "run"), lane: app.Lane{
		Name: fmt.Sprintf("test-%d", os.Getpid()), Named: true,
		Fitted: []plan.FittedLane{{Name: "test", Device: "lo", CPUs: []int{0}}},
	}}
}

// command returns a command that acts as niclane run. The application is a shell script.
func (b *bed) command(script string) *exec.Cmd {
	b.Helper()
	l, err := json.Marshal(b.lane)
	must.Do(b, err)
	cmd := exec.Command("/proc/self/exe", runArg, b.dir, string(l), "sh", "-c", script)
	cmd.Stderr = os.Stderr
	return cmd
}

// groups returns the control groups that niclane has made for the lane.
func (b *bed) groups() []string {
	b.Helper()
	var all []string
	for _, depth := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		found, err := filepath.Glob(depth + "niclane-" + b.lane.Name + "-*")
		must.Do(b, err)
		all = append(all, found...)
	}
	return all
}

func (b *bed) records() []*app.Record {
	b.Helper()
	rs, err := app.List(b.dir)
	must.Do(b, err)
	return rs
}

func (b *bed) until(what string, cond func() bool) {
	b.Helper()
	for deadline := time.Now().Add(60 * time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("never: %s", what)
		}
	}
}

func (b *bed) nothingLeft() {
	b.Helper()
	b.until("nothing is left", func() bool {
		files, err := filepath.Glob(b.dir + "/apps/*.json")
		return err == nil && len(files) == 0 && len(b.groups()) == 0
	})
}

// attach brings a running application into the bed's lane.
func (b *bed) attach(o app.Options, at app.Target) *app.Result {
	b.Helper()
	r, err := app.Attach(b.lane, o, at)
	must.Do(b, err)
	return r
}

// refuses checks that Attach refuses the application, with an error that contains want.
func (b *bed) refuses(o app.Options, at app.Target, want string) {
	b.Helper()
	if _, err := app.Attach(b.lane, o, at); err == nil || !strings.Contains(err.Error(), want) {
		b.Errorf("%+v: %v, want %q", at, err, want)
	}
}

// refusesInside checks that Attach refuses an application that has a network stack of its own. It
// checks two cases: the lane classifies by control group, and the user wants Listeners.
func (b *bed) refusesInside(at app.Target, byGroup, listeners string) {
	b.Helper()
	b.lane.ByGroup = true
	b.refuses(options(b.dir), at, byGroup)
	b.lane.ByGroup = false
	o := options(b.dir)
	o.Listeners = &app.Listeners{Ports: []uint16{80}}
	b.refuses(o, at, listeners)
}

func (b *bed) detach(c app.Choice) {
	b.Helper()
	if _, err := app.Detach(b.dir, c); err != nil {
		b.Error(err)
	}
}

// running starts a command and kills it at the end of the test. It closes the command's extra files
// in this process.
func (b *bed) running(cmd *exec.Cmd) int {
	b.Helper()
	must.Do(b, cmd.Start())
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// cgroups returns a process's control groups, as the kernel lists them.
func (b *bed) cgroups(pid int) string {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	must.Do(b, err)
	return string(text)
}

// TestRunIsTheCommand: niclane run becomes the command. Process, exit status, signals and children
// are as if the command had been started without niclane.
func TestRunIsTheCommand(t *testing.T) {
	b := newBed(t)
	for _, c := range []struct {
		name, script string
		want         syscall.WaitStatus
	}{
		{"exits", "exit 7", 7 << 8},
		{"succeeds", "true", 0},
		{"is ended", "kill -TERM $$", syscall.WaitStatus(unix.SIGTERM)},
		{"is killed", "kill -KILL $$", syscall.WaitStatus(unix.SIGKILL)},
		{"has no child", `read children </proc/$$/task/$$/children; test -z "$children"`, 0},
		{"is on the lane's processor", `test "$(sed -n 's/Cpus_allowed_list:\t//p' /proc/$$/status)" = 0`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := b.command(c.script)
			err := cmd.Run()
			if cmd.ProcessState == nil {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.Sys().(syscall.WaitStatus); got != c.want {
				t.Errorf("%v, want %#x", cmd.ProcessState, c.want)
			}
		})
	}
	b.nothingLeft()

	// Do not use SIGHUP: nohup(1) ignores it, and a shell cannot trap a signal that was ignored when
	// the shell started.
	cmd := b.command(`trap 'echo signal' USR1; echo $$; while read line; do echo "$line"; done; exit 3`)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	must.Do(t, errors.Join(err1, err2, cmd.Start()))
	plain := exec.Command("sh", "-c", "read end")
	plainIn, err := plain.StdinPipe()
	must.Do(t, errors.Join(err, plain.Start()))
	defer func() { plainIn.Close(); _ = plain.Wait() }()
	lines := bufio.NewScanner(out)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("%q, want %q", lines.Text(), want)
		}
	}
	pid := cmd.Process.Pid
	next(strconv.Itoa(pid)) // the PID is that of the started process
	got, want := descriptors(t, pid), descriptors(t, plain.Process.Pid)
	if got != want {
		t.Errorf("it has descriptors %s, and %s without niclane", got, want)
	}
	must.Do(t, unix.Kill(pid, unix.SIGSTOP))
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, unix.WUNTRACED, nil); err != nil || !ws.Stopped() {
		t.Errorf("%v, stopped %v", err, ws.Stopped())
	}
	must.Do(t, unix.Kill(pid, unix.SIGCONT))
	fmt.Fprintln(in, "a line")
	next("a line")
	// Wait until the shell reads. If it got the signal before the read, it would run the trap only
	// after the read.
	b.until("the shell waits for a line", func() bool {
		where, err := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", pid))
		return err == nil && strings.Contains(string(where), "pipe_read")
	})
	must.Do(t, unix.Kill(pid, unix.SIGUSR1))
	next("signal")
	in.Close()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("%v", err)
	}
	b.nothingLeft()
}

// descriptors returns the numbers of a process's open descriptors.
func descriptors(t *testing.T, pid int) string {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	must.Do(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// TestRunFails: a failed run leaves nothing behind.
func TestRunFails(t *testing.T) {
	b := newBed(t)
	b.lane.Members = []app.Member{{Cgroup: "/niclane-no-such-group"}}
	cmd := b.command("true")
	var text bytes.Buffer
	cmd.Stderr = &text
	if _ = cmd.Run(); cmd.ProcessState.ExitCode() != 125 || !strings.Contains(text.String(),
		"control group /niclane-no-such-group, which the lanes file names, is gone") {
		t.Errorf("%v: %s", cmd.ProcessState, text.String())
	}
	b.nothingLeft()
	b.lane.Members = nil
	l, _ := json.Marshal(b.lane)
	damaged := b.dir + "/damaged"
	must.Do(t, os.WriteFile(damaged, []byte("not a program"), 0o755))
	text.Reset()
	cmd = exec.Command("/proc/self/exe", runArg, b.dir, string(l), damaged)
	cmd.Stderr = &text
	if _ = cmd.Run(); !strings.Contains(text.String(), "exec format error") {
		t.Errorf("%s", text.String())
	}
	b.nothingLeft()
}

// TestDaemon: the command ends but leaves a process running. That process still belongs to the
// application.
func TestDaemon(t *testing.T) {
	b := newBed(t)
	out, err := b.command("sleep 1000 >/dev/null 2>&1 & echo $!").Output()
	must.Do(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	must.Do(t, err)
	if len(b.groups()) == 0 || len(b.records()) != 1 {
		t.Errorf("groups %v, %d records: want those of process %d", b.groups(), len(b.records()), pid)
	}
	must.Do(t, unix.Kill(pid, unix.SIGKILL))
	b.nothingLeft()
}

// started starts a script in the lane and waits until it runs.
func (b *bed) started(script string) (*exec.Cmd, io.WriteCloser) {
	b.Helper()
	cmd := b.command(script + "; echo; read end")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	must.Do(b, errors.Join(err1, err2, cmd.Start()))
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		b.Fatal(err)
	}
	return cmd, in
}

// TestDetachRunning detaches an application that niclane run started.
func TestDetachRunning(t *testing.T) {
	b := newBed(t)
	home := b.cgroups(os.Getpid())
	cmd, in := b.started("sleep 1000 & true")
	rs := b.records()
	if len(rs) != 1 || rs[0].Process.PID != cmd.Process.Pid {
		t.Fatalf("%d records", len(rs))
	}
	done, err := app.Detach(b.dir, app.Choice{PID: cmd.Process.Pid})
	if err != nil || len(done) != 1 {
		t.Fatalf("%v, %d detached", err, len(done))
	}
	b.nothingLeft()
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
	for _, pid := range append(strings.Fields(string(children)), strconv.Itoa(cmd.Process.Pid)) {
		now, err := os.ReadFile("/proc/" + pid + "/cgroup")
		if err != nil || string(now) != home {
			t.Errorf("process %s is in\n%swant\n%s%v", pid, now, home, err)
		}
		if n, _ := strconv.Atoi(pid); n != cmd.Process.Pid {
			_ = unix.Kill(n, unix.SIGKILL)
		}
	}
	if rs[0].Keeper.Alive() {
		t.Error("its keeper is still there")
	}
	in.Close()
	_ = cmd.Wait()
}

// TestReexecutes: an application executes another program, as in an upgrade in place. It is still
// the same process, and stays in the lane until it ends or is detached.
func TestReexecutes(t *testing.T) {
	for _, detached := range []bool{false, true} {
		t.Run(fmt.Sprintf("detached %t", detached), func(t *testing.T) {
			b := newBed(t)
			cmd, in := b.started(`exec sh -c 'echo; exec cat'`)
			pid := cmd.Process.Pid
			b.until("it is another program", func() bool {
				name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
				return err == nil && string(name) == "cat\n"
			})
			rs := b.records()
			if len(rs) != 1 || rs[0].Process.PID != pid || !rs[0].Process.Alive() || !rs[0].Keeper.Alive() {
				t.Fatalf("%d records; want that of process %d, kept", len(rs), pid)
			}
			if cpus := allowed(t, pid); !slices.Equal(cpus, []int{0}) {
				t.Errorf("it runs on processors %v, want the lane's, 0", cpus)
			}
			if detached {
				b.detach(app.Choice{PID: pid})
				if cpus := allowed(t, pid); runtime.NumCPU() > 1 && len(cpus) < 2 {
					t.Errorf("detached, it still runs on processors %v", cpus)
				}
			}
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			b.nothingLeft()
		})
	}
}

// TestGroupTakenAway: another program moves the application out of its group and removes the group.
func TestGroupTakenAway(t *testing.T) {
	b := newBed(t)
	cmd, in := b.started("true")
	for _, g := range b.groups() {
		must.Do(t, os.WriteFile(filepath.Dir(g)+"/cgroup.procs", []byte(strconv.Itoa(cmd.Process.Pid)), 0))
		must.Do(t, unix.Rmdir(g))
	}
	if rs := b.records(); len(rs) != 1 || !rs[0].Left() {
		t.Errorf("%d records: want one of an application that has left its lane", len(rs))
	}
	in.Close()
	_ = cmd.Wait()
	b.nothingLeft()
}

// TestSweep: an application ends after its keeper was killed. Sweep then cleans up.
func TestSweep(t *testing.T) {
	b := newBed(t)
	cmd, in := b.started("true")
	keeper := b.records()[0].Keeper
	must.Do(t, unix.Kill(keeper.PID, unix.SIGKILL))
	b.until("the keeper is gone", func() bool { return !keeper.Alive() })
	in.Close()
	_ = cmd.Wait()
	if len(b.groups()) == 0 {
		t.Fatal("the group is gone without anybody to remove it")
	}
	if err := app.Sweep(b.dir); err != nil {
		t.Error(err)
	}
	b.nothingLeft()
}

func TestAttachRefuses(t *testing.T) {
	b := newBed(t)
	gone := exec.Command("true")
	must.Do(t, gone.Run())
	for name, c := range map[string]struct {
		target app.Target
		want   string
	}{
		"gone":      {app.Target{PID: gone.Process.Pid}, fmt.Sprintf("no process %d", gone.Process.Pid)},
		"self":      {app.Target{PID: os.Getpid()}, "is niclane itself"},
		"unit":      {app.Target{Unit: "niclane-no-such"}, "no control group of unit niclane-no-such.service below"},
		"container": {app.Target{Container: "0123456789ab"}, "no control group of container 0123456789ab below"},
	} {
		t.Run(name, func(t *testing.T) {
			b.T = t
			b.refuses(options(b.dir), c.target, c.want)
		})
	}
	b.T = t
	b.nothingLeft()
}
