// SPDX-License-Identifier: Apache-2.0

package sockclass_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// A stopped is a writer that SIGSTOP has stopped before it takes its first descriptor.
type stopped struct {
	b   *bed
	cmd *exec.Cmd
	pid int
}

func (b *bed) stopped(old, next device.Object) *stopped {
	b.Helper()
	log := filepath.Join(b.TempDir(), "trace")
	s := &stopped{b: b, cmd: b.tracer(old, next, "-o", log, "-e", "trace=pidfd_getfd", "-e",
		"inject=pidfd_getfd:signal=SIGSTOP:when=1")}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must.Do(b, s.cmd.Start())
	b.Cleanup(func() {
		if s.cmd.ProcessState == nil { // only if the test failed
			unix.Kill(-s.cmd.Process.Pid, unix.SIGKILL)
			s.cmd.Wait()
		}
	})
	// This waits longer than vethtest.Until, because strace takes half a minute on an
	// emulated CPU.
	for end := time.Now().Add(3 * time.Minute); s.pid == 0; runtime.Gosched() {
		if time.Now().After(end) {
			b.Fatal("the writer takes no descriptor")
		}
		text, _ := os.ReadFile(log)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "stopped by SIGSTOP") {
				s.pid, _ = strconv.Atoi(strings.Fields(line)[0])
			}
		}
	}
	return s
}

// goOn resumes the writer and waits for its end.
func (s *stopped) goOn() {
	s.b.Helper()
	if err := unix.Kill(s.pid, unix.SIGCONT); err != nil {
		s.b.Error(err)
	}
	must.Do(s.b, s.cmd.Wait())
}

// TestSecondPass moves a process with a socket into the group during the writer's first pass.
func TestSecondPass(t *testing.T) {
	vethtest.NeedProgram(t, "strace")
	run(t, func(b *bed) {
		a, late := startApp(t, b.dir(), false), startApp(t, b.v2, false)
		a.do("udp u")
		late.do("udp u")
		w := b.stopped(nil, b.class("1:10"))
		late.want("before", "u=0")
		if err := os.WriteFile(filepath.Join(b.dir(), "cgroup.procs"), []byte(late.pid()), 0); err != nil {
			t.Error(err)
		}
		w.goOn()
		a.want("written", "u=10010")
		late.want("written", "u=10010")
		b.write(b.class("1:10"), nil)
	})
}

// TestRemovedAtOnce makes sockets while a writer removes the class and still treats existing
// sockets. The new sockets get no priority.
func TestRemovedAtOnce(t *testing.T) {
	vethtest.NeedProgram(t, "strace")
	run(t, func(b *bed) {
		a := startApp(t, b.dir(), false)
		a.do("tcp l")
		a.do("listen l 0")
		b.write(nil, b.class("1:10"))
		w := b.stopped(b.class("1:10"), nil)
		a.do("udp u")
		a.connect("l", "c", "s")
		a.want("being removed", "u=0", "c=0", "s=0")
		w.goOn()
		a.want("removed", "l=0")
	})
}

// TestKilledTwice kills a writer that changes the class to a second one, and then a writer that
// changes it to a third. UDP sockets still have the priority of the first class.
func TestKilledTwice(t *testing.T) {
	vethtest.NeedProgram(t, "strace")
	run(t, func(b *bed) {
		a := startApp(t, b.dir(), false)
		a.do("udp u")
		b.write(nil, b.class("1:10"))
		for _, change := range [][2]device.Object{{b.class("1:10"), b.class("1:20")}, {b.class(""), b.class("1:30")}} {
			if out, err := b.tracer(change[0], change[1], "-o", "/dev/null",
				"-e", "trace=pidfd_getfd", "-e",
				"inject=pidfd_getfd:signal=SIGKILL:when=1").CombinedOutput(); err == nil {
				t.Fatalf("not killed: %s", out)
			}
			if got := b.read(b.class("")); !device.Equal(got, b.class("")) {
				t.Fatalf("killed: read %+v", got)
			}
			a.want("killed", "u=10010")
		}
		b.write(b.class(""), nil)
		a.want("removed", "u=0")
	})
}
