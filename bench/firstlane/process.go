// SPDX-License-Identifier: Apache-2.0

package firstlane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A worker is a niclane process that takes its configuration as JSON and
// answers with its result.
type worker struct {
	what   string
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr bytes.Buffer
	done   chan struct{} // closed when it has ended
	err    error         // how, once done
}

// start starts cmd with config on its standard input.
func start(what string, cmd *exec.Cmd, config any) (*worker, error) {
	in, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	w := &worker{what: what, cmd: cmd, done: make(chan struct{})}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &w.stdout, &w.stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", what, err)
	}
	go func() {
		w.err = cmd.Wait()
		close(w.done)
	}()
	return w, nil
}

// result waits for the worker to end by itself, at most for limit.
func (w *worker) result(limit time.Duration, into any) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.done:
		if w.err != nil {
			return fmt.Errorf("%s: %w: %s", w.what, w.err, lastLine(w.stderr.String()))
		}
	case <-timer.C:
		return errors.Join(fmt.Errorf("%s: no end after %v", w.what, limit), w.stop())
	}
	if err := json.Unmarshal(w.stdout.Bytes(), into); err != nil {
		return fmt.Errorf("%s: result: %w", w.what, err)
	}
	return nil
}

// stop asks the process to end, if it has not, and after two seconds makes it.
func (w *worker) stop() error {
	if w.running() != nil {
		return nil
	}
	_ = w.cmd.Process.Signal(unix.SIGTERM)
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case <-w.done:
		return nil
	case <-timer.C:
	}
	_ = w.cmd.Process.Kill()
	<-w.done
	return fmt.Errorf("%s: did not end when asked", w.what)
}

// running returns nil while the process runs, and how it ended when it has.
func (w *worker) running() error {
	select {
	case <-w.done:
		return fmt.Errorf("%s ended: %v: %s", w.what, w.err, lastLine(w.stderr.String()))
	default:
		return nil
	}
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
