// SPDX-License-Identifier: Apache-2.0

// Package systemctl asks systemd by its program systemctl(1). It starts the program of the system's
// directories only, without a shell, and ends it after a time.
package systemctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Limit is how long a command may take: a unit that systemd starts or stops may take 90 s by default
// (DefaultTimeoutStartSec in systemd-system.conf(5)).
const Limit = 2 * time.Minute

// paths are where distributions have the program.
var paths = []string{"/usr/bin/systemctl", "/bin/systemctl"}

// Run runs systemctl and returns what it prints, without white space at both ends. The error has what
// it prints on standard error. It is os.ErrNotExist if the host has no systemctl.
func Run(ctx context.Context, args ...string) (string, error) {
	return run(ctx, Limit, paths, args)
}

func run(ctx context.Context, limit time.Duration, paths, args []string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %v", limit))
	defer cancel()
	path := ""
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		return "", fmt.Errorf("systemctl: %w in %s", os.ErrNotExist, strings.Join(paths, " and "))
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second // for a process that it leaves with its output
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("systemctl %s: %w", args[0], context.Cause(ctx))
	case errors.As(err, &exit) && len(exit.Stderr) > 0:
		err = fmt.Errorf("systemctl %s: %w: %s", args[0], err, strings.TrimSpace(string(exit.Stderr)))
	case err != nil:
		err = fmt.Errorf("systemctl %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), err
}
