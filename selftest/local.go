// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Host can run parts of niclane (see bench/agent) as processes.
type Host interface {
	Start(ctx context.Context, what, part string, config any) (Task, error)
}

// A Task is a process on a host.
type Task interface {
	// Stop asks the process to end, kills it after a while, and waits for its end.
	Stop(ctx context.Context) error
	// Result waits until the process ends by itself, and reads its result.
	Result(ctx context.Context, into any) error
	// Done is closed when the process has ended.
	Done() <-chan struct{}
}

// Local is this host. Its processes run as user nobody if possible. They end when this process
// ends, even if it is killed.
type Local struct {
	niclane string // path of the program
	spawn   chan func()
}

// NewLocal returns this host; niclane is the path of the program.
func NewLocal(niclane string) *Local {
	l := &Local{niclane, make(chan func())}
	go func() {
		// The kernel kills a child process when the thread that started it ends (prctl(2),
		// PR_SET_PDEATHSIG). So all processes are started by this thread, which lives as long as this
		// process.
		runtime.LockOSThread()
		for f := range l.spawn {
			f()
		}
	}()
	return l
}

// nobody is the ID of a user and group without rights (Linux's overflow ID).
const nobody = 65534

// Start starts a part of niclane as a process.
func (l *Local) Start(_ context.Context, what, part string, config any) (Task, error) {
	in, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	t, err := l.start(what, part, in, &syscall.Credential{Uid: nobody, Gid: nobody})
	if errors.Is(err, fs.ErrPermission) { // user nobody has no access to the program
		t, err = l.start(what, part, in, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return t, nil
}

func (l *Local) start(what, part string, in []byte, as *syscall.Credential) (Task, error) {
	t := &localTask{what: what, done: make(chan struct{})}
	t.cmd = exec.Command(l.niclane, "internal-"+part)
	t.cmd.Args[0] = "niclane"
	t.cmd.Dir = "/"
	t.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	t.cmd.Stdin, t.cmd.Stdout, t.cmd.Stderr = bytes.NewReader(in), &t.out, &t.err
	// The process gets its own process group, so that Ctrl-C does not reach it.
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setpgid: true, Pdeathsig: unix.SIGKILL}
	t.cmd.WaitDelay = time.Second
	started := make(chan error)
	l.spawn <- func() { started <- t.cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	go func() {
		t.ended = t.cmd.Wait()
		close(t.done)
	}()
	return t, nil
}

type localTask struct {
	what     string
	cmd      *exec.Cmd
	out, err bytes.Buffer
	done     chan struct{}
	ended    error // valid when done is closed
}

func (t *localTask) Done() <-chan struct{} { return t.done }

// endTime is how long Stop waits before it kills the process.
const endTime = 10 * time.Second

func (t *localTask) Stop(context.Context) error {
	select {
	case <-t.done:
		return nil
	default:
	}
	_ = t.cmd.Process.Signal(unix.SIGTERM)
	timer := time.NewTimer(endTime)
	defer timer.Stop()
	select {
	case <-t.done:
		return nil
	case <-timer.C:
	}
	_ = t.cmd.Process.Kill()
	<-t.done
	return fmt.Errorf("%s: did not end when asked", t.what)
}

func (t *localTask) Result(ctx context.Context, into any) error {
	select {
	case <-t.done:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s: %w", t.what, context.Cause(ctx)), t.Stop(ctx))
	}
	if t.ended != nil {
		return fmt.Errorf("%s: %w: %s", t.what, t.ended, strings.TrimSpace(t.err.String()))
	}
	if err := json.Unmarshal(t.out.Bytes(), into); err != nil {
		return fmt.Errorf("%s: result: %w", t.what, err)
	}
	return nil
}
