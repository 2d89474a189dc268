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

// A Host runs parts of niclane as processes.
type Host interface {
	Start(ctx context.Context, what, part string, config any) (Task, error)
}

// A Task is a process on a host.
type Task interface {
	// Stop asks it to end, makes it after a while, and waits until it has.
	Stop(ctx context.Context) error
	// Result waits for it to end by itself, and reads its result.
	Result(ctx context.Context, into any) error
	// Done is closed when it has ended.
	Done() <-chan struct{}
}

// Local is this host. What it starts runs as nobody where it can, and ends with
// this process however that ends.
type Local struct {
	niclane string // path of the program
	spawn   chan func()
}

// NewLocal returns this host; niclane is the path of the program.
func NewLocal(niclane string) *Local {
	l := &Local{niclane, make(chan func())}
	go func() {
		// The kernel ends a process with the thread that has started it
		// (prctl(2), PR_SET_PDEATHSIG): this one lives as long as we.
		runtime.LockOSThread()
		for f := range l.spawn {
			f()
		}
	}()
	return l
}

// nobody is the user and group without rights, as the kernel numbers them.
const nobody = 65534

// Start starts a part.
func (l *Local) Start(_ context.Context, what, part string, config any) (Task, error) {
	in, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	t, err := l.start(what, part, in, &syscall.Credential{Uid: nobody, Gid: nobody})
	if errors.Is(err, fs.ErrPermission) { // nobody cannot reach the program
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
	// In a group of its own: Ctrl-C is ours to hear.
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
	ended    error // once done
}

func (t *localTask) Done() <-chan struct{} { return t.done }

// endTime is how long a process may take to end when asked.
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
