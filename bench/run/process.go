// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A process is one that a run has started.
type process struct {
	what   string
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr tail
	done   chan struct{} // closed when it has ended
	err    error         // how, once done
}

// tail keeps the end of what is written: a server may say a lot.
type tail struct{ b []byte }

const tailBytes = 16 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	if extra := len(t.b) - tailBytes; extra > 0 {
		t.b = append(t.b[:0], t.b[extra:]...)
	}
	return len(b), nil
}

// lastLine of what was written.
func (t *tail) lastLine() string {
	s := strings.TrimSpace(string(t.b))
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// start starts cmd. A config that is not nil goes to its standard input as
// JSON, and its standard output is kept for result.
func start(what string, cmd *exec.Cmd, config any) (*process, error) {
	p := &process{what: what, cmd: cmd, done: make(chan struct{})}
	cmd.Stderr = &p.stderr
	if config == nil && cmd.Stdout == nil {
		cmd.Stdout = &p.stderr // some servers have their log there
	}
	if config != nil {
		in, err := json.Marshal(config)
		if err != nil {
			return nil, err
		}
		cmd.Stdin, cmd.Stdout = bytes.NewReader(in), &p.stdout
	}
	// What a process leaves behind may hold its pipes open.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", what, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) name() string          { return p.what }
func (p *process) over() <-chan struct{} { return p.done }

// result waits for the process to end by itself until ctx ends.
func (p *process) result(ctx context.Context, into any) error {
	select {
	case <-p.done:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s: %w", p.what, context.Cause(ctx)), p.stop())
	}
	if p.err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", p.what, context.Cause(ctx))
		}
		return fmt.Errorf("%s: %w: %s", p.what, p.err, p.stderr.lastLine())
	}
	if err := json.Unmarshal(p.stdout.Bytes(), into); err != nil {
		return fmt.Errorf("%s: result: %w", p.what, err)
	}
	return nil
}

// endTime is how long a process may take to end when asked. With a hundredth of
// a processor, noise that does nothing but end takes two seconds: whoever is
// killed for that costs the window.
const endTime = 10 * time.Second

// stop asks the process to end, if it has not, and after endTime makes it.
func (p *process) stop() error { return p.endWithin(endTime) }

func (p *process) endWithin(patience time.Duration) error {
	if p.ended() != nil {
		return nil
	}
	_ = p.cmd.Process.Signal(unix.SIGTERM)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return fmt.Errorf("%s: did not end when asked", p.what)
}

// ended returns nil while the process runs, and how it ended when it has.
func (p *process) ended() error {
	select {
	case <-p.done:
		how := "by itself"
		if p.err != nil {
			how = p.err.Error()
		}
		if line := p.stderr.lastLine(); line != "" {
			how += ": " + line
		}
		return fmt.Errorf("%s has ended: %s", p.what, how)
	default:
		return nil
	}
}

// wait lets time pass, which is what a settling time is.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
