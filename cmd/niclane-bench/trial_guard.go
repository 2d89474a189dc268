// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/lane/engine"
)

// trialGuardArg is the first argument of the process that undoes a trial whose process was killed.
const trialGuardArg = "internal-trial-guard"

// A trialGuard is the pipe to the process that undoes the trial's changes when this process ends
// without saying so. The guardian of --confirm-within does the same for the lanes of one window, after a
// time. This one also undoes what --prepare made, and does so at once.
type trialGuard struct{ pipe *os.File }

// A guardOrder is what the process has to undo, and where the journals are.
type guardOrder struct {
	marks
	StateDir string `json:"stateDir"`
	RunDir   string `json:"runDir"`
}

const (
	guardReady = "ready"
	guardDone  = "done"
	// guardTries is how often the process tries to undo, guardPause the time between two tries.
	guardTries = 60
	guardPause = time.Second
)

// startTrialGuard starts the process. It returns when the process is ready.
func startTrialGuard(o guardOrder) (*trialGuard, error) {
	arg, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "guard"), os.NewFile(uintptr(fds[1]), "guard")
	cmd := exec.Command("/proc/self/exe", trialGuardArg, string(arg))
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("guard: %w", err)
	}
	go cmd.Wait() // collects the exit status
	if line, err := bufio.NewReader(ours).ReadString('\n'); strings.TrimSpace(line) != guardReady {
		ours.Close()
		return nil, fmt.Errorf("guard: it ended before it was ready: %q, %w", line, err)
	}
	return &trialGuard{ours}, nil
}

// end tells the process that nothing is left to undo. If something is left, the process goes on trying.
func (g *trialGuard) end(left bool) {
	if !left {
		_, _ = fmt.Fprintln(g.pipe, guardDone) // if the process is gone, it has nothing to do
	}
	g.pipe.Close()
}

// runTrialGuard is the process: it waits until the trial has ended, and undoes what is left.
func runTrialGuard(arg string) error {
	signal.Ignore(unix.SIGHUP, unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE)
	var o guardOrder
	if err := json.Unmarshal([]byte(arg), &o); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	_ = cgroup.Leave(nil) // in a control group that is killed, only the guardian of the lanes is left
	link := os.NewFile(3, "trial")
	fmt.Fprintln(link, guardReady)
	for s := bufio.NewScanner(link); s.Scan(); {
		if s.Text() == guardDone {
			return nil
		}
	}
	e := &engine.Engine{StateDir: o.StateDir, RunDir: o.RunDir}
	for try := 1; ; try++ {
		err := o.restore(context.Background(), e)
		if err == nil || try == guardTries {
			return err
		}
		time.Sleep(guardPause)
	}
}
