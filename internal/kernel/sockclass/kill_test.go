// SPDX-License-Identifier: Apache-2.0

package sockclass_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// A call is one system call of a writer: the number-th call with that name.
type call struct {
	name   string
	number int
	text   string
}

// changing are prefixes of calls that change the kernel's state, or prepare a change.
var changing = []string{
	"bpf(BPF_MAP_UPDATE_ELEM", "bpf(BPF_PROG_ATTACH", "bpf(BPF_PROG_DETACH", "bpf(BPF_ITER_CREATE", "setsockopt(",
	"pidfd_getfd(", "membarrier(",
}

// tracer returns a writer under strace.
func (b *bed) tracer(old, next device.Object, options ...string) *exec.Cmd {
	b.Helper()
	self, err := os.Executable()
	must.Do(b, err)
	args := append([]string{"-f", "-qq"}, options...)
	args = append(args, self, writerArg, b.v2)
	for _, o := range []device.Object{old, next} {
		text, err := json.Marshal(o)
		must.Do(b, err)
		args = append(args, string(text))
	}
	return exec.Command("strace", args...)
}

// calls returns the system calls before which the test may kill a writer.
func (b *bed) calls(old, next device.Object) []call {
	b.Helper()
	log := filepath.Join(b.TempDir(), "trace")
	if out, err := b.tracer(old, next, "-o", log, "-e",
		"trace=bpf,setsockopt,pidfd_getfd,membarrier").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(log)
	must.Do(b, err)
	var calls []call
	count := map[string]int{}
	for line := range strings.Lines(string(text)) {
		_, line, _ := strings.Cut(line, " ")
		line = strings.TrimSpace(line)
		name, _, ok := strings.Cut(line, "(")
		if !ok {
			continue
		}
		count[name]++
		for _, prefix := range changing {
			if strings.HasPrefix(line, prefix) {
				calls = append(calls, call{name, count[name], line})
			}
		}
	}
	return calls
}

// TestKill kills a writer before each system call that changes something. The writer leaves the
// old class, the new class, or an incomplete one. Read distinguishes an incomplete class from
// the other two, and Write changes it to any class.
func TestKill(t *testing.T) {
	vethtest.NeedProgram(t, "strace")
	for _, tc := range []struct {
		name     string
		old, new string
	}{{"make", "", "1:10"}, {"change", "1:10", "1:20"}, {"remove", "1:10", ""}} {
		t.Run(tc.name, func(t *testing.T) {
			run(t, func(b *bed) {
				object := func(priority string) device.Object {
					if priority == "" {
						return nil
					}
					return b.class(priority)
				}
				a := startApp(t, b.dir(), false)
				a.do("udp u")
				a.do("udp v")
				a.do("udp chosen")
				a.do("set chosen 3")
				a.do("tcp l")
				a.do("listen l 0")
				a.connect("l", "c", "s")
				wantClass := func(when, priority string) {
					t.Helper()
					p := strings.Replace(priority, ":", "00", 1)
					if p == "" {
						p = "0"
					}
					a.do("udp new")
					a.do("tcp newc")
					a.do("connect newc 127.0.0.1 %d", a.do("port l"))
					a.do("accept l news")
					a.want(when, "u="+p, "v="+p, "l="+p, "c="+p, "s="+p, "new="+p, "newc="+p, "news="+p, "chosen=3")
					for _, name := range []string{"new", "newc", "news"} {
						a.do("close %s", name)
					}
				}
				// reach changes the group's class from the present one to another.
				reach := func(when, priority string) {
					t.Helper()
					old, next := b.read(b.class("")), object(priority)
					if !device.Equal(old, next) {
						b.write(old, next)
					}
					wantClass(when, priority)
				}
				reach("at first", tc.old)
				calls := b.calls(object(tc.old), object(tc.new))
				if len(calls) < 8 {
					t.Fatalf("calls %v: want at least 8", calls)
				}
				killed := 0
				for i, c := range calls {
					when := fmt.Sprintf("killed before %s", c.text)
					reach("before", tc.old)
					out, err := b.tracer(object(tc.old), object(tc.new), "-o", "/dev/null", "-e", "trace="+c.name,
						"-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", c.name, c.number)).CombinedOutput()
					var e *exec.ExitError
					switch {
					case err == nil:
						continue // the number of calls differs from the first run
					case errors.As(err, &e) && e.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
					default:
						t.Fatalf("%s: %v: %s", when, err, out)
					}
					killed++
					switch got := b.read(b.class("")); {
					case device.Equal(got, object(tc.old)):
						wantClass(when, tc.old)
					case device.Equal(got, object(tc.new)):
						wantClass(when, tc.new)
					case !device.Equal(got, b.class("")):
						t.Errorf("%s: read %+v", when, got)
					}
					// Undo the change, finish it, or write another class.
					reach(when+", repaired", []string{tc.old, tc.new, "1:30", ""}[i%4])
					reach(when+", repaired and removed", "")
					for _, at := range attachTypes {
						if ids := b.attached(b.dir(), at); len(ids) > 0 {
							t.Errorf("%s, removed: %s programs %v", when, at, ids)
						}
					}
					if t.Failed() {
						return
					}
				}
				t.Logf("killed before %d of %d calls", killed, len(calls))
				if killed < len(calls)/2 {
					t.Error("want most runs to be killed")
				}
			})
		})
	}
}

// TestTakesOnlySockets counts the descriptors that a writer takes: only sockets, each once.
func TestTakesOnlySockets(t *testing.T) {
	vethtest.NeedProgram(t, "strace")
	run(t, func(b *bed) {
		a := startApp(t, b.dir(), false)
		a.do("udp u")
		a.do("unix x")
		a.do("tcp l")
		for _, c := range b.calls(nil, b.class("1:10")) {
			if c.name != "pidfd_getfd" {
				continue
			}
			t.Log(c.text)
			if c.number > 3 {
				t.Error("want 3 descriptors taken")
			}
		}
		a.want("made", "u=10010", "l=10010", "x=0")
	})
}
