// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestJobIsKilled: a job that does not end when asked is killed. The error names the job.
func TestJobIsKilled(t *testing.T) {
	j := &job{what: "the script", done: make(chan struct{}),
		cmd: exec.Command("sh", "-c", `trap '' TERM; echo; while :; do :; done`)}
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	go func() {
		j.err = j.cmd.Wait()
		close(j.done)
	}()
	wantError(t, j.endWithin(20*time.Millisecond), "the script: did not end when asked")
	if e := j.end(); !strings.Contains(e.Error, "signal: killed") {
		t.Errorf("its end: %+v", e)
	}
	if err := j.stop(); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

// TestJobRights: a job has the user and group of the agent's configuration. It gets its SCHED_FIFO
// priority even where root may not raise RLIMIT_RTPRIO.
func TestJobRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	daemon, err := user.LookupGroup("daemon")
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	host, _ := started(t, func(c *Config) { c.User, c.Any = "nobody:daemon", true })
	run := func(r Request) string {
		t.Helper()
		j, err := host.Start(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		<-j.Done()
		end, err := j.End()
		if err != nil || end.Error != "" {
			t.Fatalf("%+v, %v", end, err)
		}
		return strings.TrimSpace(end.Log)
	}
	if got, want := run(Request{What: "who", Command: []string{"sh", "-c", "echo $(id -u) $(id -G)"}}),
		nobody.Uid+" "+daemon.Gid; got != want {
		t.Errorf("a job is %s, want %s", got, want)
	}
	fifo := Request{What: "fifo", FIFO: 3, Command: []string{"sh", "-c", "cut -d ' ' -f 40 /proc/self/stat"}}
	if got := run(fifo); got != strconv.Itoa(fifo.FIFO) {
		t.Errorf("its priority is %s, want %d", got, fifo.FIFO)
	}
}
