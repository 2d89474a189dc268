// SPDX-License-Identifier: Apache-2.0

// Package instances runs the instances of one application until the first ends:
// it starts them, passes signals on, and when one ends has the others end too. It
// restarts nothing: that is the service manager's, which knows how often.
package instances

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// An Instance is one command.
type Instance struct {
	// Name is for messages.
	Name string
	Argv []string
	// Env is added to the environment.
	Env []string
}

// passed are the signals that instances get too. A terminal sends SIGINT and
// SIGQUIT to all of its foreground processes itself; twice does no harm.
var passed = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}

// ending are those after which an end is what was asked for.
func ending(s os.Signal) bool {
	return s == unix.SIGTERM || s == unix.SIGINT || s == unix.SIGQUIT
}

// ErrEnded is that an instance ended without being told to.
type ErrEnded struct {
	Name  string
	State string // "exit status 1"
}

func (e ErrEnded) Error() string {
	return fmt.Sprintf("%s ended (%s), and the others were told to", e.Name, e.State)
}

// Run starts the instances and waits until all have ended: nil if that was
// asked for by a signal or the context, an ErrEnded that names the first if it
// was not. If this process is killed, they get SIGTERM.
func Run(ctx context.Context, all []Instance) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passed...)
	defer signal.Stop(signals)
	// The kernel sends the parent's death signal when the thread ends that
	// started the child (PR_SET_PDEATHSIG(2const)).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	type end struct {
		i   int
		err error
	}
	ends := make(chan end, len(all))
	var running []*exec.Cmd
	tell := func(s os.Signal) {
		for _, cmd := range running {
			// One that has ended has nothing to be told.
			_ = cmd.Process.Signal(s)
		}
	}
	var first error
	for i, x := range all {
		cmd := exec.Command(x.Argv[0], x.Argv[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.Env = append(os.Environ(), x.Env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM}
		if err := cmd.Start(); err != nil {
			first = fmt.Errorf("%s: %w", x.Name, err)
			break
		}
		running = append(running, cmd)
		go func() { ends <- end{i, cmd.Wait()} }()
	}
	asked := false
	cancelled := ctx.Done()
	if first != nil {
		tell(unix.SIGTERM)
	}
	for left := len(running); left > 0; {
		select {
		case <-cancelled:
			asked, cancelled = true, nil
			tell(unix.SIGTERM)
		case s := <-signals:
			asked = asked || ending(s)
			tell(s)
		case e := <-ends:
			left--
			if first == nil && !asked {
				first = ErrEnded{all[e.i].Name, state(e.err)}
				tell(unix.SIGTERM)
			}
		}
	}
	return first
}

// Follow has the calling thread, and what it executes, get SIGTERM when the
// parent ends, which has to be the process given. An instance that executes
// another program calls it before, with the thread locked: what Run asked for is
// the first thread's alone, and Go executes from any.
func Follow(parent int) error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_PDEATHSIG: %w", err)
	}
	if os.Getppid() != parent {
		return fmt.Errorf("process %d, which started this one, has ended", parent)
	}
	return nil
}

// state says how a process ended.
func state(err error) string {
	if err == nil {
		return "exit status 0"
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return strings.TrimSpace(exit.ProcessState.String())
	}
	return err.Error()
}
