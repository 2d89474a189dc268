// SPDX-License-Identifier: Apache-2.0

// Package instances runs the instances of one application. It starts them, passes signals on, and
// ends all of them when the first one ends. It does not restart them. That is the task of the
// service manager, which knows how often to try.
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

// An Instance is one instance of the application: a command and its environment.
type Instance struct {
	// Name identifies the instance in messages.
	Name string
	Argv []string
	// Env is added to the environment of the calling process.
	Env []string
}

// passed are the signals that Run passes on to instances. A terminal sends SIGINT and SIGQUIT to
// foreground processes itself, so instances may get these twice. This does no harm.
var passed = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}

// ending reports whether a signal asks processes to end.
func ending(s os.Signal) bool {
	return s == unix.SIGTERM || s == unix.SIGINT || s == unix.SIGQUIT
}

// ErrEnded is the error if an instance ends, but neither a signal nor the context has asked for the
// end.
type ErrEnded struct {
	Name  string
	State string // "exit status 1"
}

func (e ErrEnded) Error() string {
	return fmt.Sprintf("%s ended (%s), so the others were told to end", e.Name, e.State)
}

// Run starts the instances and waits until all have ended. If a signal or the context has asked for
// the end, it returns nil. Otherwise, it returns an ErrEnded with the first instance that ended. If
// this process is killed, the kernel sends SIGTERM to the instances.
func Run(ctx context.Context, all []Instance) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passed...)
	defer signal.Stop(signals)
	// Keep this thread: the kernel sends Pdeathsig when the thread that started the child ends, and
	// not when the process ends (PR_SET_PDEATHSIG(2const)).
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
			// An error means that the process has ended, so ignore it.
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

// Follow makes the kernel send SIGTERM to the calling thread when its parent process ends. It
// returns an error if the parent is not the process with the given PID. A program that the thread
// executes keeps this setting. Run makes the same setting when it starts an instance, but only for
// the first thread of the instance. Go may execute a program from another thread, so an instance
// must lock the thread and call Follow before.
func Follow(parent int) error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_PDEATHSIG: %w", err)
	}
	if os.Getppid() != parent {
		return fmt.Errorf("process %d, which started this one, has ended", parent)
	}
	return nil
}

// state describes how a process ended.
func state(err error) string {
	if err == nil {
		return "exit status 0"
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return strings.TrimSpace(exit.ProcessState.String())
	}
	return err.Error()
}
