// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/programs"
	"github.com/niclane/niclane/internal/testing/vethtest"
)

const lanes = `version: 1
globals: {dev: v0, link-rate: 1gbit}
lanes: {web: {queues: 2, guarantee: 20%, cpus: 1, ports: [8080]}}
`

// patience is the time after which a command counts as hung. The netlink library waits up to a
// minute for an answer.
const patience = 75 * time.Second

// A bed is a network namespace with a device, and the directories of one niclane.
type bed struct {
	netns, dir, niclane, file string
	start                     string // what look returned before any lane was made
}

var made atomic.Int32

func newBed(t *testing.T, niclane string) *bed {
	dir := t.TempDir()
	b := &bed{netns: fmt.Sprintf("niclane-inject-%d-%d", os.Getpid(), made.Add(1)), dir: dir, niclane: niclane,
		file: dir + "/lanes.yaml"}
	err := os.WriteFile(b.file, []byte(lanes), 0o600)
	if err == nil {
		err = os.Mkdir(dir+"/trace", 0o700)
	}
	must.Do(t, err)
	b.setUp(t)
	t.Cleanup(func() { b.tearDown() })
	return b
}

// build builds niclane. It skips the test if strace cannot inject errors.
func build(t *testing.T) (niclane string) {
	for _, program := range []string{"strace", "ip", "tc"} {
		if _, err := exec.LookPath(program); err != nil || os.Geteuid() != 0 {
			t.Skipf("needs root and %s: %v", program, err)
		}
	}
	if out, err := exec.Command("strace", "-qqq", "-o", "/dev/null", "-e", "inject=ioctl:error=EIO",
		"true").CombinedOutput(); err != nil {
		if strings.Contains(string(out), "not permitted") {
			t.Skipf("processes cannot be traced here: %s", out)
		}
		t.Fatalf("strace cannot inject: %v: %s", err, out)
	}
	return programs.Niclane(t)
}

// setUp removes what is left of an old namespace and makes a new one.
func (b *bed) setUp(t *testing.T) {
	b.tearDown()
	for _, line := range []string{
		"ip netns add NS",
		"ip -n NS link add v0 numrxqueues 4 numtxqueues 4 type veth peer name v1",
		"ip -n NS link set v0 up", "ip -n NS link set v1 up",
	} {
		vethtest.Command(t, strings.ReplaceAll(line, "NS", b.netns))
	}
	for _, command := range []string{"apply", "rollback"} { // so that the results of slow probes are cached
		if r := b.run(nil, command, b.file); r.code != 0 {
			t.Fatalf("%s: %s", command, r.text)
		}
	}
	b.start = b.look(t)
}

func (b *bed) tearDown() {
	b.end()
	_ = exec.Command("ip", "netns", "del", b.netns).Run()
	os.RemoveAll(b.dir + "/state")
	os.RemoveAll(b.dir + "/run")
}

// A result is the exit code and the output of a command. The code is -1 if a signal ended it.
type result struct {
	code int
	text string
}

const hangs = -2

// command returns a niclane command that runs in the namespace. If strace is given, the command
// runs under strace.
func (b *bed) command(ctx context.Context, strace []string, args ...string) *exec.Cmd {
	line := append([]string{"netns", "exec", b.netns}, strace...)
	line = append(line, b.niclane, "--state-dir", b.dir+"/state", "--run-dir", b.dir+"/run")
	c := exec.CommandContext(ctx, "ip", append(line, args...)...)
	c.WaitDelay = time.Second
	return c
}

func (b *bed) run(strace []string, args ...string) result {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := b.command(ctx, strace, args...).CombinedOutput()
	r := result{text: string(out)}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		r.code = hangs
		b.end()
	case errors.As(err, &exit):
		r.code = exit.ExitCode()
	case err != nil && !errors.Is(err, exec.ErrWaitDelay): // no failure: the guard process keeps the output streams open
		r.code, r.text = -1, err.Error()
	}
	return r
}

// look returns all visible state of the device, and the number of journals, as text.
func (b *bed) look(t *testing.T) string {
	var all strings.Builder
	for _, line := range []string{
		"ip -d link show dev v0", "tc qdisc show dev v0", "tc class show dev v0", "tc filter show dev v0 egress",
		"tc filter show dev v0 ingress",
	} {
		words := strings.Fields(line)
		out, _ := exec.Command(words[0], append([]string{"-n", b.netns}, words[1:]...)...).CombinedOutput()
		fmt.Fprintf(&all, "%s\n%s", line, out)
	}
	r := b.run(nil, "probe", "--json", "v0")
	var seen struct {
		Devices []map[string]any `json:"devices"`
		Files   map[string]any   `json:"files"`
	}
	if err := json.Unmarshal([]byte(r.text), &seen); err != nil || r.code != 0 {
		t.Fatalf("probe: %v %s", err, r.text)
	}
	for _, d := range seen.Devices {
		delete(d, "capabilities") // leave out, because it also shows the host, which other programs change
	}
	devices, err := json.MarshalIndent(seen, "", " ")
	must.Do(t, err)
	all.Write(devices)
	journals, _ := filepath.Glob(b.dir + "/state/*journal*")
	fmt.Fprintln(&all, "\njournals:", len(journals))
	return all.String()
}

// differs compares the state with that at the start. It returns the lines of the first difference;
// "" if there is none.
func (b *bed) differs(t *testing.T) string {
	now := strings.Split(b.look(t), "\n")
	was := strings.Split(b.start, "\n")
	for i := range max(len(now), len(was)) {
		n, w := "none", "none"
		if i < len(now) {
			n = now[i]
		}
		if i < len(was) {
			w = was[i]
		}
		if n != w {
			return fmt.Sprintf("%q, at the start %q", n, w)
		}
	}
	return ""
}

// guardian returns the PID of the running guard process; 0 if there is none.
func (b *bed) guardian() int {
	for _, pid := range b.processes("internal-guard") {
		return pid
	}
	return 0
}

// processes returns the PIDs of niclane processes whose command line has the bed's directories and
// a word.
func (b *bed) processes(word string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil && bytes.Contains(text, []byte(word)) && bytes.Contains(text, []byte(b.dir+"/run")) {
			pid, _ := strconv.Atoi(strings.Split(f, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

// end kills the processes of a hung command. It waits until they have ended, so that strace
// detaches.
func (b *bed) end() {
	until(func() bool {
		left := b.processes("")
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		return len(left) == 0
	})
}

// until waits up to 3 s until a condition is true, and reports whether it is. It must stop, because
// a watch that has failed may print nothing for 30 s.
func until(is func() bool) bool {
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if is() {
			return true
		}
	}
	return false
}
