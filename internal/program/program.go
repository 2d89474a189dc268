// SPDX-License-Identifier: Apache-2.0

// Package program finds and runs niclane's two programs, niclane and niclane-bench. Each uses
// it to start the other.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The names of the programs. Each is in the deb or rpm package of the same name.
const (
	Niclane = "niclane"
	Bench   = "niclane-bench"
)

// Find returns the path of a program. It looks in the directory of this process's executable
// first, then in the PATH.
func Find(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), name)
	if st, err := os.Stat(beside); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
		return beside, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither in %s nor in the PATH: want the package %[1]s installed (in a "+
			"checkout: make)", name, filepath.Dir(self))
	}
	return filepath.Abs(path)
}

// Lanes runs the niclane program at Path. StateDir is the directory of the journals, RunDir
// that of the lock.
type Lanes struct {
	Path             string
	StateDir, RunDir string
}

// undoTime is how long a command may run after SIGTERM: an interrupted apply undoes its steps
// before it ends.
const undoTime = time.Minute

// Run runs a command with --json and returns its output, even if the command fails. When ctx
// ends, Run sends SIGTERM to the command.
func (l Lanes) Run(ctx context.Context, verb ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, l.Path, append([]string{"--json", "--state-dir", l.StateDir, "--run-dir", l.RunDir},
		verb...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir = "/"
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = undoTime
	// niclane runs in its own session, so that a signal from the terminal does not end it in the
	// middle of a change.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		err = fmt.Errorf("niclane %s: %w", verb[0], err)
	}
	return out, err
}
